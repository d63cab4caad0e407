# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Data that the tasks of the playbook apply hand to each other."""

from __future__ import annotations

import typing as t

from ...module_utils.core.request.catalogue import Catalogue
from ...module_utils.flows.instances import delete
from ...module_utils.flows.instances.operation import Selection
from ...module_utils.flows.moves import cold
from ...module_utils.flows.moves.place import ReadFleet
from ...module_utils.ledger.db.transaction import Transaction
from ..run.ledger_action import CONTROLLER, LedgerAction
from . import resize_settings, scheduler_settings

# As the playbook registers the tasks of its action.
PLANNED, BEGUN = "bootflow_apply_planned", "bootflow_apply_begun"


def registered(action: LedgerAction, name: str) -> t.Mapping[str, t.Any]:
    """Return the earlier result of a task on the controller."""
    return t.cast("t.Mapping[str, t.Any]", action.task_vars["hostvars"][CONTROLLER].get(name) or {})


def rehearse_deletions(action: LedgerAction, tx: Transaction) -> None:
    """Check mode: what the plan deletes before the boot has no names, quota or room any more."""
    delete.rehearse(tx, registered(action, PLANNED).get("delete") or [])


def rehearse_resizes(action: LedgerAction, tx: Transaction, catalogue: Catalogue, read_fleet: ReadFleet) -> None:
    """Check mode: what the plan resizes before the boot is on its new hosts, with its new flavors."""
    planned = registered(action, PLANNED).get("resize") or {}
    if planned:
        flavors = {uuid: catalogue.flavor(name) for uuid, name in planned.items()}
        wanted = resize_settings.wanted(
            action, Selection(uuids=sorted(planned)), catalogue.pci_aliases, flavors=flavors
        )
        options = scheduler_settings.scheduler_options(action, tx.now)
        cold.rehearse(tx, wanted, read_fleet, options)
