# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Accepting a request: one transaction that writes instances, disks, ports and the action "create", or nothing.

source: Nova's _create_instance and _provision_instances
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import asdict, dataclass, field, replace

from ...core import errors
from ...core.disks.block_device_checks import MAX_LOCAL_BLOCK_DEVICES
from ...core.disks.block_devices import PlannedDisk
from ...core.guest import config_drive_rules
from ...core.guest.names import domain_name, short_domain_names
from ...core.instances import quotas, states
from ...core.instances.request import DEFAULT_GROUPS, ServerRequest
from ...core.model import NetworkRequest
from ...core.networks.network import Network
from ...core.reading import identifiers
from ...core.reading.problems import Problems
from ...core.request import expand
from ...core.request.catalogue_images import image_data
from ...core.request.hostname import instance_hostname
from ...core.request.image_rules import local_root_gb
from ...ledger.compute import groups, history, instances, ports, requests, runs
from ...ledger.compute.instances import Instance
from ...ledger.db.locks import take_turns
from ...ledger.db.transaction import Transaction
from ...ledger.fast import bulk
from ...ledger.storage import attachments
from ..instances import delete, operation, redefine
from ..networks import requested_ports
from .planned import VOLUME, BootVolumeOptions, Planned, volumes_requested, without_volumes

if t.TYPE_CHECKING:
    from .boot_volumes import BootVolumeWriter


_UUID = re.compile(r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
# The field of an entry that an error of writing belongs to; by default the networks.
_PLACES: dict[type[errors.BootflowError], str] = {errors.InstanceNotFound: "scheduler_hints"}


@dataclass
class Accepted:
    """The requested instances by outcome: uuids, each in exactly one of the lists."""

    reservation_id: str | None = None
    created: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)  # half-built by a dead run, or ended in ERROR before
    unchanged: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)  # built, and changed in place
    # [{name, uuid, field, from, to}] of those in resumed and updated
    changes: list[dict[str, t.Any]] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)  # that never had a host, and gave their names to others
    drift: dict[tuple[str, ...], list[str]] = field(default_factory=dict)  # what the catalogue changed: names

    @property
    def builds(self) -> bool:
        """Whether there is something to build."""
        return bool(self.created or self.resumed)

    @property
    def changed(self) -> bool:
        return bool(self.builds or self.changes)


@dataclass(frozen=True)
class AcceptOptions:
    quotas: t.Mapping[str, t.Any] = field(default_factory=dict)
    force_config_drive: bool = True
    networks: t.Mapping[str, Network] = field(default_factory=dict)  # by id and by name
    max_local_block_devices: int = MAX_LOCAL_BLOCK_DEVICES
    short_domain_names: bool = False
    keep_built_instances: bool = (
        False  # of the playbook apply: built instances, and builds of other runs, stay as they are
    )
    volumes: BootVolumeOptions = field(default_factory=BootVolumeOptions)


@dataclass
class _Sorted:
    """The requested instances, by what has to be done."""

    new: list[list[str]]  # for each entry the names of its new instances
    done: list[Instance]
    resume: list[Instance]
    replaced: list[Instance]  # to be ended: new ones have their names
    changes: list[tuple[Instance, int]]  # of the done and resumed ones, and the number of their entry
    drift: dict[tuple[str, ...], list[str]]


