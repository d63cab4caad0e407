# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The images that the collection knows by name: inventory/images.yml, with lower precedence than bootflow_images."""

from __future__ import annotations

import functools
import json
import typing as t
from pathlib import Path

from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader

#: Of the collection.
FILE = Path(__file__).parents[3] / "inventory" / "images.yml"


@functools.lru_cache(maxsize=1)
def shipped() -> tuple[t.Mapping[str, t.Any], ...]:
    """The entries of the file, as bootflow_images has them; none where it is not installed."""
    try:
        content = DataLoader().load_from_file(str(FILE))
    except AnsibleError:
        return ()
    return tuple(json.loads(json.dumps(content["bootflow_images"])))


def with_shipped(images: t.Any) -> t.Any:
    """Return the images of the inventory, and the images of the collection whose names and ids the inventory does not have.

    :arg images: bootflow_images: a list of mappings, or a mapping keyed by name.
    """
    if isinstance(images, t.Mapping):
        used_names = {*images, *(image.get("id") for image in images.values() if isinstance(image, t.Mapping))}
        added = {image["name"]: {k: v for k, v in image.items() if k != "name"} for image in shipped()}
        return {**images, **{name: image for name, image in added.items() if name not in used_names}}
    if not isinstance(images, (list, tuple)):
        return images
    named = [image for image in images if isinstance(image, t.Mapping)]
    used_names = {image.get("name") for image in named} | {image.get("id") for image in named}
    return [*images, *(image for image in shipped() if image["name"] not in used_names)]
