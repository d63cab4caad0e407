# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Accepting a request: one transaction that writes instances, disks, ports and the action "create", or nothing.

source: Nova's _create_instance and _provision_instances
"""

from __future__ import annotations

import re
import typing as t
import uuid as uuid_module
from dataclasses import asdict, dataclass, field, replace

from ...core import errors
from ...core.guest import config_drive_rules
from ...core.guest.config import domain_name
from ...core.instances import quotas, states
from ...core.instances.request import ServerRequest
from ...core.model import Image, Network, NetworkRequest
from ...core.reading import identifiers
from ...core.reading.problems import Problems
from ...core.request import expand
from ...core.request.hostname import instance_hostname
from ...core.request.stored_images import image_data
from ...ledger.compute import groups, history, instances, ports, runs
from ...ledger.context import Context
from ...ledger.db.locks import take_turns
from ...ledger.schema.tables import block_device_mappings, request_specs, reservations
from ...ledger.schema.tables import instances as instances_table
from . import boot_volumes
from .boot_volumes import BootVolumeOptions, Planned

__all__ = ["AcceptOptions", "Accepted", "accept", "find_image", "stored_spec", "wishes_of"]

SPEC_VERSION = "1.1"
_UUID = re.compile(r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
# Which field of an entry an error of writing it is about; of all others it is the networks.
_PLACES: dict[type[errors.BootflowError], str] = {errors.InstanceNotFound: "scheduler_hints"}


@dataclass
class Accepted:
    """What became of the wished instances, each in exactly one of the lists (rows of the ledger's instances)."""

    reservation_id: str | None = None
    created: list[str] = field(default_factory=list)  # uuids
    resumed: list[str] = field(
        default_factory=list
    )  # a dead run left them half-built, or an earlier build ended in ERROR
    unchanged: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return bool(self.created or self.resumed)


@dataclass(frozen=True)
class AcceptOptions:
    quotas: t.Mapping[str, t.Any] = field(default_factory=dict)
    force_config_drive: bool = True
    networks: t.Mapping[str, Network] = field(default_factory=dict)  # by id and by name
    volumes: BootVolumeOptions = field(default_factory=BootVolumeOptions)


def accept(conn: t.Any, requests: t.Sequence[ServerRequest], options: AcceptOptions, context: Context) -> Accepted:
    """Write what is new of ``requests``; take over what a dead run left; leave alone what is as asked.

    :raises InvalidRequest: with every refusal of every entry (InstanceExists, InstanceBusy, OverQuota, addresses...).
        Nothing is written then: the caller's transaction is to be rolled back.
    """
    now = context.now
    runs.renew(conn, context.run, now, context.lease_seconds)
    take_turns(conn, "project", [r.project for r in requests])  # names and quotas are theirs
    accepted = Accepted()
    refusals = Problems()
    digests = [expand.request_digest(r) for r in requests]
    wanted = [expand.instance_names(r, r.max_count) for r in requests]
    living = _living(conn, requests, wanted)
    dead = runs.dead_among(conn, [r.run_id for r in living.values()], context.run, now)
    asked: set[tuple[str, str]] = set()
    resume: list[t.Any] = []
    new: list[list[str]] = []
    for index, (request, digest, names) in enumerate(zip(requests, digests, wanted)):
        there = [living[request.project, n] for n in names if (request.project, n) in living]
        for row in there:
            error = _compare(conn, row, digest, accepted, resume, context, dead)
            if error is not None:
                refusals.add("instances[%d].name" % index, error)
        for name in names:
            if (request.project, name) in asked:
                refusals.add("instances[%d].name" % index, _asked_twice(name))
            asked.add((request.project, name))
        new.append([n for n in names if (request.project, n) not in living])
    try:
        _fit_quota(conn, requests, wanted, new, options.quotas)
    except errors.BootflowError as e:
        refusals.add(_quota_path(requests, e), e)
    planned = boot_volumes.read(conn, requests, new, options.volumes, context, refusals, [r.uuid for r in resume])
    _enter_groups(conn, requests, new, options.quotas, now, refusals)
    if not refusals.errors:
        networks = [n for r in requests for _w, n in _network_wishes(r.networks, options.networks)]
        allocator = ports.Allocator(conn, context.rng, now, networks)
        keeper = boot_volumes.Keeper(conn, options.volumes, context)
        for index, (plan, digest, names) in enumerate(zip(planned, digests, new)):
            if not names:
                continue
            try:
                _insert(conn, plan, digest, names, options, context, allocator, keeper, accepted)
            except errors.InvalidRequest as e:
                refusals.extend(e.errors)  # of volumes, each with its own path
            except errors.BootflowError as e:
                refusals.add("instances[%d].%s" % (index, _PLACES.get(type(e), "networks")), e)
        if not refusals.errors:
            allocator.write()
            keeper.write()
            _take_over(conn, resume, options, context, accepted, refusals)
    refusals.raise_if_any()
    return accepted


def _quota_path(requests: t.Sequence[ServerRequest], error: errors.BootflowError) -> str:
    """The entry that the quota has no room for."""
    for index, request in enumerate(requests):
        if request.name == error.details.get("request"):
            return "instances[%d].count" % index
    return "instances"


def _living(
    conn: t.Any, requests: t.Sequence[ServerRequest], wanted: t.Sequence[t.Sequence[str]]
) -> dict[tuple[str, str], t.Any]:
    found = {}
    for project in sorted({r.project for r in requests}):
        names = sorted({n for r, part in zip(requests, wanted) if r.project == project for n in part})
        for part in history.chunks(names):
            for row in instances.select_live(conn, names=part, project=project, lock=True):
                found[row.project, row.display_name] = row
    return found


def _asked_twice(name: str) -> errors.BootflowError:
    return errors.InvalidInput(
        reason="the name %s is asked for twice" % name, remedy="Give each entry a name of its own."
    )


def _compare(
    conn: t.Any,
    row: t.Any,
    digest: t.Mapping[str, t.Any],
    accepted: Accepted,
    resume: list[t.Any],
    context: Context,
    dead: set[str],
) -> errors.BootflowError | None:
    differences = expand.describe_difference(row.digest, digest)
    if differences:
        return errors.InstanceExists(name=row.display_name, reason="; ".join(differences))
    building = row.vm_state == states.BUILDING
    if not building and row.task_state is None and not (row.vm_state == states.ERROR and row.launched_at is None):
        accepted.unchanged.append(row.uuid)
        return None
    alive = row.run_id and row.run_id != context.run.id and row.run_id not in dead
    if alive and (building or row.task_state is not None):
        return runs.locked_error(conn, row.display_name, row.run_id)
    if row.task_state == states.DELETING:
        return errors.InstanceInvalidState(
            method="boot",
            instance_uuid=row.uuid,
            attr="task_state",
            state=row.task_state,
            remedy="Finish the deletion first: run bootflow.compute.delete for it again.",
        )
    resume.append(row)
    return None


def _take_over(
    conn: t.Any,
    rows: t.Sequence[t.Any],
    options: AcceptOptions,
    context: Context,
    accepted: Accepted,
    refusals: Problems,
) -> None:
    """A half-built instance goes on where it is: every stage can be done twice. A failed one starts anew."""
    c = instances_table.c
    now = context.now
    boot_volumes.take_over(conn, [r.uuid for r in rows if r.vm_state == states.BUILDING], context)
    for row in rows:
        again = row.vm_state != states.BUILDING
        values: dict[str, t.Any] = {"run_id": context.run.id, "vm_state": states.BUILDING, "updated_at": now}
        if again or row.host is None:
            values.update(task_state=states.SCHEDULING, host=None, node=None)
            if again:
                values.update(retry=None)
                try:
                    boot_volumes.begin_anew(conn, row, options.volumes, context)
                except errors.InvalidRequest as e:
                    refusals.extend(e.errors)
                except errors.BootflowError as e:
                    refusals.add(row.display_name, e)
                history.start_actions(conn, [row.uuid], "create", context.request_id, row.project, context.actor, now)
        else:
            values.update(task_state=None)
            history.start_events(conn, [row.uuid], "resume", row.host, now)
            history.finish_events(
                conn, [row.uuid], "resume", history.SUCCESS, now, "taken over from run %s" % row.run_id
            )
        conn.execute(instances_table.update().where(c.uuid == row.uuid).values(**values))
        accepted.resumed.append(row.uuid)


def _fit_quota(
    conn: t.Any,
    requests: t.Sequence[ServerRequest],
    wanted: t.Sequence[t.Sequence[str]],
    new: list[list[str]],
    limits: t.Mapping[str, t.Any],
) -> None:
    """Cut each entry's new names to what the project's quota lets in; OverQuota below min_count."""
    missing = [
        replace(r, min_count=max(r.min_count - (len(all_names) - len(names)), 0) if names else 0, max_count=len(names))
        for r, all_names, names in zip(requests, wanted, new)
    ]
    counts = quotas.fit_projects(missing, instances.usage(conn, {r.project for r in requests}), limits)
    for index, count in enumerate(counts):
        new[index] = new[index][:count]


def _enter_groups(
    conn: t.Any,
    requests: t.Sequence[ServerRequest],
    new: t.Sequence[t.Sequence[str]],
    limits: t.Mapping[str, t.Any],
    now: float,
    refusals: Problems,
) -> None:
    """Server groups of the requests, each with room for its new members."""
    used = {
        r.server_group.id: r.server_group for r, names in zip(requests, new) if r.server_group is not None and names
    }
    members = groups.count_members(conn, used)
    for index, (request, names) in enumerate(zip(requests, new)):
        group = request.server_group
        if group is None or not names:
            continue
        try:
            groups.ensure(conn, group, now)
            if request.check_server_group_quota:
                room = quotas.limits_of(limits, request.project)
                quotas.check_group_members(group, members[group.id], len(names), room)
            members[group.id] += len(names)
        except errors.BootflowError as e:
            refusals.add("instances[%d].scheduler_hints.group" % index, e)


def resolved_hints(conn: t.Any, request: ServerRequest) -> dict[str, t.Any]:
    """The hints with the UUIDs of the instances that they name: a name may be another instance's later.

    :raises InstanceNotFound: nothing of that name lives in the project.
    """
    hints = dict(request.scheduler_hints)
    for hint in ("same_host", "different_host"):
        if hint not in hints:
            continue
        named = [hints[hint]] if isinstance(hints[hint], str) else list(hints[hint])
        names = [n for n in named if not _UUID.match(n)]
        living = {r.display_name: r.uuid for r in instances.select_live(conn, names=names, project=request.project)}
        for name in names:
            if name not in living:
                raise errors.InstanceNotFound(instance_id=name)
        hints[hint] = [living.get(n, n) for n in named]
    return hints


def _insert(
    conn: t.Any,
    plan: Planned,
    digest: t.Mapping[str, t.Any],
    names: t.Sequence[str],
    options: AcceptOptions,
    context: Context,
    allocator: ports.Allocator,
    keeper: boot_volumes.Keeper,
    accepted: Accepted,
) -> None:
    now = context.now
    request = plan.request
    if accepted.reservation_id is None:
        accepted.reservation_id = identifiers.reservation_id(context.rng)
        conn.execute(
            reservations.insert().values(
                id=accepted.reservation_id,
                project=request.project,
                user_name=context.actor,
                request_id=context.request_id,
                created_at=now,
            )
        )
    image_properties = plan.meta.properties if plan.meta is not None else {}
    wishes = _network_wishes(request.networks, options.networks)
    spec_id = conn.execute(
        request_specs.insert().values(
            reservation_id=accepted.reservation_id,
            spec_version=SPEC_VERSION,
            digest=digest,
            spec={
                **stored_spec(request, wishes, resolved_hints(conn, request)),
                "image": image_data(plan.meta),
                "is_bfv": plan.volume_backed,  # the image itself may map its root to a volume
                "cross_az_attach": options.volumes.cross_az_attach,
            },
        )
    ).inserted_primary_key[0]
    all_names = expand.instance_names(request, request.max_count)
    rows, uuids = [], []
    for name in names:
        uuid = str(uuid_module.UUID(int=context.rng.getrandbits(128), version=4))
        uuids.append(uuid)
        rows.append(
            {
                "uuid": uuid,
                "reservation_id": accepted.reservation_id,
                "request_spec_id": spec_id,
                "project": request.project,
                "user_name": context.actor,
                "display_name": name,
                "hostname": instance_hostname(request.name, name, uuid, request.hostname),
                "domain_name": domain_name(name, uuid),
                "launch_index": all_names.index(name),
                "vm_state": states.BUILDING,
                "task_state": states.SCHEDULING,
                "power_state": states.NOSTATE,
                "availability_zone": request.availability_zone,
                "memory_mb": request.flavor.memory_mb,
                "vcpus": request.flavor.vcpus,
                "root_gb": 0 if plan.volume_backed else request.flavor.root_gb,
                "ephemeral_gb": request.flavor.ephemeral_gb,
                "swap_mb": request.flavor.swap,
                "config_drive": config_drive_rules.config_drive_wanted(
                    options.force_config_drive, request.config_drive, image_properties
                ),
                "key_name": request.key_name,
                "server_group_id": request.server_group.id if request.server_group is not None else None,
                "run_id": context.run.id,
                "created_at": now,
                "updated_at": now,
                "deleted": instances.LIVE,
            }
        )
    conn.execute(instances_table.insert(), rows)
    disk_rows = []
    for uuid in uuids:
        disks = [d.as_dict() for d in keeper.keep(plan, uuid)]
        disk_rows += [
            {"instance_uuid": uuid, "position": i, "device_name": d["device_name"], "disk": d}
            for i, d in enumerate(disks)
        ]
    if disk_rows:
        conn.execute(block_device_mappings.insert(), disk_rows)
    history.start_actions(conn, uuids, "create", context.request_id, request.project, context.actor, now)
    for uuid in uuids:
        allocator.add(uuid, wishes)
    accepted.created.extend(uuids)


def _network_wishes(
    wishes: t.Sequence[NetworkRequest], networks: t.Mapping[str, Network]
) -> list[tuple[NetworkRequest, Network]]:
    return [(w, networks[w.network]) for w in wishes if w.network is not None]


def wishes_of(spec: t.Mapping[str, t.Any]) -> list[tuple[NetworkRequest, Network]]:
    """The interfaces a stored request asks for, with the networks as they were when it was accepted."""
    networks = {n["id"]: ports.network_from(n) for n in spec["network_definitions"]}
    return [(NetworkRequest(**w), networks[w["network"]]) for w in spec["networks"]]


def stored_spec(
    request: ServerRequest, wishes: t.Sequence[tuple[NetworkRequest, Network]], hints: t.Mapping[str, t.Any]
) -> dict[str, t.Any]:
    return {
        "flavor": {**asdict(request.flavor), "extra_specs": dict(request.flavor.extra_specs)},
        "image": image_data(request.image or request.root_image),
        "availability_zone": request.availability_zone,
        "forced_host": request.forced_host,
        "forced_node": request.forced_node,
        "scheduler_hints": dict(hints),
        "metadata": dict(request.metadata),
        "description": request.description,
        "disk_config": request.disk_config,
        "access_ip_v4": request.access_ip_v4,
        "access_ip_v6": request.access_ip_v6,
        "key_name": request.key_name,
        "key_data": request.key_data,
        "networks": [{**asdict(w), "network": n.id} for w, n in wishes],
        "network_definitions": [asdict(n) for n in {n.id: n for _w, n in wishes}.values()],
        "min_count": request.min_count,
        "max_count": request.max_count,
        "numa_topology": request.numa_topology.as_dict() if request.numa_topology is not None else None,
        "pci_requests": [p.as_dict() for p in request.pci_requests],
        "whole_disks": [d.as_dict() for d in request.whole_disks],
        "is_bfv": request.volume_backed,
    }


def find_image(images: t.Iterable[Image], data: t.Mapping[str, t.Any]) -> Image:
    """The image of a stored request: the catalogue's while it is the same file, else as it was when it was accepted."""
    for image in images:
        if image.id == data["id"] and image.checksum == data["checksum"]:
            return image
    return Image(**data)
