# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of the ledger with the settings that the inventory has now, for questions to the scheduler."""

from __future__ import annotations

import typing as t

from ...module_utils.core.scheduler.columns import Fleet
from ...module_utils.core.scheduler.options import SchedulerOptions
from ...module_utils.flows.boot import whatif
from ...module_utils.ledger.compute import fleet
from ...module_utils.ledger.db.transaction import Transaction
from ..run.ledger_action import LedgerAction
from ..settings import scheduler_settings


def reader(action: LedgerAction, usable: t.Sequence[str]) -> tuple[whatif.ReadFleet, SchedulerOptions]:
    """Return the function that reads the ``usable`` hosts, and the options of the scheduler. All settings are read now, before a transaction."""
    configurations = scheduler_settings.configurations(action)
    aggregates, host_vars = scheduler_settings.aggregates_of(action), scheduler_settings.vars_for_filters(action)

    def read_fleet(tx: Transaction, needs: fleet.Needs) -> Fleet:
        return whatif.as_configured(tx, fleet.read(tx, usable, aggregates, host_vars, needs), configurations)

    return read_fleet, scheduler_settings.scheduler_options(action, action.context().now, explain=True)
