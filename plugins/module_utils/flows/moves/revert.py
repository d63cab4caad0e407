# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The beginning of a revert: which instances may return to their source hosts, with their former flavors. cold_life has what follows.

source: Nova's compute.api.API.revert_resize
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...core import errors
from ...core.instances import move_life, moves, states
from ...core.networks import on_hosts
from ...ledger.compute import history, nodes, ports, requests
from ...ledger.compute import moves as ledger_moves
from ...ledger.compute.instances import Instance
from ...ledger.db.locks import take_turns
from ...ledger.db.transaction import Transaction
from ...ledger.networks import security_groups
from ..attachments import moving as of_volumes
from ..instances import operation
from ..instances.operation import Selection
from .cold import check_flavor_quota
from .cold_life import REVERT, refuse_without_move, select_ended
from .moving_instance import MovingInstance


@dataclass
class Reverting:
    """The reverts that a run has begun, and the instances that are not reverted."""

    moving: list[MovingInstance]  # owned by this run
    unchanged: list[Instance]  # an earlier run has reverted them
    failed: dict[str, errors.BootflowError]  # uuid -> why it stays where it is
    rows: dict[str, Instance]  # of all selected instances


def former_hosts(tx: Transaction, selection: Selection) -> set[str]:
    """Return the source hosts to which a revert would bring the selected instances back. Writes nothing.

    A resize on an instance's own host has none.

    :raises InvalidInput: see operation.select().
    """
    rows = operation.select(tx, selection, lock=False)
    uuids = [r.uuid for r in rows if r.vm_state == states.RESIZED or r.task_state == states.RESIZE_FINISH]
    open_moves = ledger_moves.open_of(tx, uuids)
    return {m.source_compute for m in open_moves.values() if not ledger_moves.is_same_host_resize(m)}


def begin_revert(
    tx: Transaction,
    selection: Selection,
    known_hosts: t.Collection[str],
    limits: t.Mapping[str, t.Any] | None = None,
    silent: t.Mapping[str, errors.BootflowError] | None = None,
    inventory: t.Collection[str] | None = None,
    has: t.Mapping[str, t.Collection[str]] | None = None,
) -> Reverting:
    """Begin to revert the selected instances: all of them, or with an error none. An instance fails alone, and stays as it is, if its source host is
    ``silent``, or reports that it has nothing of the instance: the destination would be cleaned of its disks, and it could run nowhere.

    :arg limits: bootflow_quotas
    :arg silent: host -> why it does not answer
    :arg inventory: hosts that plays reach, the storage hosts among them; None: any host
    :arg has: host -> UUIDs of the instances that it reported in this run; hosts that did not report are not in it
    :raises BootflowError: see operation.begin(). :raises InvalidVolume, VolumeLocked: another run works on a volume of one of them.
    :raises MoveNotSupported: no play reaches the storage host of a volume.
    :raises OverQuota: the former flavor is larger, and exceeds the quota now.
    """
    if limits:  # take turns with other runs that add to the usage, before any row is locked
        take_turns(tx, "project", {r.project for r in operation.select(tx, selection, lock=False)})
    rows = operation.select(tx, selection)
    operation.refuse_unknown(tx, rows, selection, known_hosts)
    unchanged = select_ended(tx, rows, moves.REVERTED)
    to_revert = [r for r in rows if r not in unchanged]
    failed = {
        **_with_unfiltered_source(tx, to_revert),
        **_without_source_host(tx, to_revert, silent or {}, has or {}),
    }
    try:
        begun = operation.enter(tx, REVERT, [r for r in to_revert if r.uuid not in failed], known_hosts)
    except (
        errors.ComputeHostNotFound
    ) as e:  # the source host has all of the disks: deleting the instance would lose them
        e.remedy = "Put the host into the inventory. One that is lost and forced down need not answer."
        raise
    history.start_events_on(tx, {r.uuid: r.host for r in begun.rows}, REVERT.name)
    operation.refuse(list(of_volumes.refusals(tx, {r.uuid: r.host for r in begun.rows}, inventory=inventory).values()))
    of_volumes.adopt(tx, [r.uuid for r in begun.rows])
    open_moves = ledger_moves.open_of(tx, [r.uuid for r in begun.rows])
    refuse_without_move(begun.rows, open_moves, REVERT)
    moving = [MovingInstance(r, open_moves[r.uuid]) for r in begun.rows]
    specs = requests.specs(tx, {m.move.old_request_spec_id for m in moving}) if limits and moving else {}
    check_flavor_quota(tx, [(m.row, specs[m.move.old_request_spec_id].spec["flavor"]) for m in moving if specs], limits)
    ledger_moves.apply(tx, list(open_moves.values()), move_life.REVERT_BEGUN)
    return Reverting(moving, unchanged, failed, {r.uuid: r for r in rows})


def _with_unfiltered_source(tx: Transaction, rows: t.Sequence[Instance]) -> dict[str, errors.BootflowError]:
    """Return uuid -> the error of an instance with security groups whose source host filters no ports."""
    resized = [r.uuid for r in rows if r.vm_state == states.RESIZED]
    networks = ports.ports_of(tx, resized)
    by_hosts = [u for u in resized if on_hosts.filtered_by_hosts(vars(n) for _port, n in networks[u])]
    grouped = security_groups.instances_with_own(tx, by_hosts)
    sources = {u: m.source_compute for u, m in ledger_moves.open_of(tx, sorted(grouped)).items()}
    filtering = nodes.filtering_hosts(tx, set(sources.values()))
    return {u: errors.HostDoesNotFilter(host=host) for u, host in sources.items() if host not in filtering}


def _without_source_host(
    tx: Transaction,
    rows: t.Sequence[Instance],
    silent: t.Mapping[str, errors.BootflowError],
    has: t.Mapping[str, t.Collection[str]],
) -> dict[str, errors.BootflowError]:
    """Return uuid -> why the source host cannot take the instance back."""
    waiting = [r.uuid for r in rows if r.vm_state == states.RESIZED] if silent or has else []
    open_moves = ledger_moves.open_of(tx, waiting)
    failed = {u: silent[m.source_compute] for u, m in open_moves.items() if m.source_compute in silent}
    for uuid, move in open_moves.items():
        if uuid not in has.get(move.source_compute, (uuid,)):
            failed[uuid] = errors.InstanceInvalidState(
                message="Cannot '%s' instance %s: host %s, which it came from, has nothing of it"
                % (REVERT.called, uuid, move.source_compute),
                remedy="The ledger may have been restored from a backup, from before the move was confirmed. If the instance runs on %s, confirm it:"
                " bootflow.compute.confirm_resize." % move.dest_compute,
            )
    return failed
