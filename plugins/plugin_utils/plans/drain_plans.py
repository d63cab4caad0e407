# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of drains: written with the hosts that they hold, judged before they are used, given back at the end."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.plans.plan_file import Plan
from ...module_utils.core.plans.plan_states import DRAIN
from ...module_utils.core.settings.plans import PLANS
from ...module_utils.flows.moves import cold, drain, live
from ...module_utils.flows.plans import held, held_drains
from ...module_utils.ledger.db.transaction import Transaction
from ..run import host_settings
from ..run.ledger_action import LedgerAction
from ..scheduling.candidates import Candidates
from . import chosen, files
from .move_plans import line


class DrainPlan:
    """The plan that a drain uses, or writes."""

    def __init__(self, action: LedgerAction, host: str, wanted: cold.Wanted, running: live.Wanted | None):
        self.action = action
        self.wanted = held_drains.Wanted(host, wanted, running)
        self.candidates = Candidates(action)
        self.ledger = action.open_ledger()
        self.path = host_settings.values(action, PLANS).plan_out
        self.plan: Plan | None = None

    def begin(self) -> drain.Drained:
        """Begin the drain by the plan, or write one, and return what a drain would do. :raises BootflowError: see held_drains"""
        if self.path is not None:
            self._hold(self.path)
            wanted = self.wanted
            return self.action.write(lambda tx: drain.begin(tx, wanted.host, wanted.cold, wanted.live))
        used = t.cast(chosen.Chosen, chosen.of_run(self.action, self.ledger, DRAIN))
        usable = frozenset(self.action.hosts_to_use())

        def judge(tx: Transaction) -> None:
            self.candidates.rehearse(tx)
            held.check_held(tx, used.plan, used.file, lock=True)
            options = self.candidates.options
            held_drains.judge(tx, used.plan, self.wanted, usable, self.candidates.read, options)

        self.ledger.rehearsal(judge)
        self.plan = used.plan
        return self.action.write(lambda tx: held_drains.use(tx, used.plan, used.file, self.wanted, usable))

    def _hold(self, path: str) -> None:
        """Write the reports of hosts, then what the plan holds, then its file."""
        self.ledger.transact(self.candidates.rehearse)
        seconds = host_settings.values(self.action, PLANS).plan_ttl
        more = (self.candidates.read, self.candidates.options, seconds, self.ledger.id)
        self.plan = self.ledger.transact(held_drains.hold, self.wanted, *more, collisions=3)
        if self.plan is None:
            return
        try:
            files.write(path, self.plan)
        except errors.PlanNotWritable:
            self.ledger.transact(held.discard, [self.plan["id"]])
            raise

    @property
    def places(self) -> dict[str, str]:
        """The hosts that the plan holds, by UUID."""
        return {i["uuid"]: i["host"] for i in self.plan["instances"]} if self.plan is not None else {}

    def result(self) -> dict[str, t.Any]:
        """Return what the steps of the drain need to know, for the result of the stage."""
        if self.plan is None:
            return {}
        file = {"file": self.path, **{n: self.plan[n] for n in ("id", "hash", "expires")}} if self.path else None
        return {"plan": self.plan["id"], "places": self.places, **({"plan_file": file} if file else {})}

    def lines(self) -> list[str]:
        """Return a line for people, where a plan was written."""
        return [line(self.plan, self.path)] if self.plan is not None and self.path is not None else []
