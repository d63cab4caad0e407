# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of the verification of backups: selected on the controller, read back by their hosts, written on the controller."""

from __future__ import annotations

import contextlib
import functools
import typing as t

from ...module_utils.core import errors
from ...module_utils.flows.backups import verification as flow
from ...module_utils.flows.backups.verification import Wanted
from ...module_utils.ledger.backups.backups import stored_file
from ...module_utils.ledger.db.transaction import Transaction
from ..run import inventory_hosts, tables
from ..run.ledger_action import LedgerAction
from ..run.results import diff, item_errors, outcome
from ..run.stages import Failed, Item, Items, Outcomes, Result, Stages

MODULE = "instance_backup_check"


class VerifyBackups(Stages):
    """Has backups read back."""

    called = "incremental_backup_verify"
    answered_by = {"work": "host"}
    rehearses_on_hosts = True  # nothing is written there
    keeps_lease = False  # the run owns nothing in the ledger

    def __init__(self, action: LedgerAction):
        super().__init__(action, "incremental_backup_verify")

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        return {"begin": self._begin, "finish": self._finish}

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        return {"work": self._work}

    def items(self) -> dict[str, Item]:
        return {i["uuid"]: i for i in self.result(self.begins).get("backups") or []}

    def _begin(self) -> Result:
        options = self.options

        def read(tx: Transaction) -> list[Wanted]:
            wanted = flow.select(tx, options["backup_ids"], options["names"], options["uuids"], options["project"])
            inventory_hosts.in_inventory(self.action, sorted({w.row.host for w in wanted}))
            return wanted

        with contextlib.closing(self.action.open_ledger()) as ledger:
            items = [_item(wanted) for wanted in ledger.inspect(read)]
        if options["print_table"] and not items:
            tables.show(self.action.ports.display, ["No complete backup to read back."])
        return {"changed": False, "backups": items, "compute": sorted({i["host"] for i in items})}

    def _work(self, host: str) -> Result:
        """Have the backups of the current host read back, one module for each instance, which fails alone if it takes too long."""
        by_instance: dict[str, list[Item]] = {}
        for item in self.items_on(host, "host"):
            by_instance.setdefault(item["instance_uuid"], []).append(item)
        answers: Outcomes = {}
        for items in by_instance.values():
            answers.update(self.guarded([i["uuid"] for i in items], functools.partial(self._read_back, items)))
        return {"changed": False, "outcomes": answers}

    def _read_back(self, items: Items) -> tuple[Outcomes, Failed]:
        result = self.action.run_module(MODULE, {"backups": [{**i["stored"], "needs": i["needs"]} for i in items]})
        return result["outcomes"], item_errors(result, [i["uuid"] for i in items])

    def _finish(self) -> Result:
        items = self.items()
        answers = self.answers("work")
        failed = {u: errors.from_dict(a["error"]) for u, a in answers.items() if a.get("error")}
        damage_by_id = {u: str(answers[u]["damage"]) for u in items if u not in failed}
        damaged = self._write(damage_by_id)
        for backup_id in damaged:
            failed[backup_id] = errors.BackupDamaged(backup_id=backup_id, reason=damage_by_id[backup_id])
        good = [u for u in items if u not in failed]
        if self.options["print_table"] and items:
            words = ["%d of %d are unchanged" % (len(good), len(items))]
            words += ["%s of %s is damaged: %s" % (u, items[u]["name"], damage_by_id[u]) for u in damaged]
            tables.show(self.action.ports.display, ["Incremental backups: %s." % words[0], *words[1:]])
        remaining = [
            errors.failed_item(items[u]["name"], u, e.as_dict(), host=items[u]["host"]) for u, e in failed.items()
        ]
        error = errors.OperationFailed(remaining, len(items), operation=self.called)
        differing = [u for u in damage_by_id if damage_by_id[u] != items[u]["damage"]]
        before, after = ("".join(_line(u, d[u]) for u in differing) for d in (_damage_of(items), damage_by_id))
        return outcome(
            error, changed=bool(differing), verified=good, damaged=damaged, diff=diff("backups", before, after)
        )

    def _write(self, damage_by_id: t.Mapping[str, str]) -> list[str]:
        """Write what hosts have found. Returns the ids of backups that are damaged."""
        if self.action.check_mode:
            return [u for u in damage_by_id if damage_by_id[u]]
        with contextlib.closing(self.action.open_ledger()) as ledger:
            return ledger.transact(flow.finish, damage_by_id)


def _item(wanted: Wanted) -> dict[str, t.Any]:
    row = wanted.row
    return {
        "uuid": row.id,
        "name": row.instance_name,
        "instance_uuid": row.instance_uuid,
        "host": row.host,
        "damage": row.damage,
        "stored": stored_file(row),
        "needs": list(wanted.needs),
    }


def _damage_of(items: t.Mapping[str, Item]) -> dict[str, str]:
    return {u: i["damage"] for u, i in items.items()}


def _line(backup_id: str, damage: str) -> str:
    return "%s: %s\n" % (backup_id, damage or "unchanged")
