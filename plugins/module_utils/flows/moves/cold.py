# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The beginning of a resize or cold migration: which instances may move, with which flavor, and to which hosts. cold_life has what follows.

source: Nova's compute.api.API.resize and ComputeManager.prep_resize
"""

from __future__ import annotations

import typing as t
from dataclasses import asdict, dataclass, field

from ...core import errors
from ...core.instances import moves, quotas, states
from ...core.model import Flavor, Image
from ...core.reading.problems import Problems
from ...core.request.image_rules import image_errors, zero_disk_gb
from ...core.request.requested_resources import requested_resources
from ...core.resources.claims import overhead_of
from ...core.scheduler.options import SchedulerOptions
from ...ledger.compute import history, instances, requests
from ...ledger.compute import moves as ledger_moves
from ...ledger.compute.claims import Candidate
from ...ledger.compute.instances import Instance, PlacedInstance
from ...ledger.db.locks import take_turns
from ...ledger.db.transaction import Transaction
from ..attachments import moving
from ..instances import cleanup, elsewhere, operation
from ..instances.operation import Operation, Selection
from . import cold_life, confirm, local_disks
from .cold_life import MIGRATE, RESIZE, load
from .moving_instance import MovingInstance
from .place import Mover, ReadFleet, claim, give_up_planned


@dataclass(frozen=True)
class Wanted:
    """The resizes that a run asks for; without ``flavor`` and ``flavors``, the cold migrations."""

    selection: Selection
    known_hosts: t.Collection[str]
    backends: t.Mapping[str, str]  # host -> its backend of local disks
    flavor: Flavor | None = None
    flavors: t.Mapping[str, Flavor] = field(default_factory=dict)  # uuid -> flavor of an instance that gets another one
    pci_aliases: t.Any = field(default_factory=dict)  # core.resources.pci.request.parse_aliases()
    overhead: t.Mapping[str, float] = field(default_factory=dict)  # bootflow_instance_overhead
    filters: t.Collection[str] | None = None  # names of the enabled filters
    quotas: t.Mapping[str, t.Any] = field(default_factory=dict)
    inventory: t.Collection[str] | None = None  # hosts that plays reach, the storage hosts among them; None: any host
    same_host: bool = False  # bootflow_allow_resize_to_same_host; a migration goes to another host in any case
    allow_zero_disk: bool = True  # bootflow_allow_zero_disk_flavor
    to_hosts: t.Mapping[str, str] = field(default_factory=dict)  # uuid -> the only host for it, where a plan holds one

    @property
    def operation(self) -> Operation:
        return MIGRATE if self.flavor is None and not self.flavors else RESIZE

    def flavor_for(self, uuid: str) -> Flavor | None:
        """Return the flavor that the instance is resized to; None: it keeps its own."""
        return self.flavors.get(uuid, self.flavor)


@dataclass
class Begun:
    """The moves that a run has begun, and the instances that do not move."""

    moving: list[MovingInstance] = field(default_factory=list)  # owned by this run
    failed: dict[str, errors.BootflowError] = field(default_factory=dict)  # uuid -> why there is no host for it
    rows: dict[str, Instance] = field(default_factory=dict)  # of all selected instances
    unchanged: list[Instance] = field(default_factory=list)  # have the flavor already, and wait to be confirmed


# --- begin --------------------------------------------------------------------------------------------------------------


def check(tx: Transaction, wanted: Wanted) -> None:
    """Check states and flavors as begin() does, before any host is contacted. Writes nothing.

    :raises BootflowError: see begin().
    """
    _select_movable(tx, wanted, operation.select(tx, wanted.selection, lock=False, operation=wanted.operation))


def begin(tx: Transaction, wanted: Wanted, read_fleet: ReadFleet, options: SchedulerOptions) -> Begun:
    """Begin to move the selected instances: all of them, or with an error none. As in Nova, an instance without a valid host fails alone.

    :raises BootflowError: see operation.begin(); of a flavor see core.instances.moves.check_flavor().
    :raises OverQuota: the new flavor is more than its project may have.
    """
    rows, movers = select(tx, wanted)
    begun = Begun(rows={r.uuid: r for r in rows}, unchanged=[r for r in rows if r.uuid not in movers])
    if not movers:
        return begun
    move_operation = wanted.operation
    placed = [m.row for m in movers.values()]
    moving.adopt(tx, [r.uuid for r in placed])  # before any node is locked
    check_quota(tx, wanted, list(movers.values()))
    operation.start(tx, move_operation, placed, "prep.start")
    history.start_events_on(tx, {r.uuid: r.host for r in placed}, move_operation.name)
    give_up_planned(tx, set(movers).intersection(wanted.to_hosts))
    hosts = claim(tx, list(movers.values()), read_fleet, options)
    begun.failed = {u: _add_same_host_hint(h, wanted) for u, h in hosts.items() if isinstance(h, errors.BootflowError)}
    _enter_moves(tx, wanted, [(movers[u], h) for u, h in hosts.items() if isinstance(h, Candidate)])
    operation.finish(tx, move_operation, {u: operation.Outcome(error=e) for u, e in begun.failed.items()})
    prepared = {u: h.host if isinstance(h, Candidate) else movers[u].row.host for u, h in sorted(hosts.items())}
    operation.notify(tx, move_operation, prepared, "prep.end")
    operation.go_on(tx, move_operation, {u: m.row.host for u, m in movers.items() if u not in begun.failed})
    moving.release_moved(tx, begun.failed)
    begun.moving = [m for m in load(tx, sorted(set(movers) - set(begun.failed))) if m.uuid not in begun.failed]
    return begun


def select(tx: Transaction, wanted: Wanted) -> tuple[list[Instance], dict[str, Mover]]:
    """Return the selected instances, locked, and uuid -> the instance to move.

    :raises BootflowError: one of them cannot be moved.
    """
    if wanted.operation is RESIZE:  # take turns with other runs that add to the usage, before any row is locked
        take_turns(tx, "project", {r.project for r in operation.select(tx, wanted.selection, lock=False)})
    rows = operation.select(tx, wanted.selection, operation=wanted.operation)
    return rows, _select_movable(tx, wanted, rows)


def rehearse(tx: Transaction, wanted: Wanted, read_fleet: ReadFleet, options: SchedulerOptions) -> None:
    """Resize the selected instances and confirm them, as if all hosts had done their parts. For check mode.

    :raises BootflowError: see begin().
    """
    rows = instances.select_live(tx, uuids=wanted.selection.uuids)
    to_start = [r.uuid for r in rows if r.vm_state not in (states.ACTIVE, states.STOPPED)]
    if to_start:  # the change starts their guests before it resizes them
        instances.write(tx, to_start, vm_state=states.ACTIVE)
    begun = begin(tx, wanted, read_fleet, options)
    moved = [m.uuid for m in cold_life.switch(tx, [m.uuid for m in begun.moving])] if begun.moving else []
    if moved:
        cold_life.finish(tx, RESIZE, dict.fromkeys(moved, cold_life.Result(states.RUNNING)))
        sources = confirm.confirm(tx, Selection(uuids=moved)).sources
        cleanup.finish(tx, {host: [u for u in sources if sources[u] == host] for host in sources.values()})


def _add_same_host_hint(error: errors.BootflowError, wanted: Wanted) -> errors.BootflowError:
    """Add the setting bootflow_allow_resize_to_same_host to the remedy of a resize without a valid host, where it is not set."""
    if isinstance(error, errors.NoValidHost) and wanted.operation is RESIZE and not wanted.same_host:
        hint = "With bootflow_allow_resize_to_same_host the instance's own host is tried as well."
        error.remedy = " ".join(filter(None, (error.remedy, hint)))
    return error


def _select_movable(tx: Transaction, wanted: Wanted, rows: t.Sequence[Instance]) -> dict[str, Mover]:
    """Return uuid -> the instance to move, without instances that have the flavor already and wait to be confirmed.

    :raises BootflowError: one of them cannot be moved.
    """
    operation.refuse_unknown(tx, rows, wanted.selection, wanted.known_hosts)
    movers, refused = sort_out(tx, wanted, rows)
    operation.refuse(list(refused.values()))
    return movers


def sort_out(
    tx: Transaction, wanted: Wanted, rows: t.Sequence[Instance]
) -> tuple[dict[str, Mover], dict[str, errors.BootflowError]]:
    """Return (uuid -> the instance to move, uuid -> why the instance cannot be moved).

    An instance that has the flavor already, and waits to be confirmed, is in neither.
    """
    move_operation = wanted.operation
    dead = operation.dead_runs(tx, rows)
    found_elsewhere = elsewhere.refusals(tx, rows)
    refused: dict[str, errors.BootflowError] = {}
    able: list[Instance] = []
    for row in rows:
        if has_flavor_already(row, wanted.flavor_for(row.uuid)):
            continue
        try:
            operation.check(tx, move_operation, row, dead, wanted.known_hosts)
            if row.uuid in found_elsewhere:
                raise found_elsewhere[row.uuid]
            if move_operation.is_begun(row.task_state):
                raise errors.InstanceInvalidState(
                    method=move_operation.called, instance_uuid=row.uuid, attr="task_state", state=row.task_state,
                    remedy="The run that did this is dead: bootflow.compute.audit settles it.",
                )  # fmt: skip
            able.append(row)
        except errors.BootflowError as e:
            refused[row.uuid] = e
    movers, unfit = judge(tx, wanted, able)
    return movers, {**refused, **unfit}


def judge(
    tx: Transaction, wanted: Wanted, rows: t.Sequence[Instance], detached: t.Collection[str] = ()
) -> tuple[dict[str, Mover], dict[str, errors.BootflowError]]:
    """Return (uuid -> the instance to move, uuid -> why the instance cannot be moved), in any of their states.

    :arg detached: instances whose volumes are detached first
    """
    places = {r.uuid: r.host for r in rows if r.uuid not in detached}
    problems = moving.refusals(tx, places, inventory=wanted.inventory) if places else {}
    specs: dict[
        tuple[int, str], dict[str, t.Any]
    ] = {}  # by the id of the present request and the name of the new flavor
    resizes = wanted.operation is RESIZE
    disks = instances.disks_of(tx, [r.uuid for r in rows]) if resizes else {}
    movers: dict[str, Mover] = {}
    refused: dict[str, errors.BootflowError] = {}
    for row in rows:
        old = new = None
        flavor = wanted.flavor_for(row.uuid)
        if not instances.is_placed(row) or row.host not in wanted.backends:
            continue
        try:
            if flavor is not None:
                volume_backed = bool(row.spec.get("is_bfv"))
                image_gb, ephemerals_gb = zero_disk_gb(row.spec["image"]), local_disks.ephemerals_gb(disks[row.uuid])
                moves.check_flavor(row.spec["flavor"], flavor, volume_backed, image_gb, ephemerals_gb)
                old, new = local_disks.local(disks[row.uuid]), local_disks.planned_disks(row, disks[row.uuid], flavor)
            _check_movable(row, flavor)
            if row.uuid in problems:
                raise problems[row.uuid]
            key = (row.request_spec_id, flavor.name if flavor is not None else "")
            if key not in specs:
                specs[key] = _spec_with_flavor(row.spec, flavor, wanted)
        except errors.BootflowError as e:
            e.details.setdefault(operation.WHOSE, row.display_name)
            refused[row.uuid] = e
            continue
        own_backend = wanted.backends[row.host]
        barred = {h for h, backend in wanted.backends.items() if backend != own_backend}
        if new == old:
            old = new = None
        may_stay = wanted.same_host and flavor is not None
        only = wanted.to_hosts.get(row.uuid)
        movers[row.uuid] = Mover(row, specs[key], barred, may_stay, old, new, only=only)
    return movers, refused


def has_flavor_already(row: Instance, flavor: Flavor | None) -> bool:
    """Return whether an earlier run has resized the instance to this flavor, and it waits to be confirmed."""
    is_waiting = row.vm_state == states.RESIZED and row.task_state is None
    return is_waiting and flavor is not None and row.spec["flavor"]["name"] == flavor.name


def _check_movable(row: PlacedInstance, flavor: Flavor | None) -> None:
    """Check that neither the instance nor its new flavor has whole disks.

    :raises MoveNotSupported: one of them has.
    """
    if row.spec.get("whole_disks"):
        raise errors.MoveNotSupported(
            instance_uuid=row.uuid,
            reason="it has whole disks of host %s, and what is on them stays there" % row.host,
            remedy="Boot another instance, copy the data to it, and delete this one.",
        )
    if flavor is not None and "bootflow:whole_disks" in flavor.extra_specs:
        raise errors.MoveNotSupported(
            instance_uuid=row.uuid,
            reason="the flavor %s has whole disks, which only a boot gives" % flavor.name,
            remedy="Name a flavor without bootflow:whole_disks, or boot another instance.",
        )


def _spec_with_flavor(spec: t.Mapping[str, t.Any], flavor: Flavor | None, wanted: Wanted) -> dict[str, t.Any]:
    """Return the request with the new flavor, and with the resources that it asks a host for.

    :raises BootflowError: the image does not fit the flavor, or the flavor is not valid.
    """
    data = spec["image"] or {}
    if flavor is None:
        return dict(spec)
    image = Image(
        data.get("name") or "",
        data.get("id") or "",
        data.get("disk_format") or "raw",
        min_ram=int(data.get("min_ram") or 0),
        min_disk=int(data.get("min_disk") or 0),
        size=data.get("size"),
        properties=data.get("properties") or {},
    )
    problems = Problems()
    if not spec.get("is_bfv"):
        for error in image_errors(image, flavor, allow_zero_disk=wanted.allow_zero_disk):
            problems.add("flavor", error)
    elif flavor.memory_mb < image.min_ram:
        problems.add("flavor", errors.FlavorMemoryTooSmall())
    resources = requested_resources(flavor, image, wanted.pci_aliases, "flavor", problems, wanted.filters)
    problems.raise_if_any()
    cells = resources.numa_topology
    isolated = cells is not None and cells.emulator_isolated
    return {
        **spec,
        "flavor": {**asdict(flavor), "extra_specs": dict(flavor.extra_specs)},
        "numa_topology": cells.as_dict() if cells is not None else None,
        "pci_requests": [p.as_dict() for p in resources.pci_requests],
        "overhead": asdict(overhead_of(flavor.vcpus, flavor.memory_mb, wanted.overhead, isolated)),
    }


def check_quota(tx: Transaction, wanted: Wanted, movers: t.Sequence[Mover]) -> None:
    """Check the quotas of the projects of these instances.

    :raises OverQuota: the new flavors exceed one.
    """
    if wanted.operation is RESIZE:
        check_flavor_quota(tx, [(m.row, m.spec["flavor"]) for m in movers], wanted.quotas)


def check_flavor_quota(
    tx: Transaction,
    wanted: t.Sequence[tuple[Instance, t.Mapping[str, t.Any]]],
    limits: t.Mapping[str, t.Any] | None,
) -> None:
    """Check the additional vCPUs and memory of these instances with these flavors. source: Nova's upsize_quota_delta

    :arg wanted: (instance, flavor). :arg limits: bootflow_quotas
    :raises OverQuota: they exceed the quota of a project.
    """
    limited = {p for p in {row.project for row, _flavor in wanted} if quotas.limited(limits, p)}
    used = instances.usage(tx, limited) if limited else {}
    for project in sorted(limited):
        of_project = [(row, flavor) for row, flavor in wanted if row.project == project]
        more = {
            "instances": 0,
            "cores": sum(max(0, int(flavor["vcpus"]) - row.vcpus) for row, flavor in of_project),
            "ram": sum(max(0, int(flavor["memory_mb"]) - row.memory_mb) for row, flavor in of_project),
        }
        quotas.check_again(more, used[project], quotas.limits_of(limits, project), project)


def _enter_moves(tx: Transaction, wanted: Wanted, placed: t.Sequence[tuple[Mover, Candidate]]) -> None:
    """Enter the moves, and the requests with the new flavors. Instances that share request and new flavor share the new request, too."""
    resizes = wanted.operation is RESIZE

    def key_of(mover: Mover) -> tuple[int, str]:
        return mover.row.request_spec_id, str(mover.spec["flavor"]["name"])

    new_ids: dict[tuple[int, str], int] = {}
    if resizes:
        movers = {key_of(m): m for m, _host in placed}
        new_ids = dict(zip(movers, requests.new_ids(tx, len(movers))))
        for key, mover in movers.items():
            flavor = {k: v for k, v in mover.spec["flavor"].items() if k in mover.row.digest["flavor"]}
            entry = requests.Entry(new_ids[key], {**mover.row.digest, "flavor": flavor}, mover.spec)
            requests.add_specs(tx, mover.row.reservation_id, [entry])
    ledger_moves.add(
        tx,
        [
            {
                "instance_uuid": mover.row.uuid,
                "migration_type": moves.RESIZE if resizes else moves.MIGRATION,
                "source_compute": mover.row.host,
                "source_node": mover.row.node,
                "dest_compute": host.host,
                "dest_node": host.node,
                "old_request_spec_id": mover.row.request_spec_id,
                "new_request_spec_id": new_ids.get(key_of(mover), mover.row.request_spec_id),
                "old_vm_state": mover.row.vm_state,
                "source_limits": mover.row.limits,
                "dest_limits": dict(host.limits),
                "old_disks": mover.old_disks,
                "new_disks": mover.new_disks,
            }
            for mover, host in placed
        ],
    )
