# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan that a run uses, or writes: bootflow_plan and bootflow_plan_out."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ...module_utils.core import errors
from ...module_utils.core.plans import plan_file
from ...module_utils.core.plans.plan_file import Plan
from ...module_utils.core.plans.plan_states import APPLY, DRAIN, HELD_KINDS
from ...module_utils.core.settings.plans import PLANS
from ...module_utils.core.settings.run import RUN
from ...module_utils.flows.plans import held
from ...module_utils.ledger.compute import nodes
from ...module_utils.ledger.database import Ledger
from ..run import host_settings
from ..run.ledger_action import LedgerAction
from ..run.playbooks import playbook_of_this_run
from . import files, set_plans

#: Playbooks that plan in their first step, after which hosts report no more.
PLAN_FIRST = (DRAIN, APPLY)


class Chosen(t.NamedTuple):
    """The plan that a run uses, and the path of its file."""

    plan: Plan
    file: str


def refuse(action: LedgerAction, playbook: str) -> None:
    """Refuse the variables in a playbook that would ignore them. :raises PlanNotTaken: one is set"""
    settings = host_settings.values(action, PLANS)
    for name in ("plan", "plan_out"):
        if getattr(settings, name) is not None:
            raise errors.PlanNotTaken(playbook="bootflow.compute.%s" % playbook, variable=name)


def begin(action: LedgerAction) -> None:
    """Check the variables, in the first task of a playbook.

    :raises PlanNotTaken: the playbook on the command line neither writes nor uses plans.
    :raises InvalidInput: both are set, or a plan is to be written without --check; or the file cannot be written, or is not a plan.
    """
    if set_plans.places_of_plan(action) is not None:  # the first step of the playbook has checked them
        return
    settings = host_settings.values(action, PLANS)
    named = playbook_of_this_run.was_named(playbook_of_this_run.playbooks())
    playbook = playbook_of_this_run.own_name(named) or Path(named).stem
    if named and playbook not in HELD_KINDS:
        refuse(action, playbook)
    if settings.plan is not None and settings.plan_out is not None:
        raise errors.InvalidInput(
            message="bootflow_plan and bootflow_plan_out are both set",
            remedy="Write a plan, then use it in another run.",
        )
    if settings.plan_out is not None:
        if not action.check_mode:
            raise errors.InvalidInput(
                message="bootflow_plan_out is set without --check",
                remedy="Add --check, which plans and builds nothing; or leave bootflow_plan_out out.",
            )
        files.check_new(settings.plan_out)
    if settings.plan is not None:
        files.read(settings.plan)


def of_run(action: LedgerAction, ledger: Ledger, kind: str) -> Chosen | None:
    """Return the plan that this run uses, which holds its places; None: it uses none.

    :raises BootflowError: the plan cannot be used, see plan_file and held.check_held().
    """
    path = host_settings.values(action, PLANS).plan
    if path is None:
        return None
    plan = files.read(path)
    plan_file.check_use(plan, path, kind, ledger.id)
    ledger.inspect(held.check_held, plan, path)
    return Chosen(plan, path)


def hosts_to_ask(action: LedgerAction, ledger: Ledger) -> list[str]:
    """Return the hosts of the plan that this run uses: they report before it is judged. Where a drain or apply writes one, the hosts that have not lately.

    :raises BootflowError: see of_run()
    """
    settings = host_settings.values(action, PLANS)
    if set_plans.places_of_plan(action) is not None:
        return []
    path = settings.plan
    if path is None:
        return _stale(action, ledger) if playbook_of_this_run.playbook_of(action._task) in PLAN_FIRST else []
    # What a playbook of the user imports is only known where the plan is used, which checks that it is of this kind.
    named = playbook_of_this_run.was_named(playbook_of_this_run.playbooks())
    playbook = playbook_of_this_run.own_name(named) or Path(named).stem
    chosen = of_run(action, ledger, playbook if playbook in HELD_KINDS else files.read(path)["kind"])
    of_plan = chosen.plan["instances"] if chosen is not None else []
    wanted = {i[end] for i in of_plan for end in ("host", "from") if end in i}
    return [h for h in action.within_limit(action.compute_hosts()) if h in wanted]


def _stale(action: LedgerAction, ledger: Ledger) -> list[str]:
    age = host_settings.values(action, RUN).facts_max_age
    return ledger.inspect(nodes.stale_hosts, action.within_limit(action.compute_hosts()), age)


def give_back(action: LedgerAction, plan_id: str) -> None:
    """Give back what a used plan still holds for instances that exist: they did not begin to move."""
    action.open_ledger().transact(held.give_places_back, plan_id)
