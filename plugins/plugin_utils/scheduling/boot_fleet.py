# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts that a boot may place instances on, as its scheduler reads them."""

from __future__ import annotations

import typing as t

from ...module_utils.core.scheduler.columns import Fleet
from ...module_utils.ledger.compute import fleet
from ...module_utils.ledger.db.transaction import Transaction
from ..run.ledger_action import LedgerAction
from ..settings import host_reports, scheduler_settings


def reader(action: LedgerAction, hosts: t.Sequence[str]) -> t.Callable[..., Fleet]:
    """Return a function that reads these hosts of the inventory in a transaction, for the needs of the scheduler."""
    silent = {host: error["message"] for host, error in host_reports.silences(action).items()}
    aggregates, host_vars = scheduler_settings.aggregates_of(action), scheduler_settings.vars_for_filters(action)

    def read(
        tx: Transaction,
        needs: fleet.Needs,
        configurations: t.Mapping[str, t.Mapping[str, t.Any]] | None = None,
    ) -> Fleet:
        return fleet.read(tx, hosts, aggregates, host_vars, needs, configurations, silent)

    return read
