# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The beginning of an evacuation: instances of hosts that are forced down are rebuilt from their images on other hosts. evacuate_life has the rest.

One transaction claims a destination for each instance and switches the instance to it. The source host owes a cleanup, and stays claimed until that is
done. Where the destination fails, the instance returns to the source host, as long as that still owes the cleanup.
source: Nova's API.evacuate, and ComputeManager.rebuild_instance with recreate
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.disks.stores.registry import SHARED
from ...core.instances import moves, states
from ...core.request.guest_data import GuestSecrets
from ...core.scheduler.options import SchedulerOptions
from ...core.volumes.attachment import NONE
from ...ledger.compute import claims, cleanups, history, instances, nodes
from ...ledger.compute import moves as ledger_moves
from ...ledger.compute.claims import Candidate
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments
from ..attachments import moving, swaps
from ..instances import elsewhere, operation
from ..instances.operation import Selection
from ..instances.rebuild import check_guest_data, check_same_guest_data
from .evacuate_life import EVACUATE
from .moving_instance import relocate
from .place import Mover, ReadFleet, claim


@dataclass(frozen=True)
class Wanted:
    """The evacuations that a run asks for."""

    selection: Selection
    secrets_of: t.Callable[[str, str], GuestSecrets | None] = lambda project, name: None  # as of a rebuild
    stored_secrets_of: t.Callable[[Transaction, t.Mapping[str, t.Any]], GuestSecrets | None] = lambda tx, digest: (
        None
    )  # as of a rebuild
    kept_in: str | None = None  # as of a rebuild
    inventory: t.Collection[str] | None = None  # hosts that plays reach, the storage hosts among them; None: any host
    # Host -> where its local disks are, of all hosts if one has them in a pool: the disks of its instances are there still.
    places: t.Mapping[str, str] = field(default_factory=dict)


@dataclass
class Begun:
    """The evacuations that a run has begun, and the instances that are not evacuated."""

    rows: list[Instance] = field(default_factory=list)  # on their destinations, owned by this run
    sources: dict[str, str] = field(default_factory=dict)  # uuid -> source host
    failed: dict[str, errors.BootflowError] = field(default_factory=dict)  # uuid -> why there is no host for it
    of_failed: dict[str, Instance] = field(default_factory=dict)
    unchanged: list[Instance] = field(default_factory=list)  # an earlier run has evacuated them
    # uuid -> its attachments that the source host may still use
    volumes: dict[str, list[str]] = field(default_factory=dict)
    made_for: dict[str, str] = field(default_factory=dict)  # uuid -> the mark of its move, see core.instances.move_mark


#: Refusals that do not stop the other instances of a host: nothing can be done about them while the host is away, or not at once.
_REFUSED_ALONE = (
    errors.InstanceInvalidState,
    errors.MoveNotSupported,
    errors.InstanceBusy,
    errors.GuestDataRequired,
    errors.GuestDataDiffers,
)
#: vm_states that only the host of the instance can change.
_OF_THE_HOST = (states.PAUSED, states.SUSPENDED, states.RESCUED, states.SOFT_DELETED)


def check(tx: Transaction, wanted: Wanted) -> list[Instance]:
    """Return the selected instances that can be evacuated. Writes nothing.

    :raises BootflowError: see begin().
    """
    rows = operation.select(tx, wanted.selection, lock=False)
    refused, unchanged = _sort_out(tx, wanted, rows)
    return [r for r in rows if r.uuid not in refused and r not in unchanged]


