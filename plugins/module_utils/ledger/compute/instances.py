# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instance rows: selecting them, and changing their states by compare-and-swap.

source: Nova's instance.save(expected_task_state=...)
"""

from __future__ import annotations

import functools
import typing as t

from ...core import errors
from ...core.instances import states
from ...core.plans.plan_states import PREFIX
from ..db.database_kind import DatabaseKind
from ..db.sqlalchemy_import import sa
from ..db.this_run import NOTIFY_NOTHING, NOTIFY_VM_AND_TASK_STATE
from ..db.transaction import Transaction
from ..fast import bulk
from ..fast.compiled_statement import CompiledStatement
from ..schema.tables import block_device_mappings, instances, ports, request_specs, runs
from . import history, requests

LIVE = ""  # value of the column `deleted` of a live instance


class InstanceStates:
    """States of an instance in its life."""

    uuid: str
    vm_state: str
    task_state: str | None


class InstanceAtWork(InstanceStates):
    """An instance in a task_state: what in_task_states() reads."""

    host: str | None
    run_id: str | None  # the run that works on it, or worked on it last
    updated_at: float  # seconds since the epoch


class InstancePower(InstanceAtWork):
    """An instance and what is known of its guest: what powers() reads."""

    display_name: str
    power_state: int


class InstanceSize(InstanceAtWork):
    """An instance, live or deleted, with its use of the node, for living_and(). Memory is MB, disk GB."""

    display_name: str
    node: str | None
    memory_mb: int
    vcpus: int
    root_gb: int
    ephemeral_gb: int
    request_spec_id: int
    deleted_at: float | None
    deleted: str  # LIVE while it lives, its uuid afterwards


class InstanceRow(InstanceSize):
    """A row of instances, with all columns. Times are seconds since the epoch."""

    reservation_id: str
    project: str
    user_name: str
    hostname: str
    domain_name: str  # libvirt's
    launch_index: int
    power_state: int
    launched_on: str | None  # the host that it was placed on last
    availability_zone: str | None
    swap_mb: int
    config_drive: bool
    key_name: str | None
    limits: dict[str, t.Any] | None  # of its host, as the scheduler set them
    retry: dict[str, t.Any] | None  # core.instances.retry: the hosts that were tried
    created_at: float
    scheduled_at: float | None
    launched_at: float | None
    server_group_id: str | None
    locked_by: str | None  # the user without whom nothing can be done with it
    locked_reason: str | None
    machine_type: str | None  # that it was booted with, where its image names none
    ssh_host_key: str | None  # the public key, where its config drive has the private one


class Instance(InstanceRow):
    """The row of an instance, with ``spec`` and ``digest`` of the request it came from, which the rows of a request share."""

    def __init__(self, row: t.Mapping[str, t.Any], spec: dict[str, t.Any], digest: dict[str, t.Any]):
        self.__dict__.update(row)
        self.spec = spec
        self.digest = digest


class PlacedInstance(Instance):
    """An instance that has a host."""

    host: str
    node: str


def is_placed(row: Instance) -> t.TypeGuard[PlacedInstance]:
    return row.host is not None


class BuildOfRun:
    """A build and the run that works on it, or worked on it: what builds_of_expired_runs() reads."""

    uuid: str
    host: str | None
    run_id: str


class InstanceOnHost:
    """An instance on its host: what on_hosts() reads."""

    uuid: str
    display_name: str
    launch_index: int
    host: str
    project: str
    request_spec_id: int
    server_group_id: str | None


def swap(
    tx: Transaction,
    uuids: t.Sequence[str],
    expected_task_state: t.Sequence[str | None],
    owner: str | None = None,
    notify: str = NOTIFY_NOTHING,
    through: t.Sequence[str] = (),
    **values: t.Any,
) -> set[str]:
    """Write ``values`` to the instances whose task_state is one of ``expected_task_state`` (and whose run is ``owner``,
    if given). Returns the changed uuids; the others lost the swap, which is a valid result.

    :arg through: task states that they have passed since, in order: each is notified of.
    """
    if not uuids:
        return set()
    c = instances.c
    named = [e for e in expected_task_state if e is not None]
    state: sa.ColumnElement[bool] = c.task_state.in_(named)
    if None in expected_task_state:
        state = sa.or_(state, c.task_state.is_(None))
    condition = sa.and_(bulk.among(tx, c.uuid, sorted(uuids)), c.deleted == LIVE, state)
    if owner is not None:
        condition = sa.and_(condition, c.run_id == owner)
    query = sa.select(c.uuid, c.vm_state, c.task_state).where(condition).order_by(c.uuid).with_for_update()
    rows = tx.rows(query, InstanceStates)
    moved = [r.uuid for r in rows]
    if moved:
        tx.execute(instances.update().where(bulk.among(tx, c.uuid, moved)).values(updated_at=tx.now, **values))
        before = {r.uuid: (r.vm_state, r.task_state) for r in rows}
        for task_state in through:
            _notify_change(tx, before, {"task_state": task_state}, notify)
            before = {uuid: (vm_state, task_state) for uuid, (vm_state, _task_state) in before.items()}
        _notify_change(tx, before, values, notify)
    return set(moved)


def _notify_change(
    tx: Transaction, before: t.Mapping[str, tuple[str | None, str | None]], values: t.Mapping[str, t.Any], notify: str
) -> None:
    """:arg before: uuid -> (vm_state, task_state); of a new instance (None, None). source: Nova's notifications.send_update"""
    if notify == NOTIFY_NOTHING:
        return
    payloads = {}
    for uuid, (old_state, old_task_state) in before.items():
        vm_state, task_state = values.get("vm_state", old_state), values.get("task_state", old_task_state)
        if vm_state != old_state or (task_state != old_task_state and notify == NOTIFY_VM_AND_TASK_STATE):
            payloads[uuid] = {
                "old_state": old_state,
                "state": vm_state,
                "old_task_state": old_task_state,
                "new_task_state": task_state,
            }
    history.notify_each(tx, payloads, "compute.instance.update")