def accept(tx: Transaction, entries: t.Sequence[ServerRequest], options: AcceptOptions) -> Accepted:
    """Write new instances of ``entries``, adopt instances of dead runs, and leave instances alone that already match, or differ from
    the request only in what can be changed in place.

    An instance is compared with what its request said. It keeps what the catalogue was then.

    :raises InvalidRequest: all refusals of all entries (InstanceExists, InstanceBusy, OverQuota, addresses...). The
        caller has to roll its transaction back then.
    """
    refusals = Problems()
    digests = [expand.request_digest(r) for r in entries]
    names = expand.Names.expand(entries)
    runs.renew(tx)
    take_turns(tx, "project", [r.project for r in entries])  # names and quotas are per project
    ids = requests.IdsAhead(tx, len(entries))
    living = _living(tx, names)
    made: dict[tuple[str, str], set[str]] = {}  # (project, name of an entry) -> names of its instances
    for row in living.values():
        made.setdefault((row.project, row.digest["name"]), set()).add(row.display_name)
    wanted = names.with_existing(made).by_request
    sorted_rows = _sort(tx, entries, digests, wanted, living, options, refusals)
    delete.withdraw(tx, sorted_rows.replaced)
    try:
        _fit_quota(tx, entries, wanted, sorted_rows.new, options.quotas)
    except errors.BootflowError as e:
        refusals.add(_quota_path(entries, e), e)
    entries = requested_ports.resolve_boot(
        tx, entries, [bool(names) for names in sorted_rows.new], options.networks, refusals
    )
    if any(names and r.security_groups != DEFAULT_GROUPS for r, names in zip(entries, sorted_rows.new)):
        from ..networks import requested_groups

        entries = requested_groups.resolve_boot(tx, entries, [bool(names) for names in sorted_rows.new], refusals)
    had_disks = instances.disks_of(tx, [r.uuid for r in sorted_rows.resume])
    planned = _plan(tx, entries, sorted_rows.new, had_disks, options, refusals)
    _enter_groups(tx, entries, sorted_rows.new, options.quotas, refusals)
    refusals.raise_if_any()
    changes = redefine.in_place(tx, entries, digests, sorted_rows.changes)
    altered = {c["uuid"] for c in changes}
    accepted = Accepted(
        unchanged=[r.uuid for r in sorted_rows.done if r.uuid not in altered],
        updated=[r.uuid for r in sorted_rows.done if r.uuid in altered],
        changes=changes,
        replaced=[r.display_name for r in sorted_rows.replaced],
        drift=sorted_rows.drift,
    )
    writer = _Writer(tx, planned, options, ids)
    for index, (plan, digest, new) in enumerate(zip(planned, digests, sorted_rows.new)):
        if not new:
            continue
        try:
            places = {name: place for place, name in enumerate(wanted[index])}
            writer.add(plan, digest, {name: places[name] for name in new})
        except errors.InvalidRequest as e:
            refusals.extend(e.errors)  # of volumes, each with its own path
        except errors.BootflowError as e:
            refusals.add("instances[%d].%s" % (index, _PLACES.get(type(e), "networks")), e)
    refusals.raise_if_any()
    accepted.reservation_id, accepted.created = writer.write()
    with_volumes = {u for u, disks in had_disks.items() if any(d["kind"] == VOLUME for d in disks)}
    _take_over(tx, sorted_rows.resume, with_volumes, options, refusals)
    refusals.raise_if_any()
    accepted.resumed = [r.uuid for r in sorted_rows.resume]
    return accepted


def _sort(
    tx: Transaction,
    entries: t.Sequence[ServerRequest],
    digests: t.Sequence[t.Mapping[str, t.Any]],
    wanted: t.Sequence[t.Sequence[str]],
    living: t.Mapping[tuple[str, str], Instance],
    options: AcceptOptions,
    refusals: Problems,
) -> _Sorted:
    """:arg wanted: the names of each entry's instances. :arg living: by project and name."""
    dead = runs.dead_among(tx, [r.run_id for r in living.values()])
    never_placed = [r.uuid for r in living.values() if _never_placed(r)]
    with_volumes = attachments.of_instances(tx, never_placed) if never_placed else {}
    known = names_of_ids(options.networks)
    result = _Sorted([], [], [], [], [], {})
    asked: set[tuple[str, str]] = set()
    for index, (request, digest, names) in enumerate(zip(entries, digests, wanted)):
        path = "instances[%d].name" % index
        namesakes = [living[request.project, n] for n in names if (request.project, n) in living]
        replaced = set()
        for row in namesakes:
            difference = expand.difference(row.digest, digest, known)
            with refusals.collect(path):
                if options.keep_built_instances and _is_left(tx, row, difference, dead):
                    result.done.append(row)
                    continue
                if difference and _never_placed(row) and row.uuid not in with_volumes:
                    _check_not_locked(tx, row)
                    result.replaced.append(row)
                    replaced.add(row.display_name)
                    continue
                _check_same(tx, row, difference, dead)
                (result.done if _is_done(row) else result.resume).append(row)
                if difference.in_place:
                    _check_not_locked(tx, row)
                    result.changes.append((row, index))
                if difference.drift:
                    result.drift.setdefault(difference.drift, []).append(row.display_name)
        for name in names:
            if (request.project, name) in asked:
                refusals.add(path, _asked_twice(name))
            asked.add((request.project, name))
        result.new.append([n for n in names if (request.project, n) not in living or n in replaced])
    return result


def names_of_ids(networks: t.Mapping[str, Network]) -> dict[str, str]:
    """Return the names of networks and subnets, by their ids."""
    known = {n.id: n.name for n in networks.values()}
    known.update({s.id: s.name for n in networks.values() for s in n.subnets})
    return known


