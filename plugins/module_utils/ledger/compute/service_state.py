# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of hosts set by people: no new instances, or down under any report. Kept in addition to the inventory's.

source: Nova's os-services: enable, disable, disable-log-reason, force-down
"""

from __future__ import annotations

import typing as t

from ...core import errors
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..fast import bulk
from ..schema.tables import compute_nodes
from .nodes import NodeRow, lock

ENABLED = "enabled"
DISABLED = "disabled"
FORCED_DOWN = "forced_down"
UP = "up"
DELETED = "deleted"  # the ledger forgets it
STATES = (ENABLED, DISABLED, FORCED_DOWN, UP, DELETED)

MOST_REASON = 255

#: state -> (column, value, column of the reason)
_COLUMNS = {
    ENABLED: ("service_disabled", False, "service_disabled_reason"),
    DISABLED: ("service_disabled", True, "service_disabled_reason"),
    FORCED_DOWN: ("forced_down", True, "forced_down_reason"),
    UP: ("forced_down", False, "forced_down_reason"),
}


def set_state(tx: Transaction, hosts: t.Sequence[str], state: str, reason: str = "") -> list[dict[str, t.Any]]:
    """Set the ``state`` of ``hosts``. Disabled and forced down are independent: a host may be both, and each has its own state
    to end it. Nothing is written for those to be deleted.

    Returns the changes: [{host, what, from, to}], empty if all hosts were already in the state.

    :raises InvalidInput: an unknown state; a reason for a state without one, or one that is too long.
    :raises ComputeHostNotFound: an unknown host. Nothing was written then.
    """
    reason = reason.strip()
    if state not in STATES:
        raise errors.InvalidInput(
            reason="bootflow_host_state is %r" % state, remedy="Give one of: %s." % ", ".join(STATES)
        )
    if len(reason) > MOST_REASON or "\0" in reason:
        raise errors.InvalidInput(
            reason="bootflow_host_reason has %d characters" % len(reason),
            remedy="Give at most %d, in words." % MOST_REASON,
        )
    if reason and state in (ENABLED, UP, DELETED):
        raise errors.InvalidInput(
            reason="a host that is %s has no reason" % state,
            remedy="Leave bootflow_host_reason out, or give the state disabled or forced_down.",
        )
    if not hosts:
        raise errors.InvalidInput(reason="bootflow_host contains no host", remedy="Give a compute host.")
    c = compute_nodes.c
    if state == DELETED:  # only looked for
        known_hosts = set(tx.execute(sa.select(c.host).where(bulk.among(tx, c.host, sorted(set(hosts))))).scalars())
        _refuse_unknown(set(hosts) - known_hosts)
        return [{"host": h, "what": "host", "from": h, "to": None} for h in sorted(known_hosts)]
    column, value, reason_column = _COLUMNS[state]
    wanted = sorted(set(hosts))
    named = bulk.among(tx, c.host, wanted)
    lock(tx, tx.execute(sa.select(c.id).where(named)).scalars().all())
    query = sa.select(c.id, c.host, c[column], c[reason_column]).where(named).order_by(c.id)
    rows = tx.rows(query, NodeRow)  # with these columns only
    _refuse_unknown(set(wanted) - {r.host for r in rows})
    changed: dict[tuple[str, str], dict[str, t.Any]] = {}
    for row in rows:
        values = {column: value, reason_column: reason}
        before = {column: bool(getattr(row, column)), reason_column: getattr(row, reason_column)}
        if before == values:
            continue
        tx.execute(compute_nodes.update().where(c.id == row.id).values(**values))
        for what in values:
            if before[what] != values[what]:
                changed[row.host, what] = {"host": row.host, "what": what, "from": before[what], "to": values[what]}
    return list(changed.values())


def _refuse_unknown(unknown: t.Collection[str]) -> None:
    if unknown:
        raise errors.ComputeHostNotFound(
            host=", ".join(sorted(unknown)),
            remedy="Name a host of the inventory that has reported; the playbook heartbeat lets all report.",
        )


def states_of(tx: Transaction, hosts: t.Sequence[str]) -> dict[str, dict[str, t.Any]]:
    """host -> its current {disabled, disabled_reason, forced_down, forced_down_reason, by_inventory}."""
    c = compute_nodes.c
    query = sa.select(compute_nodes).where(bulk.among(tx, c.host, sorted(set(hosts)))).order_by(c.id)
    return {
        r.host: {
            "disabled": bool(r.disabled or r.service_disabled),
            "disabled_reason": (r.service_disabled_reason if r.service_disabled else "") or r.disabled_reason,
            "forced_down": bool(r.forced_down),
            "forced_down_reason": r.forced_down_reason,
            "by_inventory": bool(r.disabled),
        }
        for r in tx.rows(query, NodeRow)
    }