def swap_errors(
    tx: Transaction, uuids: t.Iterable[str], expected: t.Sequence[str | None]
) -> dict[str, errors.BootflowError]:
    """uuid -> why its swap was lost: the instance is deleted, being deleted, or in another state."""
    c = instances.c
    wanted = sorted(uuids)
    if not wanted:
        return {}
    query = sa.select(c.uuid, c.task_state).where(bulk.among(tx, c.uuid, wanted), c.deleted == LIVE)
    task_states = {r.uuid: r.task_state for r in tx.execute(query)}
    swap_failures: dict[str, errors.BootflowError] = {}
    for uuid in wanted:
        if uuid not in task_states:
            swap_failures[uuid] = errors.InstanceNotFound(instance_id=uuid)
            continue
        actual = task_states[uuid]
        deleting = actual == states.DELETING
        kind = errors.UnexpectedDeletingTaskStateError if deleting else errors.UnexpectedTaskStateError
        swap_failures[uuid] = kind(instance_uuid=uuid, expected=", ".join(map(str, expected)), actual=actual)
    return swap_failures


def digests(tx: Transaction, uuids: t.Sequence[str] | None = None) -> list[dict[str, t.Any]]:
    """The digests of these instances, also of deleted ones; None: of all that are not deleted. Each is read once."""
    c = instances.c
    query = sa.select(c.request_spec_id).where(c.deleted == LIVE) if uuids is None else sa.select(c.request_spec_id)
    if uuids is not None:
        query = query.where(bulk.among(tx, c.uuid, sorted(set(uuids))))
    return list(tx.execute(sa.select(request_specs.c.digest).where(request_specs.c.id.in_(query))).scalars())


def select_live(
    tx: Transaction,
    names: t.Sequence[str] | None = None,
    uuids: t.Sequence[str] | None = None,
    reservations: t.Sequence[str] | None = None,
    project: str | None = None,
    run_id: str | None = None,
    hosts: t.Sequence[str] | None = None,
    host: str | None = None,
    task_state: str | None = None,
    vm_state: str | None = None,
    lock: bool = False,
) -> list[Instance]:
    """Rows of the live instances that meet every given condition, joined with their requests.

    :arg lock: lock the rows until the transaction ends, for writes that depend on them.
    """
    c = instances.c
    lists = {"display_name": names, "uuid": uuids, "reservation_id": reservations, "host": hosts}
    values = {"project": project, "run_id": run_id, "host": host, "task_state": task_state, "vm_state": vm_state}
    listed = {"some_" + n: bulk.listed(tx, c[n], set(some)) for n, some in lists.items() if some is not None}
    given = {n: value for n, value in values.items() if value is not None}
    query = _live_query(tx.database_kind, tuple(listed), tuple(given), lock)
    rows = [dict(zip(_COLUMNS, row)) for row in query.tuples(tx, {**listed, **given})]
    return sorted(
        with_specs(tx, rows),
        key=lambda r: (r.project, r.created_at, r.request_spec_id, r.launch_index, r.uuid),
    )


