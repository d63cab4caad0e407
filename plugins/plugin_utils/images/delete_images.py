# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of image_delete on the controller: records go at once, files by the hosts of their stores, and the result is reported."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.flows.images import deletion
from ...module_utils.flows.images.deletion import ImagesDeleting
from ...module_utils.ledger.db.transaction import Transaction
from ..run import inventory_hosts, tables
from ..run.ledger_action import LedgerAction
from ..run.results import diff, outcome
from ..run.stage_results import CONTROLLER
from ..settings.ledger_images import stores_of
from . import store_stage
from .image_texts import image_with_file


def begin(action: LedgerAction) -> dict[str, t.Any]:
    """Delete the records; in check mode, roll it back. Returns the result of the task."""
    return store_stage.hand_over(action, lambda: _begin(action))


def _begin(action: LedgerAction) -> dict[str, t.Any]:
    options = action.options
    words = [*(options["image_ids"] or ()), *(options["image_names"] or ())]
    if not words:
        raise errors.InvalidInput(
            message="no image is named", remedy="Set bootflow_image_names or bootflow_image_ids; all is never meant."
        )
    stores = stores_of(action)

    def write(tx: Transaction) -> tuple[ImagesDeleting, store_stage.Works]:
        deleting = deletion.begin(tx, words, options["project"], options["missing_ok"], stores)
        inventory_hosts.in_inventory(action, [host for host in deleting.hosts if host != CONTROLLER])
        return deleting, store_stage.works_of(tx, deleting.hosts, stores)

    deleting, works = action.write(write)
    lines = ["%s %s of project %s" % (i.name, i.id, i.project) for i in (*deleting.deleted, *deleting.pending)]
    shown = ["There is no image with this name: %s" % ", ".join(deleting.not_found)] if deleting.not_found else []
    if action.check_mode:
        shown = ["Would delete:", *(lines or ["  nothing"]), *shown]
    if shown and options["print_table"]:
        tables.show(action.ports.display, shown)
    return {
        "changed": bool(lines),
        "images": [{"id": i.id, "name": i.name} for i in (*deleting.deleted, *deleting.pending)],
        "not_found": deleting.not_found,
        "storage": [] if action.check_mode else [host for host in deleting.hosts if host != CONTROLLER],
        "works": works,
        "diff": diff("images", "".join(line + "\n" for line in lines), ""),
    }


def finish(action: LedgerAction) -> dict[str, t.Any]:
    """Report the images that this run deleted. Files that are left fail the task."""
    if action.check_mode:
        return {"changed": False, "skipped": True}
    ids, stores = [image["id"] for image in store_stage.handed_over(action).get("images") or ()], stores_of(action)

    def write(tx: Transaction) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
        store_stage.write_outcomes(tx, action, stores)
        return deletion.finish(tx, ids)

    removed, left_over = action.open_ledger().transact(write)
    if action.options["print_table"]:
        names = ", ".join(view["name"] for view in removed)
        tables.show(action.ports.display, ["Deleted: %s" % (names or "nothing")])
    total = len(removed) + len(left_over)
    error = errors.ImageDeleteIncomplete([image_with_file(view) for view in left_over], total)
    return outcome(error, changed=bool(removed), deleted=removed, pending=left_over)
