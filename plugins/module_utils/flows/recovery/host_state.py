# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The states that people give to compute hosts, and what follows from them."""

from __future__ import annotations

import typing as t

from ...core import errors
from ...ledger.compute import cleanups, instances, moves, nodes, service_state
from ...ledger.db.transaction import Transaction
from ..attachments import life
from ..instances import cleanup
from ..instances.operation import some


def set_state(tx: Transaction, hosts: t.Sequence[str], state: str, reason: str) -> list[dict[str, t.Any]]:
    """Give these hosts a state. The volumes of instances that were deleted on hosts that are forced down become free.

    Returns and raises what ledger.compute.service_state.set_state() does.

    :raises ComputeServiceInUse, Conflict: of one that is to be deleted; see _delete(). :raises Conflict: the machine of one that is to be forced
        down, with instances, answers under another name.
    """
    if state == service_state.DELETED:
        return _delete(tx, sorted(set(hosts)), service_state.set_state(tx, hosts, state, reason))
    if state == service_state.FORCED_DOWN:
        _refuse_renamed(tx, hosts)
        life.cut_off_ended(tx, hosts)
    return service_state.set_state(tx, hosts, state, reason)


def _refuse_renamed(tx: Transaction, hosts: t.Collection[str]) -> None:
    """An evacuation would run their guests twice. :raises Conflict: the machine of one with instances answers under another name."""
    named = nodes.other_names(tx, hosts)
    placed = {str(r.host) for r in instances.powers(tx, hosts=named)} if named else set()
    for host in sorted(placed):
        raise errors.Conflict(
            message="%s cannot be forced down: its machine answers as %s, and its guests may run there"
            % (host, named[host]),
            remedy="Name the machine %s in the inventory again, instead of %s." % (host, named[host]),
        )


def _delete(tx: Transaction, hosts: t.Sequence[str], changes: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """The machines are gone for good: the ledger forgets the hosts, and with them what they were still to be cleaned of.

    :raises ComputeServiceInUse: one is not forced down. :raises Conflict: one has instances, or a move from or to it is not decided.
    source: Nova's os-services (delete)
    """
    instances.select_live(tx, hosts=hosts, lock=True)
    life.cut_off_ended(tx, hosts)
    cleanup.finish(tx, {host: [c.instance_uuid for c in cleanups.of_host(tx, host)] for host in hosts})
    nodes.lock_hosts(tx, hosts)
    rows = instances.select_live(tx, hosts=hosts)  # again: a boot or a move may have claimed there until now
    down = nodes.forced_down(tx)
    for host in hosts:
        if host not in down:
            raise errors.ComputeServiceInUse(host=host)
        named = sorted(r.display_name for r in rows if r.host == host)
        if named:
            text = "%s cannot be deleted: the ledger has instances there (%s)"
            raise errors.Conflict(
                message=text % (host, some(named)),
                remedy="Evacuate them, or delete them with bootflow_delete_force: true.",
            )
    for move in moves.open_between(tx, hosts):
        host = move.source_compute if move.source_compute in hosts else move.dest_compute
        raise errors.Conflict(
            message="%s cannot be deleted: a move of instance %s is not decided" % (host, move.instance_uuid),
            remedy="bootflow.compute.confirm_resize or bootflow.compute.revert_resize decides it, bootflow.compute.audit what a dead run left.",
        )
    nodes.forget(tx, hosts)
    return changes