@functools.cache
def _live_query(
    database: DatabaseKind, lists: tuple[str, ...], values: tuple[str, ...], lock: bool
) -> CompiledStatement:
    """Made once for each kind of condition: building and compiling it costs more than running it."""
    c = instances.c
    query = sa.select(instances)
    conditions = {"deleted": c.deleted == LIVE}
    conditions.update({name: c[name] == sa.bindparam(name, type_=c[name].type) for name in values})
    if database.plans_by_statistics and "some_uuid" in lists:
        # In a ledger that has grown since its tables were analyzed, PostgreSQL believes that few rows are live or of a host,
        # and reads all of that index instead of looking up each UUID. What "IS TRUE" is asked of is not looked up.
        conditions = {name: condition.is_(sa.true()) for name, condition in conditions.items()}
    elif database.plans_by_statistics and "some_display_name" in lists and "project" in values:
        named = _named_rows()
        query = query.join(named, sa.and_(*(c[n] == named.c[n] for n in ("project", "display_name", "deleted"))))
        lists = tuple(n for n in lists if n != "some_display_name")
        del conditions["deleted"], conditions["project"]
    query = query.where(*conditions.values())
    for name in lists:
        query = query.where(bulk.among_named(database, c[name.removeprefix("some_")], name))
    return CompiledStatement(query.order_by(c.uuid).with_for_update(of=instances) if lock else query)


def _named_rows() -> sa.Subquery:
    """Return the keys of uq_instances_name for a list of names in one project, as rows: for the same reason, PostgreSQL would read all
    of a project's rows where project and ``deleted`` are separate conditions. It keeps a subquery that unnests apart, and
    sees neither of the two in it."""
    of_text = sa.String()
    words = bulk.each_named("some_display_name", of_text)
    project = sa.cast(sa.bindparam("project", type_=of_text), of_text)
    deleted = sa.cast(sa.literal(LIVE, of_text), of_text)
    return sa.select(words.label("display_name"), project.label("project"), deleted.label("deleted")).subquery("named")


_COLUMNS = tuple(c.name for c in instances.c) if sa else ()


def names(tx: Transaction, project: str | None = None) -> set[str]:
    """Names of the live instances, of all projects or of one."""
    c = instances.c
    query = sa.select(c.display_name).where(c.deleted == LIVE)
    return set(tx.execute(query if project is None else query.where(c.project == project)).scalars())


def projects(tx: Transaction) -> set[str]:
    """Projects with live instances."""
    c = instances.c
    return set(tx.execute(sa.select(c.project).where(c.deleted == LIVE).distinct()).scalars())


def add(tx: Transaction, rows: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """Enter new instances."""
    bulk.insert(tx, instances, rows)
    new = {
        "vm_state": states.BUILDING
    }  # the notification is of the state alone. source: Nova's schedule_and_build_instances
    _notify_change(tx, {r["uuid"]: (None, None) for r in rows}, new, tx.context.notify_on_state_change)


def enter_adopted(tx: Transaction, rows: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """Enter instances whose guests exist already. The row of an instance that was released is used again, with its history."""
    c = instances.c
    condition = (bulk.among(tx, c.uuid, sorted(r["uuid"] for r in rows)), c.deleted != LIVE)
    before = set(tx.execute(sa.select(c.uuid).where(*condition).with_for_update()).scalars()) if rows else set()
    empty = {column.name: None for column in c if column.nullable}
    bulk.insert(tx, instances, [row for row in rows if row["uuid"] not in before])
    for row in rows:
        if row["uuid"] in before:
            tx.execute(instances.update().where(c.uuid == row["uuid"]).values({**empty, **row}))
    for row in rows:
        _notify_change(tx, {row["uuid"]: (None, None)}, row, tx.context.notify_on_state_change)


def add_disks(tx: Transaction, disks: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]]) -> None:
    """Enter the planned disks of instances: uuid -> its disks in order."""
    rows = [
        {"instance_uuid": uuid, "position": position, "device_name": disk["device_name"], "disk": disk}
        for uuid, planned in disks.items()
        for position, disk in enumerate(planned)
    ]
    bulk.insert(tx, block_device_mappings, rows)


