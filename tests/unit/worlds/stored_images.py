# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of the ledger for the tests of what names them."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core.images import life
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.image import StoredImage
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores
from ansible_collections.bootflow.compute.plugins.module_utils.flows.images import deletion
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.images import images

from .world import World

STORES = [{"name": "nfs", "path": "/net/images", "kind": "shared"}]
SHA = "ab" * 32
ID = "99999999-0000-4000-8000-00000000000a"


def store_image(world: World, image_id: str = ID, **fields: t.Any) -> str:
    """Enter an active image, which is in the store of STORES. Returns its id."""
    given = {"name": "stored", "project": "default", "disk_format": "qcow2", **fields}
    with world.ledger.write() as tx:
        of_run = tx.for_run(world.context("images"))
        images.create(of_run, [StoredImage(id=image_id, **given)])
        images.apply(of_run, image_id, life.UPLOAD_BEGUN, "nfs")
        images.apply(of_run, image_id, life.UPLOADED, size=5, checksum=SHA)
    return image_id


def delete_image(world: World, word: str = ID) -> None:
    """Delete the image, as another run does. :raises InvalidRequest: it is refused"""
    with world.ledger.write() as tx:
        deletion.begin(tx.for_run(world.context("deletion")), [word], None, False, read_stores(STORES, []))
