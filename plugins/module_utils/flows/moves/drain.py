# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The drain of a host that is to be serviced: which instances leave it, which stay and why, and which of its moves are confirmed.

source: Nova's os-services (disable) and the client's host-servers-migrate
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.instances import moves, states
from ...ledger.compute import cleanups, instances, nodes, service_state
from ...ledger.compute import moves as ledger_moves
from ...ledger.compute.instances import Instance
from ...ledger.compute.moves import MoveRow
from ...ledger.db.transaction import Transaction
from ..instances import operation
from . import cold, live
from .confirm import SURE, is_reported, silent_hosts
from .place import Mover

REASON = "drained"


@dataclass
class Drained:
    """The instances of a host that is drained."""

    disabled: bool = False  # by this: the host was enabled before
    live: list[Instance] = field(default_factory=list)  # can be live-migrated
    leaves: list[Instance] = field(default_factory=list)  # can be migrated while they are off
    stays: dict[str, errors.BootflowError] = field(default_factory=dict)  # uuid -> why it cannot be migrated
    rows: dict[str, Instance] = field(default_factory=dict)  # of all instances of the host
    movers: dict[str, Mover] = field(default_factory=dict)  # uuid -> the instance that leaves, as the scheduler gets it


def begin(tx: Transaction, host: str, wanted: cold.Wanted, running: live.Wanted | None = None) -> Drained:
    """Disable ``host``, and sort its instances by how they can be migrated.

    :arg wanted: a cold migration of the host's instances. :arg running: a live migration of them; None: no guest is to be live-migrated.
    :raises ComputeHostNotFound: the ledger does not know the host.
    """
    disabled = disable(tx, host, REASON)
    drained = sort_out(tx, instances.select_live(tx, hosts=[host]), wanted, running)
    return replace(drained, disabled=disabled)


def disable(tx: Transaction, host: str, reason: str) -> bool:
    """Give ``host`` no new instances. Returns whether it was enabled; a disabled one keeps its reason.

    :raises ComputeHostNotFound: the ledger does not know the host.
    """
    return _takes_instances(tx, host) and bool(service_state.set_state(tx, [host], service_state.DISABLED, reason))


def sort_out(
    tx: Transaction, rows: t.Sequence[Instance], wanted: cold.Wanted, running: live.Wanted | None = None
) -> Drained:
    """Sort instances by how they can be migrated. See begin() for the arguments."""
    moving = live.sort_out(tx, running, rows)[0] if running is not None else {}
    others = [r for r in rows if r.uuid not in moving]
    movers, refused = cold.sort_out(tx, wanted, others)
    return Drained(
        live=[r for r in rows if r.uuid in moving],
        leaves=[r for r in others if r.uuid in movers],
        stays=refused,
        rows={r.uuid: r for r in rows},
        movers={**moving, **movers},
    )


def _takes_instances(tx: Transaction, host: str) -> bool:
    """Return whether the host is enabled. A disabled one keeps its reason, and set_state() refuses an unknown one."""
    states_by_host = service_state.states_of(tx, [host])
    return host not in states_by_host or not states_by_host[host]["disabled"]


def hosts_to_ask(tx: Transaction, host: str) -> list[str]:
    """Return the destinations of earlier runs' migrations away from ``host`` that have not reported lately. A host that died since then has nothing to
    confirm.
    """
    open_moves = {m.instance_uuid: m for m in ledger_moves.open_from(tx, host) if m.run_id != tx.run.id}
    rows = instances.select_live(tx, uuids=sorted(open_moves)) if open_moves else []
    hosts = {str(r.host) for r in rows if is_confirmable(r, open_moves[r.uuid])} - nodes.forced_down(tx)
    return nodes.stale_hosts(tx, sorted(hosts), SURE)


def to_confirm(tx: Transaction, host: str) -> list[str]:
    """Return the instances whose cold migrations away from ``host`` are to be confirmed, of earlier runs, too: no instance can return to a host that is
    serviced. A resize, a guest that should run and does not, and an instance on a host that does not answer wait for their owners. An instance that
    another user locked does not stop the others.
    """
    open_moves = {m.instance_uuid: m for m in ledger_moves.open_from(tx, host)}
    rows = instances.select_live(tx, uuids=sorted(open_moves)) if open_moves else []
    silent = silent_hosts(tx) if rows else set()
    unlocked = [r for r in rows if r.host not in silent and not operation.is_locked(tx, r)]
    return [r.uuid for r in unlocked if is_confirmable(r, open_moves[r.uuid])]


def is_confirmable(row: Instance, move: MoveRow) -> bool:
    """Return whether a cold migration waits to be confirmed, and its guest has the power state that it had before."""
    waiting = (states.RESIZED, None, moves.MIGRATION, moves.FINISHED)
    if (row.vm_state, row.task_state, move.migration_type, move.status) != waiting:
        return False
    return row.power_state == states.RUNNING or (move.old_vm_state != states.ACTIVE and is_reported(row))


def remaining_instances(tx: Transaction, host: str) -> dict[str, tuple[Instance, errors.BootflowError | None]]:
    """Return uuid -> (the instance that still has something on the host, why; None: another part of the result says why)."""
    remaining: dict[str, tuple[Instance, errors.BootflowError | None]] = {
        r.uuid: (r, None) for r in instances.select_live(tx, hosts=[host])
    }
    waiting = sorted({m.instance_uuid for m in ledger_moves.open_from(tx, host)} - set(remaining))
    for row in instances.select_live(tx, uuids=waiting) if waiting else ():
        undecided = errors.InstanceInvalidState(
            message="Instance %s went to %s, and its move is not decided" % (row.uuid, row.host),
            remedy="Check that the instance works there, then run bootflow.compute.confirm_resize; or run bootflow.compute.revert_resize.",
        )
        remaining[row.uuid] = (row, operation.locked_error(row) if operation.is_locked(tx, row) else undecided)
    due = {c.instance_uuid for c in cleanups.of_host(tx, host)} - set(remaining)
    for row in instances.select_live(tx, uuids=sorted(due)) if due else ():
        unclean = errors.RemoteError(
            reason="%s is not cleaned of instance %s yet" % (host, row.uuid),
            remedy="bootflow.compute.heartbeat, or any report of the host, does it.",
        )
        remaining[row.uuid] = (row, unclean)
    return remaining
