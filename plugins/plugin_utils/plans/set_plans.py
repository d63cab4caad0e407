# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a run has a plan. In a playbook of several steps the first one has used or written it, and the others find it here."""

from __future__ import annotations

import typing as t

from ...module_utils.core.settings.plans import PLANS
from ..run import host_settings
from ..run.ledger_action import LedgerAction
from ..run.stage_results import CONTROLLER, StageResults

#: The stages that use and write plans, as (family, stage). Their results have {plan: its id, places: uuid -> host}.
FIRST = (("instance_drain", "begin"), ("instance_apply", "plan"))


def is_set(action: LedgerAction) -> bool:
    """Return whether the run uses or writes a plan."""
    settings = host_settings.values(action, PLANS)
    return settings.plan is not None or settings.plan_out is not None


def places_of_plan(action: LedgerAction) -> dict[str, str] | None:
    """Return uuid -> the host that the plan of this run holds for the instance; None: no earlier step of this run has a plan."""
    for family, stage in FIRST:
        result = StageResults(action, family).read(stage, CONTROLLER) or {}
        if result.get("plan"):
            return t.cast("dict[str, str]", result["places"])
    return None
