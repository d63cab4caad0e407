# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of a build on its host in the ledger: the builds of a stage, and its results.

source: Nova's _do_build_and_run_instance and _build_and_run_instance; the order of task states is
none -> networking -> block_device_mapping -> spawning -> none.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.instances import build_outcome, states
from ...core.networks.network import Network
from ...core.networks.network_info import PortRecord, build_network_info
from ...core.networks.security_rules import DEFAULT
from ...ledger.compute import claims, history, instances, nodes, ports, runs
from ...ledger.compute.claims import Claimed
from ...ledger.compute.instances import Instance, PlacedInstance
from ...ledger.db.transaction import Transaction
from ...ledger.schema.identity import ledger_id
from ...ledger.storage import attachments
from ...ledger.storage.attachments import Attachment
from ..attachments import life, readiness
from ..instances.cleanup import left_behind
from . import failure
from .planned import may_have_volumes


@dataclass(frozen=True)
class Stage:
    name: str  # the event in the journal
    task_state: str  # while it works


NETWORKING = Stage("networking", states.NETWORKING)
BLOCK_DEVICE_MAPPING = Stage("block_device_mapping", states.BLOCK_DEVICE_MAPPING)
SPAWNING = Stage("spawning", states.SPAWNING)
STAGES = (NETWORKING, BLOCK_DEVICE_MAPPING, SPAWNING)
AT = {stage.task_state: number for number, stage in enumerate(STAGES)}
BEFORE = (None, states.SCHEDULING)  # task states of a build that may begin

# When a build passed stages, in seconds since the epoch: name of the stage -> (begin, end).
Passed = t.Mapping[str, t.Tuple[float, float]]


@dataclass
class Build:
    """One instance being built on a host, with the data for all stages."""

    row: PlacedInstance
    disks: list[dict[str, t.Any]]
    ports: list[tuple[PortRecord, Network]]
    facts: dict[str, t.Any]  # of the node
    zone: str = ""  # of the node
    allocation: Claimed = field(default_factory=Claimed)  # NUMA cells and devices
    resumed: bool = False  # a dead run may already have done this stage
    volumes: dict[str, Attachment] = field(default_factory=dict)  # by the volume's id
    ledger_id: str = ""
    security_groups: t.Sequence[str] = (DEFAULT,)  # their names
    #: The image that its root disk is made from, as a request stores it, where that is not the instance's own.
    made_of: t.Optional[dict[str, t.Any]] = None

    @property
    def image(self) -> dict[str, t.Any]:
        """The image that its root disk is made from, as a request stores it; empty for none."""
        return self.made_of or self.row.spec["image"] or {}

    @property
    def uuid(self) -> str:
        return str(self.row.uuid)

    @property
    def network_info(self) -> list[dict[str, t.Any]]:
        """Nova's, one VIF per port."""
        networks = {network.id: network for _port, network in self.ports}
        return build_network_info([port for port, _network in self.ports], networks, self.row.project)


def begin(tx: Transaction, host: str) -> tuple[list[Build], dict[str, failure.Failed]]:
    """Take the builds of this run on ``host`` into the first stage, by compare-and-swap.

    The result omits builds that lost the swap (being deleted, or adopted by another run), and builds that wait for their
    volumes until the next round. The second part are builds that already failed: without a free address, or with a volume
    that will never exist.
    """
    return _begin(tx, _that_may_begin(tx, [host]))


def begin_each(tx: Transaction, hosts: t.Collection[str]) -> tuple[dict[str, list[Build]], set[str]]:
    """Begin the builds of this run on all of these hosts, in as few statements as for one. Returns host -> builds.

    Builds that may have volumes are left for begin(), which comes after the export: the second part of the result are their
    hosts. Builds without a free address are failed here.
    """
    rows = _that_may_begin(tx, hosts)
    waiting = {r.host for r in rows if may_have_volumes(r)}
    builds, failed = _begin(tx, [r for r in rows if not may_have_volumes(r)])
    if failed:
        host_of = {r.uuid: r.host for r in instances.select_live(tx, uuids=sorted(failed))}
        for host in sorted({h for h in host_of.values() if h is not None}):
            failures_of_host = {u: f for u, f in failed.items() if host_of[u] == host}
            failure.fail_builds(tx, host, NETWORKING.name, failures_of_host)
    builds_by_host: dict[str, list[Build]] = {}
    for build in builds:
        builds_by_host.setdefault(build.row.host, []).append(build)
    return builds_by_host, waiting


def _that_may_begin(tx: Transaction, hosts: t.Collection[str]) -> list[PlacedInstance]:
    runs.renew(tx)
    rows = instances.select_live(tx, run_id=tx.run.id, hosts=sorted(hosts), vm_state=states.BUILDING)
    return [r for r in rows if r.task_state in BEFORE and instances.is_placed(r)]