def _plan(
    tx: Transaction,
    entries: t.Sequence[ServerRequest],
    new: t.Sequence[t.Sequence[str]],
    had_disks: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]],
    options: AcceptOptions,
    refusals: Problems,
) -> list[Planned]:
    """The disks of every entry with new instances. The code of volumes is only loaded and called if there are any.

    :arg had_disks: of the instances that are resumed.
    """
    resumed_volume_ids = {str(d["volume_id"]) for disks in had_disks.values() for d in disks if d.get("volume_id")}
    if resumed_volume_ids or any(names and volumes_requested(r) for r, names in zip(entries, new)):
        from . import boot_volumes

        return boot_volumes.read(
            tx, entries, new, options.volumes, options.max_local_block_devices, refusals, resumed_volume_ids
        )
    planned = [Planned(request) for request in entries]
    most = options.max_local_block_devices
    for index, (request, names) in enumerate(zip(entries, new)):
        if names:
            with refusals.collect("instances[%d].block_device_mapping" % index):
                planned[index] = without_volumes(request, most)
    return planned


def _quota_path(entries: t.Sequence[ServerRequest], error: errors.BootflowError) -> str:
    """The path of the entry that exceeds the quota."""
    for index, request in enumerate(entries):
        if request.name == error.details.get("request"):
            return "instances[%d].count" % index
    return "instances"


def _living(tx: Transaction, names: expand.Names) -> dict[tuple[str, str], Instance]:
    """Return the living instances that have one of the names, by project and name."""
    rows_by_name = {}
    for project, possible in sorted(names.by_project().items()):
        for row in instances.select_live(tx, names=possible, project=project, lock=True):
            rows_by_name[row.project, row.display_name] = row
    return rows_by_name


def _asked_twice(name: str) -> errors.BootflowError:
    return errors.InvalidInput(reason="the name %s is requested twice" % name, remedy="Give each entry a unique name.")


def _is_done(row: Instance) -> bool:
    """Whether nothing is left to do: the instance is built, or failed after its build."""
    never_ran = row.vm_state == states.ERROR and row.launched_at is None
    return bool(row.vm_state != states.BUILDING and row.task_state is None and not never_ran)


def is_another_runs(tx: Transaction, row: Instance, dead: t.Collection[str]) -> bool:
    """Whether a live run builds the instance, or does something else with it. :arg dead: the dead ones of the runs"""
    alive = row.run_id and row.run_id != tx.run.id and row.run_id not in dead
    return bool(alive and (row.vm_state == states.BUILDING or row.task_state is not None))


def is_deleted(row: Instance) -> bool:
    """Whether it is being deleted, or is soft-deleted."""
    return row.vm_state == states.SOFT_DELETED or row.task_state in (states.DELETING, states.SOFT_DELETING)


def _is_left(tx: Transaction, row: Instance, difference: expand.Difference, dead: t.Collection[str]) -> bool:
    """Whether a boot of apply leaves the instance as it is, under any present request."""
    if is_deleted(row) or row.launched_at is not None or is_another_runs(tx, row, dead):
        return True
    if difference.requested and not _never_placed(row):  # it could not be deleted for it
        return True
    return bool(difference) and operation.is_locked(tx, row)


def _check_not_locked(tx: Transaction, row: Instance) -> None:
    """:raises InstanceIsLocked: by another user."""
    if operation.is_locked(tx, row):
        raise operation.locked_error(row)


def _never_placed(row: Instance) -> bool:
    """Whether its boot failed before it had a host."""
    return row.vm_state == states.ERROR and row.task_state is None and row.host is None and row.launched_on is None


def _check_same(tx: Transaction, row: Instance, difference: expand.Difference, dead: t.Collection[str]) -> None:
    """:raises InstanceExists: of another request. :raises InstanceBusy: of a live run.
    :raises InstanceInvalidState: deleted, or a dead run left it in the middle of something else than its boot.
    """
    if row.vm_state == states.SOFT_DELETED:
        raise kept_error(row)
    if difference.requested:
        raise errors.InstanceExists(name=row.display_name, reason="; ".join(difference.requested))
    if _is_done(row):
        return
    if is_another_runs(tx, row, dead):
        raise runs.locked_error(tx, row.display_name, row.run_id)
    deleting = row.task_state in (states.DELETING, states.SOFT_DELETING)
    if deleting or row.launched_at is not None:  # its guest may be there: it is not built a second time
        raise errors.InstanceInvalidState(
            method="boot",
            instance_uuid=row.uuid,
            attr="task_state",
            state=row.task_state,
            remedy="Finish the deletion first: run bootflow.compute.delete for %s again." % row.display_name
            if deleting
            else "The run that did this is dead: bootflow.compute.audit settles it when the host of %s answers."
            % row.display_name,
        )


