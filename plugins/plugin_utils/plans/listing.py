# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plans of the ledger as a table, and plans that are given up."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.times import utc
from ...module_utils.flows.plans import held
from ...module_utils.flows.plans.held import Listed
from ...module_utils.ledger.db.transaction import Transaction
from ..run import tables
from ..run.ledger_action import LedgerAction
from ..run.results import diff

NAMED = 3  # instances of a plan that the table names


class PlanListing:
    """The list of plans, by the options of the action."""

    def __init__(self, action: LedgerAction):
        self.action = action

    def run(self) -> dict[str, t.Any]:
        """Discard the plans of the option, list all. Returns the result of the task."""
        ids = list(self.action.options["discard"] or ())

        def work(tx: Transaction) -> tuple[list[Listed], list[str], list[Listed]]:
            before = held.listed(tx)
            discarded = held.discard(tx, ids) if ids else []
            return before, discarded, held.listed(tx) if discarded else before

        try:
            before, discarded, after = self._open_and(work, bool(ids))
        except errors.LedgerMissing as e:
            if ids:
                raise
            self._show(["No plans. %s." % e.message])
            return {"changed": False, "plans": [], "discarded": []}
        verb = "Would discard" if self.action.check_mode else "Discarded"
        said = ["%s %s." % (verb, ", ".join(discarded))] if discarded else []
        self._show([*said, *table(after)])
        return {
            "changed": bool(discarded),
            "plans": [view(one) for one in after],
            "discarded": discarded,
            "diff": diff("plans", states(before), states(after)),
        }

    def _open_and(self, work: t.Callable[[Transaction], t.Any], writes: bool) -> t.Any:
        if writes:
            return self.action.write(work)
        return self.action.open_ledger().inspect(work)

    def _show(self, lines: t.Sequence[str]) -> None:
        if self.action.options["print_table"]:
            tables.show(self.action.ports.display, lines)


def view(one: Listed) -> dict[str, t.Any]:
    """Return a plan as plain data."""
    row = one.row
    return {
        "id": row.id,
        "kind": row.kind,
        "state": one.state,
        "actor": row.actor,
        "created": utc(row.created_at),
        "expires": utc(row.expires_at),
        "changed": utc(row.changed_at),
        "run": row.run_id,
        "instance_count": row.instances,
        "instances": [
            *({"name": r.display_name, "uuid": r.uuid, "host": r.host} for r in one.rows),
            *({"name": p.display_name, "uuid": p.instance_uuid, "host": p.host} for p in one.places),
        ],
    }


def states(listed: t.Sequence[Listed]) -> str:
    """Return the states of plans, a line for each."""
    return "".join("%s %s\n" % (one.row.id, one.state) for one in listed)


def table(listed: t.Sequence[Listed]) -> list[str]:
    """Return the lines of a table of plans."""
    if not listed:
        return ["No plans in the ledger."]
    rows = [
        [one.row.id, one.row.kind, one.state, utc(one.row.expires_at) or "-", one.row.actor, _instances(one)]
        for one in listed
    ]
    return tables.table(["PLAN", "OF", "STATE", "EXPIRES", "BY", "INSTANCES"], rows)


def _instances(one: Listed) -> str:
    names = [*(r.display_name for r in one.rows), *(p.display_name for p in one.places)]
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (" and %d more" % more if more > 0 else "") if names else str(one.row.instances)
