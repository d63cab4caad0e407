# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Incremental backups of instances: the root disk, or what was written to it since the backup before, in a directory of the instance's host."""

from __future__ import annotations

import typing as t

from ....module_utils.core import errors
from ....module_utils.core.backups.backup import COMPLETE, FULL
from ....module_utils.core.images import snapshots
from ....module_utils.core.instances.operation_outcomes import Answers, Item
from ....module_utils.flows.backups import incremental as flow
from ....module_utils.flows.instances.operation import Begun, Operation, Selection
from ....module_utils.flows.instances.snapshots import properties_of
from ....module_utils.ledger.backups.backups import BackupRow, stored_file
from ....module_utils.ledger.compute.instances import Instance
from ....module_utils.ledger.db.transaction import Transaction
from ...images.host_images import AT_ONCE
from ...run import host_settings
from ...run.results import item_errors
from ..work import Items, Problems, Work, uuids_of

MODULE = "instance_backup"


class IncrementalBackup(Work):
    """Makes a backup of each instance."""

    reads_disks = True

    _plans: flow.Plans
    _answers: t.Mapping[str, Item] = {}

    def begin(
        self, tx: Transaction, operation: Operation, selection: Selection, known_hosts: t.Collection[str], ask: bool
    ) -> Begun:
        options = self.action.options
        begun, self._plans = flow.begin(
            tx, operation, selection, known_hosts, options["backup_full"], options["backup_chain_length"]
        )
        return begun

    def item_of(self, row: Instance) -> dict[str, t.Any]:
        planned = self._plans[row.uuid]
        return {
            "backup": {
                "backup_id": planned.id,
                "quiesce": snapshots.quiesce_of(row.display_name, properties_of(row), row.vm_state),
                "reason": planned.choice.reason,
                "chain": [_stored(one) for one in planned.chain],
                "kept_checkpoint": planned.kept_checkpoint,
                "removed": [one.id for one in planned.remnants],
            },
            "note": "backup %s" % planned.id,
        }

    def change_of(self, row: Instance) -> tuple[str, str]:
        choice = self._plans[row.uuid].choice
        if choice.parent is None:
            return "", ", full backup: %s" % choice.reason
        return "", ", increment on backup %s" % choice.parent.id

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, Problems]:
        """Make the backups of the current host, a few at once: a module that takes too long fails a few only."""
        settings = host_settings.read_current_host(self.action)
        answers: Answers = {}
        problems: Problems = {}
        for group in [items[number : number + AT_ONCE] for number in range(0, len(items), AT_ONCE)]:
            arguments = {
                **host_settings.libvirt_arguments(self.action),
                "instances_path": settings.instances_path,
                "directory": settings.backup_directory,
                "instances": [{"uuid": i["uuid"], "name": i["name"], **i["backup"]} for i in group],
                "workers": AT_ONCE,
            }
            try:
                result = self.action.run_module(MODULE, arguments)
            except errors.BootflowError as e:
                problems.update(dict.fromkeys(uuids_of(group), e))
                continue
            failed = item_errors(result, uuids_of(group))
            answers.update({uuid: dict(answer) for uuid, answer in result["outcomes"].items()})
            for uuid in failed:
                answers.setdefault(uuid, {})["left"] = False  # the host has said so
            problems.update(failed)
        return answers, problems

    def write_results(
        self,
        tx: Transaction,
        items: t.Mapping[str, Item],
        answers: t.Mapping[str, Item],
        failed: t.Mapping[str, errors.BootflowError],
    ) -> Problems:
        self._answers = answers
        return flow.finish(tx, {uuid: i["backup"]["backup_id"] for uuid, i in items.items()}, answers, failed)

    def result_of(self, item: Item) -> dict[str, t.Any]:
        answer = self._answers.get(item["uuid"], {})
        if answer.get("error") or "kind" not in answer:
            return {}
        made = {name: answer[name] for name in ("kind", "parent_id", "reason", "size") if name in answer}
        words = "full backup %s: %s" if answer["kind"] == FULL else "increment %s%s"
        return {
            "backup": {"id": item["backup"]["backup_id"], "state": COMPLETE, **made},
            "note": words % (item["backup"]["backup_id"], answer["reason"]),
        }


def _stored(row: BackupRow) -> dict[str, t.Any]:
    """Return a backup in the chain of an increment."""
    return {**stored_file(row), "checkpoint": row.checkpoint, "checkpoint_xml": row.checkpoint_xml}