def _begin(tx: Transaction, rows: list[PlacedInstance]) -> tuple[list[Build], dict[str, failure.Failed]]:
    failed: dict[str, failure.Failed] = {}
    with_volumes = [r.uuid for r in rows if may_have_volumes(r)]
    if with_volumes:
        prospects = readiness.prospects(tx, with_volumes)
        rows = [r for r in rows if r.uuid not in prospects.waiting]
        failed = _without_volumes(tx, prospects.failed)
    if not rows:
        return [], {}
    moved = _swap(tx, [r.uuid for r in rows], BEFORE, task_state=NETWORKING.task_state)
    rows = [r for r in rows if r.uuid in moved]
    history.start_events_on(tx, {r.uuid: r.host for r in rows}, NETWORKING.name)
    history.notify_each(tx, {r.uuid: {"host": r.host} for r in rows}, "compute.instance.create.start")
    failed = {u: f for u, f in failed.items() if u in moved}
    rows = [r for r in rows if r.uuid not in failed]
    have = ports.ports_of(tx, [r.uuid for r in rows])
    refused, allocated = failure.allocate_missing_ports(tx, rows, have)
    failed.update(refused)
    return load(tx, [r for r in rows if r.uuid not in refused], None if allocated else have), failed


def reach(tx: Transaction, stage: Stage, hosts: t.Mapping[str, str], passed: t.Mapping[str, Passed]) -> set[str]:
    """Take these builds of this run (uuid -> host) from earlier stages into ``stage``. Returns the builds that are in it.

    The others were deleted or adopted meanwhile. The caller removes what it made for them on the host, because their new
    owner may have checked the host too early.

    :arg passed: uuid -> when it passed the stages before.
    """
    runs.renew(tx)
    reached: set[str] = set()
    for task_state, uuids in _by_task_state(tx, hosts).items():
        if task_state == stage.task_state:
            reached |= set(uuids)
        elif AT[task_state] < AT[stage.task_state]:
            stages = STAGES[AT[task_state] : AT[stage.task_state]]
            moved = _swap(tx, uuids, [task_state], stages[1:], task_state=stage.task_state)
            _journal_passed(tx, stages, {u: hosts[u] for u in moved}, passed)
            history.start_events_on(tx, {u: hosts[u] for u in moved}, stage.name)
            reached |= moved
    return reached


def _by_task_state(tx: Transaction, uuids: t.Iterable[str]) -> dict[str, list[str]]:
    """Return task_state -> the instances that are builds of this run in a stage."""
    uuids_by_task_state: dict[str, list[str]] = {}
    for uuid, task_state in instances.builds_among(tx, sorted(uuids)):
        if task_state in AT:
            uuids_by_task_state.setdefault(task_state, []).append(uuid)
    return uuids_by_task_state


def _swap(
    tx: Transaction,
    uuids: t.Sequence[str],
    expected: t.Sequence[str | None],
    through: t.Sequence[Stage] = (),
    **values: t.Any,
) -> set[str]:
    return instances.swap(
        tx,
        uuids,
        expected,
        tx.run.id,
        tx.context.notify_on_state_change,
        through=[stage.task_state for stage in through],
        **{"vm_state": states.BUILDING, **values},
    )


def _journal_passed(
    tx: Transaction, stages: t.Sequence[Stage], hosts: t.Mapping[str, str], passed: t.Mapping[str, Passed]
) -> None:
    """Journal the end of the first of ``stages``, which is open, and the whole of the others."""
    for number, stage in enumerate(stages):
        spans = {u: passed.get(u, {}).get(stage.name, (tx.now, tx.now)) for u in hosts}
        spans = {u: (min(begin, tx.now), min(end, tx.now)) for u, (begin, end) in spans.items()}
        if number == 0:
            history.finish_events_at(tx, {u: end for u, (_begin, end) in spans.items()}, stage.name, history.SUCCESS)
        else:
            history.add_events_at(tx, spans, hosts, stage.name, history.SUCCESS)


def _without_volumes(tx: Transaction, problems: t.Mapping[str, errors.BootflowError]) -> dict[str, failure.Failed]:
    """Failures of builds before any stage; their hosts are clean unless a dead run began a stage."""
    resumed = history.with_event(tx, sorted(problems), "resume")
    return {
        u: failure.Failed(
            e,
            cleaned=u not in resumed,
            cleanup_reason="an earlier run built it there" if u in resumed else "",
            preparing=build_outcome.PREPARING_BLOCK_DEVICES,
        )
        for u, e in problems.items()
    }


