# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of apply: written with what a file boots and resizes, judged before they are used."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.apply.plan import Plan as Changes
from ...module_utils.core.plans.plan_file import Plan
from ...module_utils.core.plans.plan_states import APPLY
from ...module_utils.core.settings.plans import PLANS
from ...module_utils.flows.apply import fleet
from ...module_utils.flows.boot import accept
from ...module_utils.flows.plans import held, held_applies
from ...module_utils.ledger.db.transaction import Transaction
from ..run import host_settings, tables
from ..run.ledger_action import LedgerAction
from ..scheduling.candidates import Candidates
from ..settings import boot_volume_settings
from . import chosen, files
from .move_plans import line


class ApplyPlan:
    """The plan that apply uses, or writes.

    :raises BootflowError: it cannot be used, see chosen.of_run().
    """

    def __init__(self, action: LedgerAction, file: fleet.File):
        self.action = action
        self.file = file
        self.candidates = Candidates(action)
        self.ledger = action.open_ledger()
        self.path = host_settings.values(action, PLANS).plan_out
        self.used = None if self.path is not None else chosen.of_run(action, self.ledger, APPLY)
        self.plan: Plan | None = self.used.plan if self.used is not None else None
        self.usable = frozenset(action.hosts_to_use())

    def before(self, tx: Transaction) -> None:
        """In a transaction that is rolled back: give back what the used plan holds, so that the changes are planned as they were."""
        if self.used is not None:
            held_applies.give_back(tx, self.used.plan, self.used.file)

    def check(self, changes: Changes) -> dict[str, t.Any]:
        """Judge the plan, or write it. Returns what the steps need to know, for the result of the stage; empty: there is no plan.

        :arg changes: that would be done, see before(). :raises BootflowError: see held_applies
        """
        wanted = held_applies.Wanted(self.file, changes)
        if self.path is not None:
            self._hold(wanted, self.path)
        elif self.used is not None:
            self._judge(wanted, self.used)
        if self.plan is None:
            return {}
        places = {i["uuid"]: i["host"] for i in self.plan["instances"] if "from" in i}
        written = {"file": self.path, **{n: self.plan[n] for n in ("id", "hash", "expires")}}
        return {"plan": self.plan["id"], "places": places, **({"plan_file": written} if self.path else {})}

    def _hold(self, wanted: held_applies.Wanted, path: str) -> None:
        """Write the reports of hosts, then what the plan holds, then its file."""
        if boot_volume_settings.uses_volumes(self.file.requests) and any(
            c.kind == "boot" for c in wanted.changes.to_do
        ):
            raise errors.PlanNotPossible(
                reason="the request has volumes", remedy="Apply the file without bootflow_plan_out."
            )
        self.ledger.transact(self.candidates.rehearse)
        seconds = host_settings.values(self.action, PLANS).plan_ttl
        more = (self.candidates.read, self.candidates.options, seconds, self.ledger.id)
        self.plan = self.ledger.transact(held_applies.hold, wanted, *more, collisions=3)
        if self.plan is None:
            return
        try:
            files.write(path, self.plan)
        except errors.PlanNotWritable:
            self.ledger.transact(held.discard, [self.plan["id"]])
            raise
        if self.action.options["print_table"]:
            tables.show(self.action.ports.display, [line(self.plan, path)])

    def _judge(self, wanted: held_applies.Wanted, used: chosen.Chosen) -> None:
        held_applies.judge_request(used.plan, wanted, accept.names_of_ids(self.file.options.networks))

        def judge(tx: Transaction) -> None:
            self.candidates.rehearse(tx)
            read, options = self.candidates.read, self.candidates.options
            held_applies.judge_hosts(tx, used.plan, self.file, self.usable, read, options)

        self.ledger.rehearsal(judge)

    def begin(self, tx: Transaction) -> fleet.Begun:
        """Use the plan, and begin its changes. :raises BootflowError: see held_applies.begin()"""
        used = t.cast(chosen.Chosen, self.used)  # none is written without check mode
        return held_applies.begin(tx, used.plan, used.file, self.file, self.usable)