def kept_error(row: Instance) -> errors.InstanceInvalidState:
    """A soft-deleted instance has its name still."""
    return errors.InstanceInvalidState(
        method="boot",
        instance_uuid=row.uuid,
        attr="vm_state",
        state=row.vm_state,
        remedy="%s was deleted and can be restored: run bootflow.compute.restore, or delete it for good with bootflow.compute.force_delete."
        % row.display_name,
    )


def _take_over(
    tx: Transaction,
    rows: t.Sequence[Instance],
    with_volumes: t.Collection[str],
    options: AcceptOptions,
    refusals: Problems,
) -> None:
    """Adopt instances: a half-built one continues where it is, as every stage can be repeated; a failed one starts again."""
    if with_volumes:
        from . import boot_volumes

        building = [r.uuid for r in rows if r.uuid in with_volumes and r.vm_state == states.BUILDING]
        boot_volumes.take_over(tx, building)
        for row in [r for r in rows if r.uuid in with_volumes and r.vm_state != states.BUILDING]:
            try:
                boot_volumes.begin_again(tx, row, options.volumes)
            except errors.InvalidRequest as e:
                refusals.extend(e.errors)
            except errors.BootflowError as e:
                refusals.add(row.display_name, e)
    for row in rows:
        values: dict[str, t.Any] = {"run_id": tx.run.id, "vm_state": states.BUILDING}
        again = row.vm_state != states.BUILDING
        if again or row.host is None:
            values.update(task_state=states.SCHEDULING, host=None, node=None)
            if again:
                values.update(retry=None)
                history.start_actions(tx, [row.uuid], "create", tx.request_id, row.project, tx.actor)
        else:
            values.update(task_state=None)
            history.start_events(tx, [row.uuid], "resume", row.host)
            history.finish_events(tx, [row.uuid], "resume", history.SUCCESS, "taken over from run %s" % row.run_id)
        instances.swap(tx, [row.uuid], [row.task_state], None, tx.context.notify_on_state_change, **values)


def _fit_quota(
    tx: Transaction,
    entries: t.Sequence[ServerRequest],
    wanted: t.Sequence[t.Sequence[str]],
    new: list[list[str]],
    limits: t.Mapping[str, t.Any],
) -> None:
    """Cut each entry's new names to the project's quota; OverQuota below min_count."""
    missing = [
        replace(r, min_count=max(r.min_count - (len(all_names) - len(names)), 0) if names else 0, max_count=len(names))
        for r, all_names, names in zip(entries, wanted, new)
    ]
    counts = quotas.fit_projects(missing, _usage(tx, {r.project for r in entries}, limits), limits)
    for index, count in enumerate(counts):
        new[index] = new[index][:count]


def _usage(tx: Transaction, projects: t.Collection[str], limits: t.Mapping[str, t.Any]) -> dict[str, dict[str, int]]:
    """Return the usage of projects with a limit: counting reads all of their instances."""
    limited = {p: names for p in projects if (names := quotas.limited(limits, p))}
    if not limited:
        return {}
    usage = instances.usage(tx, limited)
    with_ports = [p for p, names in limited.items() if quotas.PORTS in names]
    used = instances.ports_in_use(tx, with_ports) if with_ports else {}
    return {p: {**usage[p], quotas.PORTS: used.get(p, 0)} for p in limited}


def _enter_groups(
    tx: Transaction,
    entries: t.Sequence[ServerRequest],
    new: t.Sequence[t.Sequence[str]],
    limits: t.Mapping[str, t.Any],
    refusals: Problems,
) -> None:
    """Enter the server groups of the entries, after checking each quota of members."""
    used = {r.server_group.id: r.server_group for r, names in zip(entries, new) if r.server_group is not None and names}
    members = groups.count_members(tx, used)
    for index, (request, names) in enumerate(zip(entries, new)):
        group = request.server_group
        if group is None or not names:
            continue
        try:
            groups.ensure(tx, group)
            if request.check_server_group_quota:
                room = quotas.limits_of(limits, request.project)
                quotas.check_group_members(group, members[group.id], len(names), room)
            members[group.id] += len(names)
        except errors.BootflowError as e:
            refusals.add("instances[%d].scheduler_hints.group" % index, e)