def replace_disk(tx: Transaction, uuid: str, position: int, disk: t.Mapping[str, t.Any]) -> None:
    """Replace the planned disk at that position of the instance."""
    c = block_device_mappings.c
    condition = sa.and_(c.instance_uuid == uuid, c.position == position)
    tx.execute(block_device_mappings.update().where(condition).values(disk=disk))


def exchange_disk(tx: Transaction, uuid: str, device_name: str | None, disk: t.Mapping[str, t.Any]) -> None:
    """Replace the planned disk of that device name of the instance."""
    c = block_device_mappings.c
    condition = sa.and_(c.instance_uuid == uuid, c.device_name == device_name)
    tx.execute(block_device_mappings.update().where(condition).values(disk=dict(disk)))


def exchange_disks(tx: Transaction, disks: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]]) -> None:
    """Write the planned disks of instances again: uuid -> its disks in order."""
    if disks:
        c = block_device_mappings.c
        tx.execute(block_device_mappings.delete().where(bulk.among(tx, c.instance_uuid, sorted(disks))))
        add_disks(tx, disks)


def write(tx: Transaction, uuids: t.Sequence[str], **values: t.Any) -> None:
    """Write ``values`` to these instances, whose rows the caller has locked."""
    if uuids:
        tx.execute(instances.update().where(bulk.among(tx, instances.c.uuid, uuids)).values(**values))


def rename_domains(tx: Transaction, names: t.Mapping[str, str]) -> None:
    """Write the name of each instance's domain (uuid -> name), whose rows the caller has locked."""
    bulk.update(tx, instances, "uuid", [{"uuid": uuid, "domain_name": name} for uuid, name in names.items()])


def write_machine_types(tx: Transaction, machine_types: t.Mapping[str, str | None]) -> None:
    """Write the machine type that each instance keeps (uuid -> type; None: its image names it)."""
    bulk.update(tx, instances, "uuid", [{"uuid": u, "machine_type": kind} for u, kind in machine_types.items()])


def write_ssh_host_keys(tx: Transaction, keys: t.Mapping[str, str | None]) -> None:
    """Write the public SSH host key of each guest (uuid -> line; None: it is not known)."""
    bulk.update(tx, instances, "uuid", [{"uuid": uuid, "ssh_host_key": key} for uuid, key in keys.items()])


def lock(tx: Transaction, uuids: t.Iterable[str]) -> None:
    """Lock these instances, live or deleted, by uuid, until the transaction ends."""
    c = instances.c
    condition = bulk.among(tx, c.uuid, sorted(set(uuids)))
    tx.execute(sa.select(c.uuid).where(condition).order_by(c.uuid).with_for_update()).all()


def any_of(tx: Transaction, uuid: str) -> InstanceRow | None:
    """The row of the instance, live or deleted, or None."""
    return next(iter(tx.rows(sa.select(instances).where(instances.c.uuid == uuid), InstanceRow)), None)


def last_deleted(tx: Transaction, names: t.Sequence[str], project: str | None = None) -> list[InstanceRow]:
    """The rows of the deleted instances that had these names last, in each project or in one, by name."""
    c = instances.c
    conditions = [
        bulk.among(tx, c.display_name, names),
        c.deleted != LIVE,
        *([] if project is None else [c.project == project]),
    ]
    query = sa.select(instances).where(*conditions).order_by(c.display_name, c.project, c.deleted_at)
    rows = tx.rows(query, InstanceRow) if names else []
    return list({(r.display_name, r.project): r for r in rows}.values())


def whatever_became_of(tx: Transaction, uuids: t.Collection[str]) -> list[InstanceRow]:
    """The rows of these instances, live or deleted, by uuid."""
    query = sa.select(instances).where(bulk.among(tx, instances.c.uuid, sorted(uuids))).order_by(instances.c.uuid)
    return tx.rows(query, InstanceRow) if uuids else []


def living_and(tx: Transaction, named: t.Iterable[str]) -> dict[str, InstanceSize]:
    """uuid -> row of every live instance, and of the deleted ones among ``named``."""
    c = instances.c
    who = (c.uuid, c.display_name, c.host, c.node, c.vm_state, c.task_state, c.run_id)
    size = (c.memory_mb, c.vcpus, c.root_gb, c.ephemeral_gb, c.request_spec_id)
    query = sa.select(*who, c.deleted, c.deleted_at, c.updated_at, *size)
    rows = {r.uuid: r for r in tx.rows(query.where(c.deleted == LIVE), InstanceSize)}
    deleted_rows = bulk.among(tx, c.uuid, sorted(set(named) - set(rows)))
    return {**rows, **{r.uuid: r for r in tx.rows(query.where(deleted_rows), InstanceSize)}}