def give_back(tx: Transaction, last: bool = False, untaken: t.Collection[str] = ()) -> list[str]:
    """Fail the builds that are on their hosts between two rounds, when no task works there: the host's task ended without an
    answer, or never began. Returns the uuids.

    :arg last: no round follows, so builds with volumes do not wait for one.
    :arg untaken: hosts whose tasks never began: nothing was made there.
    """
    rows = [
        r
        for r in instances.select_live(tx, run_id=tx.run.id, vm_state=states.BUILDING, lock=True)
        if instances.is_placed(r) and (last or r.task_state is not None or not may_have_volumes(r))
    ]
    placed = [r.uuid for r in rows if r.task_state is None]
    waiting = readiness.prospects(tx, placed).waiting if last and placed else ()
    untouched = {r.uuid for r in rows if r.task_state is None or r.host in untaken}
    resumed = history.with_event(tx, sorted(untouched), "resume")
    failures_by_host: dict[str, dict[str, failure.Failed]] = {}
    for row in rows:
        if row.uuid in waiting:
            continue
        error = errors.HostUnreachable(host=row.host, reason="its task ended without an answer")
        clean = row.uuid in untouched and row.uuid not in resumed
        failures_by_host.setdefault(row.host, {})[row.uuid] = failure.Failed(
            error, clean, error.message, unreachable=True
        )
    for host, failed in sorted(failures_by_host.items()):
        failure.fail_by_stage(tx, host, failed)
    return sorted(u for failed in failures_by_host.values() for u in failed)


def give_up(tx: Transaction, attempts: int) -> list[str]:
    """End the builds of this run that still wait for their volumes after the last round (VolumeNotCreated). Returns the uuids.

    :arg attempts: the number of checks.
    """
    rows = {
        r.uuid: r
        for r in instances.select_live(tx, run_id=tx.run.id, vm_state=states.BUILDING, lock=True)
        if instances.is_placed(r) and r.task_state is None and may_have_volumes(r)
    }
    if not rows:
        return []
    prospects = readiness.prospects(tx, rows)
    problems = dict(prospects.failed)
    for uuid in prospects.waiting:
        seconds = tx.now - (rows[uuid].scheduled_at or rows[uuid].created_at)
        problems[uuid] = readiness.waited_in_vain(tx, uuid, seconds, attempts)
    failed = _without_volumes(tx, problems)
    attachments.lock(tx, failed)
    for host in sorted({rows[u].host for u in failed}):
        failures_of_host = {u: f for u, f in failed.items() if rows[u].host == host}
        failure.fail_builds(tx, host, NETWORKING.name, failures_of_host)
    return sorted(failed)


def load(tx: Transaction, rows: t.Sequence[PlacedInstance], its_ports: ports.PortsOf | None = None) -> list[Build]:
    """The builds of these instance rows. :arg its_ports: of each, where they are known"""
    uuids = [r.uuid for r in rows]
    disks = instances.disks_of(tx, uuids)
    port_records = ports.ports_of(tx, uuids) if its_ports is None else its_ports
    allocations = claims.allocations_of(tx, uuids)
    resumed = history.with_event(tx, uuids, "resume")
    volumes = _attachments(tx, rows)
    own_ledger_id = ledger_id(tx)
    places = nodes.facts_and_zones(tx, {r.host for r in rows})
    groups = _group_names(tx, [r.uuid for r in rows if r.config_drive])
    builds = []
    for row in rows:
        facts, zone = places.get((row.host, row.node), ({}, ""))
        builds.append(
            Build(
                row=row,
                disks=disks[row.uuid],
                ports=port_records[row.uuid],
                facts=facts,
                zone=zone,
                allocation=allocations.get(row.uuid, {}),
                resumed=row.uuid in resumed,
                volumes={a.volume_id: a for a in volumes.get(row.uuid, ())},
                ledger_id=own_ledger_id,
                security_groups=groups.get(row.uuid, [DEFAULT]),
            )
        )
    return builds


def _group_names(tx: Transaction, uuids: t.Collection[str]) -> dict[str, list[str]]:
    """Return uuid -> names of the security groups, of instances that have others than the default group."""
    others = ports.instances_with_own_groups(tx, uuids)
    if not others:
        return {}
    from ...ledger.networks import security_groups  # most boots have no groups, and load no file of them

    return security_groups.names_of_instances(tx, others)


def _attachments(tx: Transaction, rows: t.Iterable[Instance]) -> dict[str, list[Attachment]]:
    """uuid -> its attachments."""
    uuids = [r.uuid for r in rows if may_have_volumes(r)]
    if not uuids:
        return {}
    return attachments.of_instances(tx, uuids)