def resolved_hints(tx: Transaction, request: ServerRequest) -> dict[str, t.Any]:
    """The hints with UUIDs instead of names of instances, because a name may belong to another instance later.

    :raises InstanceNotFound: the project has no instance of that name.
    """
    hints = dict(request.scheduler_hints)
    for hint in ("same_host", "different_host"):
        if hint not in hints:
            continue
        named = [hints[hint]] if isinstance(hints[hint], str) else list(hints[hint])
        names = [n for n in named if not _UUID.match(n)]
        living = {r.display_name: r.uuid for r in instances.select_live(tx, names=names, project=request.project)}
        for name in names:
            if name not in living:
                raise errors.InstanceNotFound(instance_id=name)
        hints[hint] = [living.get(n, n) for n in named]
    return hints


class _Writer:
    """Writes the instances of a request under one reservation: add() each entry, then write() them together."""

    def __init__(self, tx: Transaction, planned: t.Sequence[Planned], options: AcceptOptions, ids: requests.IdsAhead):
        self.tx = tx
        self.options = options
        self.ids = ids
        self.context = tx.context
        self.now = tx.now
        self.created: list[str] = []
        self._entries: list[tuple[Planned, t.Mapping[str, t.Any], dict[str, t.Any]]] = []  # with digest and spec
        self._rows: list[tuple[int, dict[str, t.Any]]] = []  # of instances, each with the number of its entry
        self._disks_of: dict[str, list[dict[str, t.Any]]] = {}
        networks = [n for p in planned for _r, n in _networks_of(p.request.networks, options.networks)]
        given = [port for p in planned for port in requested_ports.ports_of(p.request.networks)]
        self.allocator = ports.Allocator(tx, tx.rng, networks, given)
        self.volume_writer = self._volume_writer() if any(p.has_volumes for p in planned) else None

    def _volume_writer(self) -> BootVolumeWriter:
        from . import boot_volumes

        return boot_volumes.BootVolumeWriter(self.tx, self.options.volumes)

    def add(self, plan: Planned, digest: t.Mapping[str, t.Any], indices: t.Mapping[str, int]) -> None:
        """Add the instances of one entry, with their disks and ports.

        :arg indices: the names of the instances, and the place of each among all of the entry.
        :raises InstanceNotFound: a hint names an unknown instance.
        :raises BootflowError: no free address. :raises InvalidRequest: errors of volumes.
        """
        request = plan.request
        networks = _networks_of(request.networks, self.options.networks)
        number = len(self._entries)
        self._entries.append((plan, digest, self._spec(plan, networks)))
        row = self._row(plan)
        disks = _as_dicts(plan.disks)
        for name, index in indices.items():
            uuid = self.tx.new_id()
            self._rows.append((number, {**row, **self._named(plan, uuid, name, index)}))
            self._disks_of[uuid] = (
                disks if self.volume_writer is None else _as_dicts(self.volume_writer.reserve(plan, uuid))
            )
            self.allocator.add(uuid, networks, groups=groups_beyond_default(request))
            self.created.append(uuid)

    def write(self) -> tuple[str | None, list[str]]:
        """Returns the reservation's id (None if nothing was added) and the uuids."""
        reservation_id = self._write_requests() if self._entries else None
        if self.volume_writer is not None:
            self.volume_writer.write()
        return reservation_id, self.created

    def _write_requests(self) -> str:
        tx, context = self.tx, self.context
        reservation_id = identifiers.reservation_id(context.rng)
        ids = self.ids.take(tx, len(self._entries))
        with bulk.together(tx):
            project = self._entries[0][0].request.project
            requests.add_reservation(tx, reservation_id, project, context.actor, context.request_id)
            entries = [requests.Entry(key, digest, spec) for key, (_p, digest, spec) in zip(ids, self._entries)]
            requests.add_specs(tx, reservation_id, entries)
            of_request = [{"reservation_id": reservation_id, "request_spec_id": key} for key in ids]
            instances.add(tx, [{**of_request[number], **row} for number, row in self._rows])
            instances.add_disks(tx, self._disks_of)
            for project in dict.fromkeys(row["project"] for _number, row in self._rows):
                uuids = [row["uuid"] for _number, row in self._rows if row["project"] == project]
                history.start_actions(tx, uuids, "create", context.request_id, project, context.actor)
            self.allocator.write()
        self.allocator.mark_members()
        return reservation_id

    def _spec(self, plan: Planned, networks: t.Sequence[tuple[NetworkRequest, Network]]) -> dict[str, t.Any]:
        return {
            **stored_spec(plan.request, networks, resolved_hints(self.tx, plan.request)),
            "image": image_data(plan.meta),
            "is_bfv": plan.volume_backed,  # the image's own mapping may have a volume as root
            "has_volumes": plan.has_volumes,
            "cross_az_attach": self.options.volumes.cross_az_attach,
        }

    def _named(self, plan: Planned, uuid: str, name: str, index: int) -> dict[str, t.Any]:
        """Return the individual fields of each instance of an entry."""
        request = plan.request
        short = self.options.short_domain_names
        return {
            "uuid": uuid,
            "display_name": name,
            "hostname": instance_hostname(request.name, name, uuid, request.hostname),
            "domain_name": short_domain_names(name, uuid)[0] if short else domain_name(name, uuid),
            "launch_index": index,
        }

    def _row(self, plan: Planned) -> dict[str, t.Any]:
        """Return the common fields of the instances of an entry."""
        context, request, flavor = self.context, plan.request, plan.request.flavor
        return {
            "project": request.project,
            "user_name": request.user or context.actor,
            "vm_state": states.BUILDING,
            "task_state": states.SCHEDULING,
            "power_state": states.NOSTATE,
            "availability_zone": request.availability_zone,
            "memory_mb": flavor.memory_mb,
            "vcpus": flavor.vcpus,
            "root_gb": local_root_gb(flavor.root_gb, image_data(plan.meta), plan.volume_backed),
            "ephemeral_gb": flavor.ephemeral_gb,
            "swap_mb": flavor.swap,
            "config_drive": config_drive_rules.config_drive_wanted(
                self.options.force_config_drive, request.config_drive, plan.properties
            ),
            "key_name": request.key_name,
            "server_group_id": request.server_group.id if request.server_group is not None else None,
            "run_id": context.run.id,
            "created_at": self.now,
            "updated_at": self.now,
            "deleted": instances.LIVE,
        }


