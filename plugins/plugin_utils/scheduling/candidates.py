# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts that instances may be moved to, as the scheduler gets them."""

from __future__ import annotations

import typing as t

from ...module_utils.core.scheduler.columns import Fleet
from ...module_utils.ledger.compute import cleanups, fleet, nodes
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ..run import host_settings
from ..run.ledger_action import LedgerAction
from ..settings import host_reports, scheduler_settings


def hosts_to_ask(action: LedgerAction, ledger: Ledger, away: t.Collection[str] = ()) -> list[str]:
    """The hosts that should report before hosts are chosen. The ledger gets the settings of the inventory's hosts, but not in check mode.

    :arg away: hosts that are not asked
    """
    configurations = scheduler_settings.configurations(action)
    if not action.check_mode and ledger.inspect(nodes.differing, configurations):
        ledger.transact(nodes.configure, configurations)
    hosts = [h for h in action.hosts_to_use() if h not in away]
    return ledger.inspect(stale_hosts, hosts, host_settings.facts_age(action.options))


def stale_hosts(tx: Transaction, hosts: t.Sequence[str], age: float) -> list[str]:
    """Return the hosts of these that should report before hosts are chosen. :arg age: see host_settings.facts_age()"""
    to_clean = cleanups.hosts(tx)
    stale = nodes.stale_hosts(tx, hosts, age)
    return stale + [h for h in hosts if h in to_clean and h not in stale]


class Candidates:
    """The hosts that the scheduler chooses from. What the inventory says of them is read before the transaction, for which others wait."""

    def __init__(self, action: LedgerAction):
        self.options = scheduler_settings.scheduler_options(action, action.context().now)
        self._hosts = action.hosts_to_use()
        self._aggregates = scheduler_settings.aggregates_of(action)
        self._variables = scheduler_settings.vars_for_filters(action)
        self._configurations = scheduler_settings.configurations(action) if action.check_mode else {}
        self._reports = host_reports.of_this_run(action) if action.check_mode else {}
        self._rehearses = action.check_mode

    def rehearse(self, tx: Transaction) -> None:
        """Check mode: what hosts reported is in the ledger, until ``tx`` is rolled back."""
        if self._rehearses:
            host_reports.rehearse(tx, self._reports, self._configurations)

    def read(self, tx: Transaction, needs: fleet.Needs) -> Fleet:
        return fleet.read(tx, self._hosts, self._aggregates, self._variables, needs)