def begin(tx: Transaction, wanted: Wanted, read_fleet: ReadFleet, options: SchedulerOptions) -> Begun:
    """Begin to evacuate the selected instances: all of them, or with an error none. As in Nova, an instance without a valid host fails alone. So does an
    instance that cannot be evacuated, where the selection is by host and not by name.

    :raises ComputeServiceInUse: a host is not forced down. :raises BootflowError: see operation.begin().
    """
    rows = operation.select(tx, wanted.selection)
    refused, unchanged = _sort_out(tx, wanted, rows)
    to_evacuate = [r for r in rows if r.uuid not in refused and r not in unchanged]
    operation.start(tx, EVACUATE, to_evacuate)
    history.start_events_on(tx, {r.uuid: r.host for r in to_evacuate}, EVACUATE.name)
    movers = {
        r.uuid: Mover(r, r.spec, _without_its_disks(r.host, wanted.places))
        for r in to_evacuate
        if instances.is_placed(r)
    }
    attachments.lock(tx, movers)  # before any node is locked
    adopted = moving.adopt(tx, list(movers))
    hosts = claim(tx, list(movers.values()), read_fleet, options, kind=claims.BUILD)
    begun = Begun(sources={u: m.row.host for u, m in movers.items()}, unchanged=unchanged)
    begun.failed = {u: h for u, h in hosts.items() if isinstance(h, errors.BootflowError)}
    begun.of_failed = {u: movers[u].row for u in begun.failed} | {r.uuid: r for r in rows if r.uuid in refused}
    moving.release_moved(tx, begun.failed)
    swaps.keep_old(tx, sorted(set(movers) - set(begun.failed)), nodes.forced_down(tx))
    for attachment in [a for a in adopted if a.instance_uuid not in begun.failed]:
        begun.volumes.setdefault(attachment.instance_uuid, []).extend(
            [attachment.id] if attachment.connection != NONE else []
        )
    moving.cut_off(tx, set(movers) - set(begun.failed))
    operation.finish(tx, EVACUATE, {u: operation.Outcome(error=e) for u, e in begun.failed.items()})
    _enter_evacuations(tx, [(movers[u].row, h) for u, h in hosts.items() if isinstance(h, Candidate)])
    placed = sorted(set(movers) - set(begun.failed))
    begun.rows = instances.select_live(tx, uuids=placed) if placed else []
    begun.made_for = {u: ledger_moves.made_for(m) for u, m in ledger_moves.open_of(tx, placed).items()}
    begun.failed.update(refused)
    return begun


def _without_its_disks(host: str, places: t.Mapping[str, str]) -> set[str]:
    """Return the hosts that do not reach the pool of ``host``; none where it has its disks itself."""
    place = places.get(host, "")
    is_shared = any(place.startswith(name + ":") for name in SHARED)
    return {other for other, other_place in places.items() if other_place != place} if is_shared else set()