def on_hosts(tx: Transaction, hosts: t.Collection[str] | None = None) -> list[InstanceOnHost]:
    """Rows of the live instances that have a host and are not being deleted, by host and request.

    :arg hosts: only of these hosts.
    """
    c = instances.c
    columns = (c.uuid, c.display_name, c.launch_index, c.host, c.project, c.request_spec_id, c.server_group_id)
    stays = sa.or_(c.task_state.is_(None), c.task_state != states.DELETING)
    query = sa.select(*columns).where(c.deleted == LIVE, c.host.is_not(None), stays)
    if hosts is not None:
        query = query.where(bulk.among(tx, c.host, sorted(hosts)))
    return sorted(tx.rows(query, InstanceOnHost), key=lambda r: (r.host, r.request_spec_id, r.launch_index, r.uuid))


def names_with_host(tx: Transaction, project: str, names: t.Sequence[str]) -> dict[str, str]:
    """The names of the project's live instances with a host, out of ``names``, each with the name of the entry that made it."""
    c, r = instances.c, request_specs.c
    query = sa.select(c.display_name, r.digest["name"].as_string()).join(request_specs, r.id == c.request_spec_id)
    conditions = (c.project == project, bulk.among(tx, c.display_name, names), c.deleted == LIVE, c.host.is_not(None))
    return dict(tx.execute(query.where(*conditions)).all())


def hosts_with_instances(tx: Transaction) -> set[str]:
    """Hosts with live instances."""
    c = instances.c
    return set(tx.execute(sa.select(c.host).where(c.deleted == LIVE, c.host.is_not(None)).distinct()).scalars())


def groups_of(tx: Transaction, uuids: t.Iterable[str]) -> dict[str, str | None]:
    """uuid -> id of its server group, or None."""
    c = instances.c
    condition = bulk.among(tx, c.uuid, sorted(set(uuids)))
    return dict(tx.execute(sa.select(c.uuid, c.server_group_id).where(condition)).all())


def builds_of_expired_runs(tx: Transaction, run_id: str, host: str | None = None) -> list[BuildOfRun]:
    """Return the builds (on ``host``) of runs with an expired lease; without builds of ``run_id``, of plans, and builds being deleted."""
    c = instances.c
    query = (
        sa.select(c.uuid, c.host, c.run_id)
        .join(runs, runs.c.id == c.run_id)
        .where(
            c.deleted == LIVE,
            c.vm_state == states.BUILDING,
            c.run_id != run_id,
            runs.c.lease_until <= tx.now,
            sa.func.substr(c.run_id, 1, len(PREFIX)) != PREFIX,
            sa.or_(c.task_state.is_(None), c.task_state != states.DELETING),
        )
        .order_by(c.uuid)
    )
    return tx.rows(query if host is None else query.where(c.host == host), BuildOfRun)


def builds_taken_over(tx: Transaction, host: str | None = None) -> list[BuildOfRun]:
    """The builds (on ``host``) that this run has taken over from dead runs, where they are on a host."""
    c = instances.c
    conditions = (_builds_of(tx.run.id), c.host.is_not(None) if host is None else c.host == host)
    builds = tx.rows(sa.select(c.uuid, c.host, c.run_id).where(*conditions).order_by(c.uuid), BuildOfRun)
    resumed = history.with_event(tx, [r.uuid for r in builds], "resume") if builds else ()
    return [r for r in builds if r.uuid in resumed]


def has_builds(tx: Transaction, run_id: str) -> bool:
    """Whether a build of this run has not ended."""
    return tx.execute(sa.select(instances.c.uuid).where(_builds_of(run_id)).limit(1)).first() is not None


def waits_for_host(tx: Transaction, run_id: str) -> bool:
    """Whether a build of this run waits for a host."""
    return bool(_WAITING.tuples(tx, {"run": run_id}))


