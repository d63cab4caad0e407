# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The images of the ledger that requests may name, in addition to the images of the inventory, and the stores that have them."""

from __future__ import annotations

import contextlib
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.images import life
from ...module_utils.core.images.image import StoredImage
from ...module_utils.core.images.resolve import LedgerImages
from ...module_utils.core.images.stores.registry import ImageStores, read_stores
from ...module_utils.core.settings.images import IMAGE_STORES
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.images import images
from ..run import inventory_hosts
from ..run.ledger_action import LedgerAction, read_settings

#: Statuses of images that a request can name.
_NAMED = (*life.BUSY, life.ACTIVE)


def stores_of(action: LedgerAction) -> ImageStores:
    """Return the stores of bootflow_image_stores. :raises InvalidRequest: all errors of the variable"""
    declared = action.options.get("image_stores")
    if declared is None:  # a variable, which an action that only names images has no option for
        declared = read_settings(IMAGE_STORES.options(), {}, action.variable)["image_stores"]
    return read_stores(declared, inventory_hosts.all_of(action))


def images_of(action: LedgerAction, tx: Transaction | None = None) -> LedgerImages:
    """Return the images that requests may name. Without a store nothing is read. :arg tx: that reads them; by default another one"""
    stores = stores_of(action)
    if not len(stores):
        return LedgerImages()
    if tx is not None:
        return LedgerImages(_named(tx), stores)
    try:
        with contextlib.closing(action.open_ledger()) as ledger:
            return LedgerImages(ledger.inspect(_named), stores)
    except errors.LedgerMissing:
        if not action.check_mode:
            raise
        return LedgerImages(stores=stores)


def check_active(tx: Transaction, known: LedgerImages, ids: t.Iterable[str]) -> None:
    """Check that images of the ledger that a request was read with are still there. :arg ids: of images of either kind

    :raises ImageNotActive: one was deleted meanwhile.
    """
    images.check_active(tx, {image.id for image in known.images}.intersection(ids))


def _named(tx: Transaction) -> list[StoredImage]:
    return images.stored(tx, images.select(tx, statuses=_NAMED))