def _sort_out(
    tx: Transaction, wanted: Wanted, rows: t.Sequence[Instance]
) -> tuple[dict[str, errors.BootflowError], list[Instance]]:
    """Return (uuid -> why the instance cannot be evacuated, the instances that an earlier run has evacuated).

    :raises BootflowError: one of them cannot be evacuated, and that stops the others, too.
    """
    operation.refuse_unknown(tx, rows, wanted.selection)
    down = nodes.forced_down(tx)
    unchanged = _evacuated_before(tx, rows, down)
    rows = [r for r in rows if r not in unchanged]
    dead = operation.dead_runs(tx, rows)
    places = {r.uuid: r.host for r in rows}
    volumes = moving.refusals(tx, places, down, wanted.inventory, keeps_old=True) if rows else {}
    found_elsewhere = elsewhere.refusals(tx, rows)
    former_hosts = _former_hosts_of_resized(tx, [r for r in rows if r.host in down])
    refused: dict[str, errors.BootflowError] = {}
    for row in rows:
        try:
            try:
                operation.check(tx, EVACUATE, row, dead)
            except errors.InstanceInvalidState as e:
                if row.host in down and row.vm_state in _OF_THE_HOST:
                    e.remedy = (
                        "Bring the host back; or run bootflow.compute.reset_state, after which it can be evacuated."
                    )
                if row.host in down and row.vm_state == states.SHELVED:
                    e.remedy = "bootflow.compute.shelve_offload takes it from the host, and bootflow.compute.unshelve brings it to another one."
                if row.uuid in former_hosts:
                    host = former_hosts[row.uuid]
                    e.remedy = "bootflow.compute.revert_resize brings it back to %s, which has its disks." % host
                raise
            if EVACUATE.is_begun(row.task_state):
                raise errors.InstanceInvalidState(
                    method=EVACUATE.called, instance_uuid=row.uuid, attr="task_state", state=row.task_state,
                    remedy="The run that did this is dead: bootflow.compute.audit settles it.",
                )  # fmt: skip
            if row.host is None:
                raise errors.InstanceNotReady(instance_id=row.uuid)
            if row.host not in down:
                raise errors.ComputeServiceInUse(host=row.host)
            if row.spec.get("whole_disks"):
                raise errors.MoveNotSupported(
                    instance_uuid=row.uuid,
                    reason="it has whole disks of host %s, and what is on them stays there" % row.host,
                    remedy="Bring the host back; or delete the instance, and boot it again without what is on them.",
                )
            if row.uuid in found_elsewhere:
                raise found_elsewhere[row.uuid]
            if row.uuid in volumes:
                raise volumes[row.uuid]
            secrets = wanted.secrets_of(row.project, row.display_name)
            if secrets is not None:
                check_same_guest_data(row, secrets)
            elif row.config_drive:
                check_guest_data(row, wanted.stored_secrets_of(tx, row.digest), wanted.kept_in)
        except errors.BootflowError as e:
            refused[row.uuid] = e
    selection = wanted.selection
    is_by_host = selection.hosts is not None and not selection.is_by_name
    only_alone = all(isinstance(e, _REFUSED_ALONE) for e in refused.values())
    if not (is_by_host and len(refused) < len(rows) and only_alone):
        operation.refuse(list(refused.values()))
    return refused, unchanged


def _evacuated_before(tx: Transaction, rows: t.Sequence[Instance], down: t.Collection[str]) -> list[Instance]:
    """Select the instances whose last move is an evacuation to their present host. A rerun, after it failed for others, leaves them alone."""
    if not any(r.host in down for r in rows):
        return []
    settled = [r for r in rows if r.host not in down and r.task_state is None and r.vm_state != states.ERROR]
    last = {u: past[-1:] for u, past in ledger_moves.all_of(tx, [r.uuid for r in settled]).items()}
    done = (moves.EVACUATION, moves.DONE)
    return [
        r for r in settled if [(m.migration_type, m.status, m.dest_compute) for m in last[r.uuid]] == [(*done, r.host)]
    ]


def _former_hosts_of_resized(tx: Transaction, rows: t.Sequence[Instance]) -> dict[str, str]:
    """Return uuid -> source host of an instance that waits to be confirmed or reverted. That host has its disks, and a revert needs no image."""
    open_moves = ledger_moves.open_of(tx, [r.uuid for r in rows if r.vm_state == states.RESIZED])
    return {u: m.source_compute for u, m in open_moves.items() if not ledger_moves.is_same_host_resize(m)}


def _enter_evacuations(tx: Transaction, placed: t.Sequence[tuple[Instance, Candidate]]) -> None:
    """Enter the evacuations, and switch the instances to their destinations, whose claims are theirs. The source hosts owe cleanups."""
    due = [cleanups.Due(str(r.host), r.uuid, r.domain_name, "it was evacuated to %s" % to.host) for r, to in placed]
    cleanups.add(tx, *due)
    entered = []
    for row, to in placed:
        entered.append(
            {
                "instance_uuid": row.uuid,
                "migration_type": moves.EVACUATION,
                "source_compute": row.host,
                "source_node": row.node,
                "dest_compute": to.host,
                "dest_node": to.node,
                "old_request_spec_id": row.request_spec_id,
                "new_request_spec_id": row.request_spec_id,
                "old_vm_state": row.vm_state,
                "source_limits": row.limits,
                "dest_limits": dict(to.limits),
            }
        )
    ledger_moves.add(tx, entered)
    relocate(tx, [(row.uuid, to.host, to.node, dict(to.limits)) for row, to in placed])