def builds_among(tx: Transaction, uuids: t.Sequence[str]) -> list[tuple[str, str | None]]:
    """Return uuid and task_state of the instances that are builds of this run, by uuid."""
    values = {"run": tx.run.id, "uuids": bulk.listed(tx, instances.c.uuid, uuids)}
    return _builds_among(tx.database_kind).tuples(tx, values)


@functools.cache
def _builds_among(database: DatabaseKind) -> CompiledStatement:
    c = instances.c
    of_uuids = bulk.among_named(database, c.uuid, "uuids")
    return CompiledStatement(
        sa.select(c.uuid, c.task_state).where(of_uuids, _builds_of(sa.bindparam("run"))).order_by(c.uuid)
    )


def hosts_of_run(tx: Transaction, run_id: str) -> list[str]:
    """Hosts on which this run has builds."""
    return sorted(host for (host,) in _HOSTS_OF_RUN.tuples(tx, {"run": run_id}))


class BuildsOfRun:
    """The hosts on which this run has builds that do not wait for a host, and whether it has attachments, which
    attachments.instances_to_bind() looks at. Known after the next statement."""

    def __init__(self, tx: Transaction):
        self.hosts: set[str] = set()
        self.with_attachments = False
        _builds_query(tx.database_kind).later(tx, {"run": tx.run.id}, self._take)

    def _take(self, rows: list[t.Any]) -> None:
        ((hosts, attached),) = rows
        self.hosts = set(bulk.texts(hosts))
        self.with_attachments = bool(attached)


@functools.cache
def _builds_query(database: DatabaseKind) -> CompiledStatement:
    return CompiledStatement(
        sa.text(
            "SELECT (SELECT %s FROM instances WHERE run_id = :run AND deleted = '' AND vm_state = 'building'"
            " AND host IS NOT NULL AND (task_state IS NULL OR task_state <> '%s')),"
            " EXISTS (SELECT 1 FROM volume_attachments WHERE run_id = :run AND deleted = '')"
            % (bulk.json_list(database, "DISTINCT host"), states.SCHEDULING)
        )
    )


def _builds_of(run_id: t.Any) -> sa.ColumnElement[bool]:
    c = instances.c
    return sa.and_(c.run_id == run_id, c.deleted == LIVE, c.vm_state == states.BUILDING)


_OF_RUN = _builds_of(sa.bindparam("run"))
_WAITING = CompiledStatement(
    sa.select(instances.c.uuid).where(_OF_RUN, instances.c.task_state == states.SCHEDULING).limit(1)
)
_HOSTS_OF_RUN = CompiledStatement(sa.select(instances.c.host).where(_OF_RUN, instances.c.host.is_not(None)).distinct())