def resume(tx: Transaction, rows: t.Sequence[PlacedInstance], died: t.Mapping[str, str]) -> None:
    """Take builds of dead runs, which this run owns by now, into a stage if they are in none.

    :arg died: uuid -> the run that built it; "": the takeover has been written
    """
    for row in rows:
        if died.get(row.uuid):
            history.start_events(tx, [row.uuid], "resume", row.host)
            details = "taken over from run %s" % died[row.uuid]
            history.finish_events(tx, [row.uuid], "resume", history.SUCCESS, details)
    moved = _swap(tx, [r.uuid for r in rows], BEFORE, task_state=NETWORKING.task_state)
    history.start_events_on(tx, {r.uuid: r.host for r in rows if r.uuid in moved}, NETWORKING.name)


@dataclass(frozen=True)
class Ended:
    """A build whose guest runs on its host."""

    uuid: str
    host: str
    power_state: int
    domain_name: t.Optional[str] = None  # if its domain got another name, because a domain of the host has its own
    with_volumes: bool = False  # it has volumes, which become attached
    passed: Passed = field(default_factory=dict)
    machine_type: t.Optional[str] = None  # that it is to keep; None: its image names it, or it has kept one
    ssh_host_key: t.Optional[str] = None  # the public key, if this run wrote the config drive with it


def spawned(tx: Transaction, ended: t.Iterable[Ended]) -> tuple[list[str], list[str]]:
    """Mark the instances of running guests as ACTIVE, unless deleted meanwhile. Returns (active, lost in the swap).

    A build may come from any stage: stages that its host passed at once are journalled and notified here, in their order.
    """
    runs.renew(tx)
    ended_by_uuid = {e.uuid: e for e in ended}
    active: list[str] = []
    for task_state, uuids in sorted(_by_task_state(tx, ended_by_uuid).items()):
        alike: dict[tuple[int, str], list[str]] = {}
        for uuid in uuids:
            alike.setdefault((ended_by_uuid[uuid].power_state, ended_by_uuid[uuid].machine_type or ""), []).append(uuid)
        stages = STAGES[AT[task_state] :]
        for (power_state, machine), group in sorted(alike.items()):
            machine_values = {"machine_type": machine} if machine else {}
            values = {"task_state": None, "power_state": power_state, "launched_at": tx.now, **machine_values}
            moved = _swap(tx, group, [task_state], stages[1:], vm_state=states.ACTIVE, **values)
            _journal_passed(
                tx, stages, {u: ended_by_uuid[u].host for u in moved}, {u: ended_by_uuid[u].passed for u in moved}
            )
            active += sorted(moved)
    instances.rename_domains(tx, {u: name for u in active if (name := ended_by_uuid[u].domain_name)})
    instances.write_ssh_host_keys(tx, {u: key for u in active if (key := ended_by_uuid[u].ssh_host_key)})
    having = [u for u in active if ended_by_uuid[u].with_volumes]
    if having:
        attached = attachments.of_instances(tx, having)
        life.attached(tx, [a.id for rows in attached.values() for a in rows])
    history.finish_actions(tx, active, "create")
    payloads = {u: {"host": ended_by_uuid[u].host, "message": "Success"} for u in active}
    history.notify_each(tx, payloads, "compute.instance.create.end")
    nodes.reset_failed_builds(tx, {ended_by_uuid[u].host for u in active})
    lost_uuids = sorted(set(ended_by_uuid) - set(active))
    history.finish_events(tx, lost_uuids, SPAWNING.name, history.SUCCESS)
    return active, lost_uuids


def finish(
    tx: Transaction,
    host: str,
    ended: t.Sequence[Ended],
    failed: t.Mapping[str, failure.Failed],
    stages: t.Mapping[str, Stage],
    passed: t.Mapping[str, Passed],
) -> tuple[list[str], dict[str, str]]:
    """Write the outcomes of the builds on a host. Returns (ended builds that were lost, failed uuid -> see fail_builds()).

    :arg stages: uuid -> the stage in which it failed. :arg passed: uuid -> when it passed the stages before
    """
    instances.lock(tx, [*(e.uuid for e in ended), *failed])  # all of them before the first node is
    _active, lost_uuids = spawned(tx, ended)
    outcomes: dict[str, str] = {}
    for stage in STAGES:
        failures_of_stage = {u: f for u, f in failed.items() if stages[u] is stage}
        if failures_of_stage:
            reach(tx, stage, dict.fromkeys(failures_of_stage, host), passed)
            outcomes.update(failure.fail_builds(tx, host, stage.name, failures_of_stage))
    return lost_uuids, outcomes


def ended_elsewhere(tx: Transaction, ended: t.Sequence[Ended]) -> list[str]:
    """Write the outcomes of builds on many hosts. Returns the hosts where builds that this run lost have to be cleaned up."""
    hosts = {e.uuid: e.host for e in ended}
    _active, lost_uuids = spawned(tx, ended)
    reason = "it was deleted or taken over while its guest was started"
    return sorted({hosts[u] for u in lost_uuids if left_behind(tx, u, hosts[u], reason)})
