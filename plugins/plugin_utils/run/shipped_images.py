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
        found = DataLoader().load_from_file(str(FILE))
    except AnsibleError:
        return ()
    return tuple(json.loads(json.dumps(found["bootflow_images"])))


def with_shipped(images: t.Any) -> t.Any:
    """Return the images of the inventory, and the images of the collection whose names and ids the inventory does not have.

    :arg images: bootflow_images: a list of mappings, or a mapping keyed by name.
    """
    if isinstance(images, t.Mapping):
        taken = {*images, *(each.get("id") for each in images.values() if isinstance(each, t.Mapping))}
        added = {each["name"]: {k: v for k, v in each.items() if k != "name"} for each in shipped()}
        return {**images, **{name: each for name, each in added.items() if name not in taken}}
    if not isinstance(images, (list, tuple)):
        return images
    named = [each for each in images if isinstance(each, t.Mapping)]
    taken = {each.get("name") for each in named} | {each.get("id") for each in named}
    return [*images, *(each for each in shipped() if each["name"] not in taken)]
