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
from ...core.model import Network
from ...core.networks.network_info import PortRecord, build_network_info
from ...ledger.compute import claims, history, instances, nodes, ports, runs
from ...ledger.compute.claims import Claimed
from ...ledger.compute.instances import Instance, PlacedInstance
from ...ledger.db.transaction import Transaction
from ...ledger.schema.identity import ledger_id
from ...ledger.storage import attachments
from ...ledger.storage.attachments import Attachment
from ..attachments import life, readiness
from . import failure
from .planned import may_have_volumes


@dataclass(frozen=True)
class Stage:
    name: str  # the event in the journal
    expected: tuple[t.Optional[str], ...]  # task_state before
    task_state: str  # while it works


NETWORKING = Stage("networking", (None, states.SCHEDULING), states.NETWORKING)
BLOCK_DEVICE_MAPPING = Stage("block_device_mapping", (states.NETWORKING,), states.BLOCK_DEVICE_MAPPING)
SPAWNING = Stage("spawning", (states.BLOCK_DEVICE_MAPPING,), states.SPAWNING)


@dataclass
class Build:
    """One instance being built on a host, with the data for all stages."""

    row: PlacedInstance
    disks: list[dict[str, t.Any]]
    ports: list[tuple[PortRecord, Network]]
    network_info: list[dict[str, t.Any]]
    facts: dict[str, t.Any]  # of the node
    zone: str = ""  # of the node
    allocation: Claimed = field(default_factory=Claimed)  # NUMA cells and devices
    resumed: bool = False  # a dead run may already have done this stage
    volumes: dict[str, Attachment] = field(default_factory=dict)  # by the volume's id
    ledger_id: str = ""

    @property
    def uuid(self) -> str:
        return str(self.row.uuid)


def begin(tx: Transaction, stage: Stage, host: str) -> tuple[list[Build], dict[str, failure.Failed]]:
    """Take the builds of this run on ``host`` into ``stage``, by compare-and-swap.

    The result omits builds that lost the swap (being deleted, or adopted by another run), and those that wait for their
    volumes until the next round. The second part are builds that already failed: without a free address, or with a volume
    that will never exist.
    """
    runs.renew(tx)
    rows = [
        r
        for r in instances.select_live(tx, run_id=tx.run.id, host=host, vm_state=states.BUILDING)
        if r.task_state in stage.expected and instances.is_placed(r)
    ]
    failed: dict[str, failure.Failed] = {}
    if stage is NETWORKING:
        with_volumes = [r.uuid for r in rows if may_have_volumes(r)]
        if with_volumes:
            prospects = readiness.prospects(tx, with_volumes)
            rows = [r for r in rows if r.uuid not in prospects.waiting]
            failed = _without_volumes(tx, prospects.failed)
    if not rows:
        return [], {}
    moved = instances.swap(
        tx,
        [r.uuid for r in rows],
        stage.expected,
        tx.run.id,
        tx.context.notify_on_state_change,
        vm_state=states.BUILDING,
        task_state=stage.task_state,
    )
    rows = [r for r in rows if r.uuid in moved]
    uuids = [r.uuid for r in rows]
    history.start_events(tx, uuids, stage.name, host)
    failed = {u: f for u, f in failed.items() if u in moved}
    if stage is NETWORKING:
        history.notify(tx, uuids, "compute.instance.create.start", {"host": host})
        failed.update(failure.allocate_missing_ports(tx, [r for r in rows if r.uuid not in failed]))
    return load(tx, [r for r in rows if r.uuid not in failed]), failed


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


def give_back(tx: Transaction, last: bool = False) -> list[str]:
    """Fail the builds that are on their hosts between two rounds, when no task works there: the host's task ended without an
    answer, or never began. Returns the uuids.

    :arg last: no round follows, so builds with volumes do not wait for one.
    """
    rows = [
        r
        for r in instances.select_live(tx, run_id=tx.run.id, vm_state=states.BUILDING, lock=True)
        if instances.is_placed(r) and (last or r.task_state is not None or not may_have_volumes(r))
    ]
    untouched = [r.uuid for r in rows if r.task_state is None]
    waiting = readiness.prospects(tx, untouched).waiting if last and untouched else ()
    resumed = history.with_event(tx, untouched, "resume")
    left: dict[str, dict[str, failure.Failed]] = {}
    for row in rows:
        if row.uuid in waiting:
            continue
        error = errors.HostUnreachable(host=row.host, reason="its task ended without an answer")
        clean = row.task_state is None and row.uuid not in resumed
        left.setdefault(row.host, {})[row.uuid] = failure.Failed(error, clean, error.message, unreachable=True)
    for host, failed in sorted(left.items()):
        failure.fail_by_stage(tx, host, failed)
    return sorted(u for failed in left.values() for u in failed)


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
        mine = {u: f for u, f in failed.items() if rows[u].host == host}
        failure.fail_builds(tx, host, NETWORKING.name, mine)
    return sorted(failed)


