# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rescues whose hosts gave no answer, settled by the reports of these hosts: an instance whose domain is that of a rescue is rescued.

It was left as what it was before, and so it could be stopped and started with the disk of the rescue, but not be brought back.
"""

from __future__ import annotations

import typing as t

from ...core.instances import states
from ...ledger.compute import history, instances, runs
from ...ledger.db.transaction import Transaction
from ..instances import operation
from ..instances.operations import OPERATIONS

RESCUE = OPERATIONS["rescue"]
#: What a rescue begins in.
_BEFORE = RESCUE.rule.vm_states or frozenset()


def settle(
    tx: Transaction, host: str, rescued: t.Collection[str], power_states: t.Mapping[str, int], asked_at: float
) -> dict[str, str]:
    """Settle the rescues that came about on ``host`` and were not heard of. Returns uuid -> its vm_state now.

    :arg rescued: uuids of guests whose domains are those of a rescue. :arg asked_at: when the host was asked: rows written after that are left alone.
    """
    if not rescued:
        return {}
    runs.renew(tx)
    known = instances.powers(tx, uuids=rescued)
    found = [
        r for r in known if (r.host, r.task_state) == (host, None) and r.vm_state in _BEFORE and r.updated_at < asked_at
    ]
    if not found:
        return {}
    rows = instances.select_live(tx, uuids=[r.uuid for r in found])
    noted = history.last_details(
        tx, [r.uuid for r in rows], RESCUE.name
    )  # the image, by which the same rescue has nothing to do
    for row in rows:
        power_state = power_states.get(row.uuid, states.NOSTATE)
        values = {"vm_state": states.RESCUED, "power_state": power_state, **RESCUE.ends(tx.now)}
        instances.swap(tx, [row.uuid], [None], None, tx.context.notify_on_state_change, **values)
        history.start_actions(tx, [row.uuid], RESCUE.action, tx.request_id, row.project, tx.actor)
        history.add_events(tx, [(row.uuid, host)], RESCUE.name, history.SUCCESS, noted.get(row.uuid))
    operation.close(tx, RESCUE, {r.uuid: r.host for r in rows})
    return dict.fromkeys((r.uuid for r in rows), states.RESCUED)
