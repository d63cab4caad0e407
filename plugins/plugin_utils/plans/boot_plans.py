# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of boots: written with what a rehearsal placed, judged before they are used."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.instances.request import ServerRequest
from ...module_utils.core.plans.plan_file import Plan
from ...module_utils.core.plans.plan_states import BOOT
from ...module_utils.core.settings.plans import PLANS
from ...module_utils.flows.boot import accept, builds
from ...module_utils.flows.plans import held
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ..run import host_settings
from ..run.ledger_action import LedgerAction
from ..scheduling import boot_fleet
from ..settings import host_reports, scheduler_settings
from . import chosen, files

Result = t.TypeVar("Result")


def checked(action: LedgerAction, ledger: Ledger, usable: t.Sequence[str]) -> chosen.Chosen | None:
    """Return the plan that this boot uses, which would still do; None: it uses none.

    :arg usable: the hosts that this run may place instances on.
    :raises PlanOutdated: the plan would not do any more.
    """
    plan = chosen.of_run(action, ledger, BOOT)
    if plan is None:
        return None
    reports = host_reports.of_this_run(action) if action.check_mode else {}
    configurations = scheduler_settings.configurations(action)
    wanted = {str(i["host"]) for i in plan.plan["instances"]}
    read_fleet = boot_fleet.reader(action, [h for h in usable if h in wanted])
    options = scheduler_settings.scheduler_options(action, action.context().now, explain=True)

    def check(tx: Transaction) -> None:
        host_reports.rehearse(tx, reports, configurations)
        held.check_hosts(tx, plan.plan, set(usable), read_fleet, options)

    ledger.rehearsal(check)
    return plan


class Writing:
    """The plan that a boot in check mode writes (bootflow_plan_out).

    :raises PlanNotPossible: the request has volumes
    """

    def __init__(self, action: LedgerAction, path: str, with_volumes: bool):
        if with_volumes:
            raise errors.PlanNotPossible(
                reason="the request has volumes",
                remedy="Boot without them, and attach them with bootflow.compute.attach_volume.",
            )
        self.action = action
        self.path = path
        self.plan: Plan | None = None

    def hold(
        self,
        tx: Transaction,
        entries: t.Sequence[ServerRequest],
        accepted: accept.Accepted,
        placed: t.Sequence[builds.Build],
        ledger_id: str,
    ) -> None:
        """Hold what the transaction has placed. :raises PlanNotPossible: the boot does more than a plan can"""
        held.check_holdable(tx, accepted)
        seconds = host_settings.values(self.action, PLANS).plan_ttl
        self.plan = held.hold(tx, BOOT, entries, placed, seconds, ledger_id)

    def write(self, ledger: Ledger) -> dict[str, t.Any]:
        """Write the file, after the COMMIT. Returns {id, file, hash, expires}. :raises PlanNotWritable: nothing is held then"""
        plan = t.cast(Plan, self.plan)
        try:
            files.write(self.path, plan)
        except errors.PlanNotWritable:
            ledger.transact(held.discard, [plan["id"]])
            raise
        return {"id": plan["id"], "file": self.path, "hash": plan["hash"], "expires": plan["expires"]}

    def line(self) -> str:
        """Return a line for people."""
        plan = t.cast(Plan, self.plan)
        return "The plan %s holds these places until %s: boot with bootflow_plan=%s." % (
            plan["id"], plan["expires"], self.path,
        )  # fmt: skip