def load(tx: Transaction, rows: t.Sequence[PlacedInstance]) -> list[Build]:
    """The builds of these instance rows."""
    uuids = [r.uuid for r in rows]
    disks = instances.disks_of(tx, uuids)
    port_records = ports.ports_of(tx, uuids)
    allocations = claims.allocations_of(tx, uuids)
    resumed = history.with_event(tx, uuids, "resume")
    volumes = _attachments(tx, rows)
    mine = ledger_id(tx)
    places: dict[tuple[str, str], tuple[dict[str, t.Any], str]] = {}
    builds = []
    for row in rows:
        place = (row.host, row.node)
        if place not in places:
            places[place] = nodes.facts_and_zone(tx, *place)
        facts, zone = places[place]
        networks = {n.id: n for _p, n in port_records[row.uuid]}
        builds.append(
            Build(
                row=row,
                disks=disks[row.uuid],
                ports=port_records[row.uuid],
                network_info=build_network_info([p for p, _n in port_records[row.uuid]], networks, row.project),
                facts=facts,
                zone=zone,
                allocation=allocations.get(row.uuid, {}),
                resumed=row.uuid in resumed,
                volumes={a.volume_id: a for a in volumes.get(row.uuid, ())},
                ledger_id=mine,
            )
        )
    return builds


def _attachments(tx: Transaction, rows: t.Iterable[Instance]) -> dict[str, list[Attachment]]:
    """uuid -> its attachments."""
    uuids = [r.uuid for r in rows if may_have_volumes(r)]
    if not uuids:
        return {}
    return attachments.of_instances(tx, uuids)


def done(tx: Transaction, stage: Stage, uuids: t.Sequence[str]) -> list[str]:
    """Journal that these builds completed the stage.

    Returns those that this run no longer owns: deleted or adopted meanwhile. The caller removes what it made for them on
    the host, because their new owner may have checked the host too early.
    """
    runs.renew(tx)
    history.finish_events(tx, uuids, stage.name, history.SUCCESS)
    mine = {r.uuid for r in instances.select_live(tx, uuids=list(uuids), run_id=tx.run.id, task_state=stage.task_state)}
    return [u for u in uuids if u not in mine]


def spawned(
    tx: Transaction,
    host: str,
    power_states: t.Mapping[str, int],
    with_volumes: t.Collection[str],
    renamed: t.Mapping[str, str] | None = None,
) -> tuple[list[str], list[str]]:
    """Mark the instances of running guests as ACTIVE, unless deleted meanwhile. Returns (active, lost the swap).

    :arg with_volumes: those with volumes, which become attached.
    :arg renamed: those whose domain got another name, because a domain of the host has theirs.
    """
    now = tx.now
    runs.renew(tx)
    active: list[str] = []
    by_power: dict[int, list[str]] = {}
    for uuid, power_state in power_states.items():
        by_power.setdefault(power_state, []).append(uuid)
    for power_state, uuids in by_power.items():
        active += sorted(
            instances.swap(
                tx,
                uuids,
                [states.SPAWNING],
                tx.run.id,
                tx.context.notify_on_state_change,
                vm_state=states.ACTIVE,
                task_state=None,
                power_state=power_state,
                launched_at=now,
            )
        )
    for uuid, name in (renamed or {}).items():
        if uuid in active:
            instances.write(tx, [uuid], domain_name=name)
    having = [u for u in active if u in with_volumes]
    if having:
        found = attachments.of_instances(tx, having)
        life.attached(tx, [a.id for rows in found.values() for a in rows])
    history.finish_events(tx, list(power_states), SPAWNING.name, history.SUCCESS)
    history.finish_actions(tx, active, "create")
    history.notify(tx, active, "compute.instance.create.end", {"host": host, "message": "Success"})
    if active:
        nodes.count_failed_build(tx, host, False)
    return active, sorted(set(power_states) - set(active))
