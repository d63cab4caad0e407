# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results that the tasks of the playbook apply leave for each other."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...module_utils.core.request.catalogue import Catalogue
from ...module_utils.flows.instances import delete
from ...module_utils.flows.instances.operation import Selection
from ...module_utils.flows.moves import cold
from ...module_utils.flows.moves.place import ReadFleet
from ...module_utils.ledger.db.transaction import Transaction
from ..run.ledger_action import LedgerAction
from ..run.stage_results import CONTROLLER, StageResults
from . import resize_settings, scheduler_settings

PLAN, BEGIN = "plan", "begin"  # stages of apply
OF_BOOTS = ("name", "uuid", "host", "error")  # fields of the plan of a boot


def result_of(action: LedgerAction, stage: str) -> t.Mapping[str, t.Any]:
    """Return the result of a stage of apply; empty if this run applies no file."""
    result = StageResults(action, "instance_apply").read(stage, CONTROLLER)
    return t.cast("t.Mapping[str, t.Any]", result or {})


def leave_boots(action: LedgerAction, plan: t.Iterable[t.Mapping[str, t.Any]]) -> None:
    """Check mode: leave the hosts of the boots for the plan of the file."""
    boots = [{name: boot[name] for name in OF_BOOTS} for boot in plan]
    StageResults(action, "instance_apply").leave("boots", CONTROLLER, {"boots": boots})


def rehearse_deletions(action: LedgerAction, tx: Transaction) -> None:
    """Check mode: what the plan deletes before the boot has no names, quota or room any more."""
    delete.rehearse(tx, result_of(action, PLAN).get("delete") or [])


def take_planned(action: LedgerAction, tx: Transaction) -> None:
    """Check mode: the builds that the plan of this run holds are its own, until ``tx`` is rolled back."""
    plan_id = result_of(action, PLAN).get("plan")
    if plan_id is not None:
        from ...module_utils.flows.plans import held_applies  # of few runs

        held_applies.take(tx, plan_id)


def rehearse_resizes(action: LedgerAction, tx: Transaction, catalogue: Catalogue, read_fleet: ReadFleet) -> None:
    """Check mode: what the plan resizes before the boot is on its new hosts, with its new flavors."""
    planned = result_of(action, PLAN).get("resize") or {}
    if planned:
        flavors = {uuid: catalogue.flavor(name) for uuid, name in planned.items()}
        wanted = resize_settings.wanted(
            action, Selection(uuids=sorted(planned)), catalogue.pci_aliases, flavors=flavors
        )
        wanted = replace(wanted, to_hosts=result_of(action, PLAN).get("places") or {})
        options = scheduler_settings.scheduler_options(action, tx.now)
        cold.rehearse(tx, wanted, read_fleet, options)
