# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Backups of instances: snapshots of a type, of which the newest ones are kept. source: Nova's createBackup"""

from __future__ import annotations

import typing as t

from ....module_utils.core import errors
from ....module_utils.core.images import backups
from ....module_utils.core.images.backups import BackupRequest
from ....module_utils.core.instances.operation_outcomes import Item
from ....module_utils.core.times import utc
from ....module_utils.flows.instances import backups as flow
from ....module_utils.flows.instances.operation import Begun, Operation, Selection
from ....module_utils.ledger.compute.instances import Instance
from ....module_utils.ledger.db.transaction import Transaction
from ....module_utils.ledger.images.images import ImageRow
from ..work import Problems
from .snapshot import Snapshot, non_inheritable_properties, store_of


class CreateBackup(Snapshot):
    """Makes an image of each instance, and deletes its oldest backups of the same type."""

    _request: BackupRequest
    _rotated: t.Mapping[str, t.Sequence[ImageRow]] = {}

    def prepare(self) -> None:
        """:raises InvalidInput: a variable is missing, or what it or a property has. :raises ImageStoreNotFound: the store is not known"""
        options, action = self.action.options, self.action
        self._request = backups.read_request(
            options["backup_name"],
            options["backup_type"],
            options["backup_rotation"],
            store_of(action),
            options["snapshot_properties"],
            non_inheritable_properties(action),
            str(utc(action.context().now)),
        )

    def begin(
        self, tx: Transaction, operation: Operation, selection: Selection, known_hosts: t.Collection[str], ask: bool
    ) -> Begun:
        begun = super().begin(tx, operation, selection, known_hosts, ask)
        made = {uuid: image.id for uuid, image in self._images.items()}
        self._rotated = flow.find_excess(tx, made, self._request.backup_type, self._request.rotation)
        return begun

    def item_of(self, row: Instance) -> dict[str, t.Any]:
        item = super().item_of(row)
        if self.action.check_mode:
            deleted = _views(self._rotated[row.uuid])
            if self._request.rotation == 0:
                deleted.append(item["image"])
            item.update(note=item["note"] + _deleted_words(deleted), deleted_images=deleted)
        return {**item, "backup_type": self._request.backup_type, "rotation": self._request.rotation}

    def change_of(self, row: Instance) -> tuple[str, str]:
        before, after = super().change_of(row)
        rotated = "".join(", image %s %s" % (r.name, r.id) for r in self._rotated[row.uuid])
        return before + rotated, after if self._request.rotation else ""

    def write_results(
        self,
        tx: Transaction,
        items: t.Mapping[str, Item],
        answers: t.Mapping[str, Item],
        failed: t.Mapping[str, errors.BootflowError],
    ) -> Problems:
        failures = super().write_results(tx, items, answers, failed)
        made = {uuid: item["image"]["id"] for uuid, item in items.items() if uuid not in failed}
        first = next(iter(items.values()))  # all have the same type and rotation
        self._rotated = flow.rotate(tx, made, first["backup_type"], first["rotation"])
        return failures

    def result_of(self, item: Item) -> dict[str, t.Any]:
        deleted = _views(self._rotated.get(item["uuid"], ()))
        return {
            **super().result_of(item),
            "note": item["note"] + _deleted_words(deleted),
            "deleted_images": item.get("deleted_images", deleted),
        }


def _views(rows: t.Sequence[ImageRow]) -> list[dict[str, str]]:
    return [{"id": row.id, "name": row.name} for row in rows]


def _deleted_words(deleted: t.Sequence[t.Mapping[str, str]]) -> str:
    """Return the end of the note of an instance: the backups that are deleted."""
    return "; deleted: %s" % ", ".join(image["name"] for image in deleted) if deleted else ""
