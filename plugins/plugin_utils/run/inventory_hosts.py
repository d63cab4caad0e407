# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts of the ledger that the inventory has: plays reach no other."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from .ledger_action import LedgerAction


def all_of(action: LedgerAction) -> set[str]:
    """All of its hosts."""
    return set((action.task_vars.get("groups") or {}).get("all", []))


def reachable(action: LedgerAction, hosts: t.Iterable[str]) -> list[str]:
    """Return the ``hosts`` that the inventory has."""
    inventory_names = all_of(action)
    return [h for h in hosts if h in inventory_names]


def in_inventory(action: LedgerAction, hosts: t.Iterable[str]) -> list[str]:
    """``hosts``, which all have to be in the inventory, and within the limit of the run. Called in the transaction that gives them work, to
    roll it back.

    :raises DriverNotInitialized: one is not in the inventory. :raises InvalidInput: the limit leaves out one.
    """
    wanted = list(hosts)
    strangers = sorted(set(wanted) - set(reachable(action, wanted)))
    if strangers:
        raise errors.DriverNotInitialized(
            message="%s %s not in the inventory" % (", ".join(strangers), "is" if len(strangers) == 1 else "are"),
            remedy="Put the missing hosts back into the inventory and rerun the playbook; their work is still recorded.",
        )
    refuse_left_out(wanted, action.within_limit(wanted))
    return wanted


def refuse_left_out(hosts: t.Iterable[str], within: t.Collection[str]) -> None:
    """Refuse to give work to ``hosts`` that the limit leaves out. Called in the transaction to roll back. :arg within: hosts within the limit

    :raises InvalidInput: the limit leaves out one: Ansible would skip its tasks, and nothing would be done there.
    """
    left_out = sorted(set(hosts) - set(within))
    if left_out:
        raise errors.InvalidInput(
            message="the limit of this run leaves out %s, where something is to be done" % ", ".join(left_out),
            remedy="Add these hosts to the limit, or run it without one; bootflow_host selects the instances of some hosts.",
        )
