# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of resizes and cold migrations: written with the hosts that they hold, used by the moves that they are of."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.plans.plan_file import Plan
from ...module_utils.core.settings.plans import PLANS
from ...module_utils.flows.moves import cold
from ...module_utils.flows.plans import held, held_moves
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ..run import host_settings, tables
from ..run.ledger_action import LedgerAction
from ..scheduling.candidates import Candidates
from . import chosen, files


def check(action: LedgerAction, ledger: Ledger, kind: str, wanted: cold.Wanted) -> bool:
    """Check the plan that this run uses, before any host is contacted. Returns whether there is one.

    :arg kind: the playbook. :raises BootflowError: see chosen.of_run() and held_moves.judge()
    """
    used = chosen.of_run(action, ledger, kind)
    if used is not None:
        ledger.inspect(held_moves.judge, used.plan, wanted, frozenset(action.hosts_to_use()))
    return used is not None


class MovePlan:
    """The plan that the moves of a run use, or write.

    :raises BootflowError: the plan cannot be used, see chosen.of_run(). :raises Unplaced: a plan is to be written, and does not fit.
    """

    def __init__(self, action: LedgerAction, kind: str, wanted: cold.Wanted, candidates: Candidates):
        self.action = action
        self.wanted = wanted
        self.candidates = candidates
        self.ledger = action.open_ledger()
        self.path = host_settings.values(action, PLANS).plan_out
        self.plan: Plan | None = None
        self.file = self.path or ""
        if self.path is not None:
            self.plan = self._hold()
        else:
            used = chosen.of_run(action, self.ledger, kind)
            if used is not None:
                self.plan, self.file = used

    def _hold(self) -> Plan | None:
        """Write the reports of hosts, then what the plan holds."""
        self.ledger.transact(self.candidates.rehearse)
        seconds = host_settings.values(self.action, PLANS).plan_ttl
        more = (self.candidates.read, self.candidates.options, seconds, self.ledger.id)
        return self.ledger.transact(held_moves.hold, self.wanted, *more, collisions=3)

    def begin(self, tx: Transaction) -> cold.Begun:
        """Begin the moves: of the plan, else as requested."""
        read, options = self.candidates.read, self.candidates.options
        if self.plan is None:
            return cold.begin(tx, self.wanted, read, options)
        usable = frozenset(self.action.hosts_to_use())
        return held_moves.begin(tx, self.plan, self.file, self.wanted, usable, read, options)

    def write(self) -> dict[str, t.Any]:
        """Write the file of the plan that is to be written, and show a line. Returns {plan_file}, as part of a result; empty: none is written

        :raises PlanNotWritable: nothing is held then.
        """
        if self.path is None or self.plan is None:
            return {}
        try:
            files.write(self.path, self.plan)
        except errors.PlanNotWritable:
            self.discard()
            raise
        if self.action.options["print_table"]:
            tables.show(self.action.ports.display, [line(self.plan, self.path)])
        return {"plan_file": {"file": self.path, **{n: self.plan[n] for n in ("id", "hash", "expires")}}}

    def discard(self) -> None:
        """Give up the plan that was to be written."""
        if self.path is not None and self.plan is not None:
            self.ledger.transact(held.discard, [self.plan["id"]])


def line(plan: Plan, path: str) -> str:
    """Return a line for people on a plan that was written."""
    words = (plan["id"], plan["expires"], path)
    return "The plan %s holds these places until %s: run the same with bootflow_plan=%s." % words