def place(tx: Transaction, placements: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """Write the hosts of claimed instances, which ends their scheduling: {uuid, host, node, limits, retry} each."""
    rows = [
        {**p, "launched_on": p["host"], "task_state": None, "scheduled_at": tx.now, "updated_at": tx.now}
        for p in placements
    ]
    bulk.update(tx, instances, "uuid", rows)
    before = {p["uuid"]: (states.BUILDING, states.SCHEDULING) for p in placements}
    _notify_change(tx, before, {"task_state": None}, tx.context.notify_on_state_change)


def relocate(tx: Transaction, rows: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """Write host and flavor of instances that move, whose rows the caller has locked: {uuid, and the same columns} each."""
    bulk.update(tx, instances, "uuid", [{**row, "updated_at": tx.now} for row in rows])


def with_specs(tx: Transaction, rows: t.Sequence[dict[str, t.Any]]) -> list[Instance]:
    """Rows of instances with their requests; each request is read once."""
    specs = requests.specs(tx, {r["request_spec_id"] for r in rows})
    return [Instance(r, specs[r["request_spec_id"]].spec, specs[r["request_spec_id"]].digest) for r in rows]


def in_task_states(
    tx: Transaction, task_states: t.Iterable[str], host: str | None = None, uuids: t.Iterable[str] | None = None
) -> list[InstanceAtWork]:
    """uuid, host, vm_state, task_state, run_id and updated_at of the live instances in these task_states, by uuid."""
    c = instances.c
    columns = (c.uuid, c.host, c.vm_state, c.task_state, c.run_id, c.updated_at)
    query = sa.select(*columns).where(c.deleted == LIVE, c.task_state.in_(sorted(task_states)))
    if host is not None:
        query = query.where(c.host == host)
    if uuids is not None:
        query = query.where(bulk.among(tx, c.uuid, sorted(uuids)))
    query = query.order_by(c.uuid)
    return tx.rows(query.with_for_update() if uuids is not None else query, InstanceAtWork)


def powers(
    tx: Transaction, hosts: t.Collection[str] | None = None, uuids: t.Collection[str] | None = None
) -> list[InstancePower]:
    """The live instances on these ``hosts``; or these ``uuids``, locked until the transaction ends. By uuid."""
    c = instances.c
    columns = (c.uuid, c.display_name, c.host, c.vm_state, c.task_state, c.power_state, c.run_id, c.updated_at)
    query = sa.select(*columns).where(c.deleted == LIVE).order_by(c.uuid)
    if hosts is not None:
        query = query.where(bulk.among(tx, c.host, sorted(hosts)))
    if uuids is not None:
        query = query.where(bulk.among(tx, c.uuid, sorted(uuids))).with_for_update()
    return tx.rows(query, InstancePower)


def working_on(tx: Transaction, uuids: t.Collection[str], task_state: str) -> set[str]:
    """Return the instances that this run has in ``task_state``."""
    c = instances.c
    conditions = (
        bulk.among(tx, c.uuid, sorted(uuids)),
        c.deleted == LIVE,
        c.run_id == tx.run.id,
        c.task_state == task_state,
    )
    return set(tx.execute(sa.select(c.uuid).where(*conditions)).scalars()) if uuids else set()


def kept_on(tx: Transaction, host: str, uuids: t.Collection[str]) -> set[str]:
    """Return the instances that are on ``host``, and that neither this run works on nor any run deletes: they keep what they have there."""
    return {uuid for _host, uuid in pairs_to_keep(tx, {(host, uuid) for uuid in uuids})}


def pairs_to_keep(tx: Transaction, pairs: t.Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """The same for many hosts. {(host, instance's uuid)}"""
    c = instances.c
    live_instances = (bulk.among(tx, c.uuid, sorted({uuid for _host, uuid in pairs})), c.deleted == LIVE)
    query = sa.select(c.uuid, c.host, c.vm_state, c.task_state, c.run_id).where(*live_instances)
    rows = [r for r in tx.execute(query) if (r.host, r.uuid) in pairs] if pairs else []
    at_work = {r.uuid for r in rows if r.run_id == tx.run.id and (r.task_state or r.vm_state == states.BUILDING)}
    return {(r.host, r.uuid) for r in rows if r.uuid not in at_work and r.task_state != states.DELETING}


def leave_hosts(tx: Transaction, places: t.Collection[tuple[str, str]], task_state: str) -> None:
    """Instances that are on one of these hosts and in this task_state are on no host any more. [(uuid, host)]"""
    c = instances.c
    condition = bulk.among(tx, c.uuid, sorted({uuid for uuid, _host in places}))
    query = sa.select(c.uuid, c.host).where(condition, c.task_state == task_state)
    leaving = [r.uuid for r in tx.execute(query) if (r.uuid, r.host) in places] if places else []
    if leaving:
        tx.execute(instances.update().where(bulk.among(tx, c.uuid, leaving)).values(host=None, node=None))


def bury(tx: Transaction, uuids: t.Sequence[str]) -> None:
    """Mark these instances as deleted: their names become free, their disks are removed."""
    if not uuids:
        return
    c = instances.c
    disks = block_device_mappings
    tx.execute(disks.delete().where(bulk.among(tx, disks.c.instance_uuid, uuids)))
    deleted_values: dict[str, t.Any] = {
        "deleted": sa.cast(c.uuid, sa.String),
        "deleted_at": tx.now,
        "vm_state": states.DELETED,
        "task_state": None,
        "power_state": states.NOSTATE,
        "host": None,
        "node": None,
    }
    condition = bulk.among(tx, c.uuid, uuids)
    rows = tx.rows(sa.select(c.uuid, c.vm_state, c.task_state).where(condition).order_by(c.uuid), InstanceStates)
    tx.execute(instances.update().where(condition).values(deleted_values))
    _notify_change(
        tx, {r.uuid: (r.vm_state, r.task_state) for r in rows}, deleted_values, tx.context.notify_on_state_change
    )


def hosts_of(tx: Transaction, uuids: t.Iterable[str]) -> dict[str, str | None]:
    """uuid -> the host of the instance, live or deleted."""
    c = instances.c
    wanted = sorted(uuids)
    if not wanted:
        return {}
    return dict(tx.execute(sa.select(c.uuid, c.host).where(bulk.among(tx, c.uuid, wanted))).all())


def disks_of(tx: Transaction, uuids: t.Sequence[str]) -> dict[str, list[dict[str, t.Any]]]:
    """uuid -> its planned disks (core.disks.block_devices.PlannedDisk as plain data) in order."""
    disks: dict[str, list[dict[str, t.Any]]] = {u: [] for u in uuids}
    if not disks:
        return disks
    c = block_device_mappings.c
    query = sa.select(c.instance_uuid, c.disk).where(bulk.among(tx, c.instance_uuid, uuids))
    for row in tx.execute(query.order_by(c.instance_uuid, c.position)):
        disks[row.instance_uuid].append(row.disk)
    return disks


def add_disk(tx: Transaction, uuid: str, device_name: str, disk: t.Mapping[str, t.Any]) -> None:
    """Append a planned disk to an instance."""
    c = block_device_mappings.c
    last = tx.execute(sa.select(sa.func.max(c.position)).where(c.instance_uuid == uuid)).scalar()
    position = 0 if last is None else last + 1
    values = {"instance_uuid": uuid, "position": position, "device_name": device_name, "disk": dict(disk)}
    tx.execute(block_device_mappings.insert().values(**values))


def remove_disks(tx: Transaction, disks: t.Iterable[tuple[str, str | None]]) -> None:
    """Remove these disks: (uuid of the instance, device name)."""
    c = block_device_mappings.c
    the_disk = (c.instance_uuid == sa.bindparam("b_uuid"), c.device_name == sa.bindparam("b_device"))
    pairs = [{"b_uuid": uuid, "b_device": device} for uuid, device in disks]
    if pairs:
        tx.execute(block_device_mappings.delete().where(*the_disk), pairs)


def usage(tx: Transaction, projects: t.Collection[str]) -> dict[str, dict[str, int]]:
    """Return project -> {instances, cores, ram} of its live instances (quotas are counted, not reserved). As in Nova, instances that are
    deleted and can be restored do not count."""
    c = instances.c
    usage_by_project = {p: {"instances": 0, "cores": 0, "ram": 0} for p in projects}
    counted = sa.and_(c.deleted == LIVE, c.vm_state != states.SOFT_DELETED)
    counted_instances = sa.and_(counted, bulk.among(tx, c.project, sorted(projects)))
    rows = tx.execute(
        sa.select(
            c.project,
            sa.func.count(),
            sa.func.coalesce(sa.func.sum(c.vcpus), 0),
            sa.func.coalesce(sa.func.sum(c.memory_mb), 0),
        )
        .where(counted_instances)
        .group_by(c.project)
    )
    for project, count, cores, ram in rows:
        usage_by_project[project].update(instances=int(count), cores=int(cores), ram=int(ram))
    return usage_by_project


def ports_in_use(tx: Transaction, projects: t.Collection[str]) -> dict[str, int]:
    """project -> its ports: ports of its live instances, and unbound ports that it made. A project without is left out."""
    c, p = instances.c, ports.c
    live_instances = sa.and_(c.deleted == LIVE, bulk.among(tx, c.project, sorted(projects)))
    of_instances = sa.select(c.project).join(ports, p.instance_uuid == c.uuid).where(live_instances)
    unbound = sa.select(p.project).where(bulk.among(tx, p.project, sorted(projects)), p.instance_uuid.is_(None))
    projects_of_ports = sa.union_all(of_instances, unbound).subquery()
    project = projects_of_ports.c.project
    return dict(tx.execute(sa.select(project, sa.func.count()).group_by(project)).all())


def placed_on(tx: Transaction, uuids: t.Collection[str]) -> dict[str, str]:
    """uuid -> its host, of the live instances that have one."""
    if not uuids:
        return {}
    c = instances.c
    of_these = (bulk.among(tx, c.uuid, sorted(uuids)), c.deleted == LIVE, c.host.is_not(None))
    return dict(tx.execute(sa.select(c.uuid, c.host).where(*of_these)).all())


def living(tx: Transaction, uuids: t.Collection[str]) -> set[str]:
    """The live instances out of ``uuids``."""
    if not uuids:
        return set()
    c = instances.c
    of_these = (bulk.among(tx, c.uuid, sorted(uuids)), c.deleted == LIVE)
    return set(tx.execute(sa.select(c.uuid).where(*of_these)).scalars())