def _as_dicts(disks: t.Iterable[PlannedDisk]) -> list[dict[str, t.Any]]:
    return [disk.as_dict() for disk in disks]


def _networks_of(
    requested: t.Sequence[NetworkRequest], networks: t.Mapping[str, Network]
) -> list[tuple[NetworkRequest, Network]]:
    return [(r, networks[r.network]) for r in requested if r.network is not None]


def requested_networks(spec: t.Mapping[str, t.Any]) -> list[tuple[NetworkRequest, Network]]:
    """The interfaces of a stored request, with the networks as they were when it was accepted."""
    networks = {n["id"]: ports.network_from(n) for n in spec["network_definitions"]}
    return [(NetworkRequest(**r), networks[r["network"]]) for r in spec["networks"]]


def groups_beyond_default(request: ServerRequest) -> tuple[str, ...]:
    """Return the ids of the security groups of a resolved request; none: the ports have the default group of their project."""
    return () if request.security_groups == DEFAULT_GROUPS else request.security_groups


def stored_spec(
    request: ServerRequest, networks: t.Sequence[tuple[NetworkRequest, Network]], hints: t.Mapping[str, t.Any]
) -> dict[str, t.Any]:
    return {
        "flavor": {**asdict(request.flavor), "extra_specs": dict(request.flavor.extra_specs)},
        "image": image_data(request.image or request.root_image),
        "availability_zone": request.availability_zone,
        "forced_host": request.forced_host,
        "forced_node": request.forced_node,
        "scheduler_hints": dict(hints),
        **redefine.changeable(request),
        "key_name": request.key_name,
        "key_data": request.key_data,
        "networks": [{**asdict(r), "network": n.id} for r, n in networks],
        "security_groups": list(groups_beyond_default(request)),
        "network_definitions": [asdict(n) for n in {n.id: n for _r, n in networks}.values()],
        "min_count": request.min_count,
        "max_count": request.max_count,
        "numa_topology": request.numa_topology.as_dict() if request.numa_topology is not None else None,
        "pci_requests": [p.as_dict() for p in request.pci_requests],
        "whole_disks": [d.as_dict() for d in request.whole_disks],
        "is_bfv": request.volume_backed,
        "overhead": asdict(request.overhead),
    }
