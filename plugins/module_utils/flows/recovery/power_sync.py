# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ledger follows what hosts report of their guests, for many hosts in one transaction.

An instance that another run works on, or that was written after its host was asked, is left alone: its task_state and the time
of its row are the marks of a sync in progress. What is to be done is the table of core.instances.power_sync.
source: Nova's ComputeManager._sync_power_states
"""

from __future__ import annotations

import typing as t
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from ...core.instances import power_sync, states
from ...core.instances.power_states import NOSTATE, SHUTDOWN
from ...core.instances.power_sync import Decision, Known
from ...ledger.compute import history, instances, nodes, runs
from ...ledger.compute.instances import Instance, InstancePower
from ...ledger.db.transaction import Transaction
from ..instances import elsewhere, operation
from ..instances.operations import OPERATIONS
from . import dead_runs, operations

STOP = OPERATIONS["stop"]
RESUME = OPERATIONS["hard_reboot"]  # as Nova's resume_state_on_host_boot: networks, volumes and definition again


@dataclass(frozen=True)
class Report:
    """The guests of a host."""

    asked_at: float  # when the host was asked, in seconds since the epoch
    power_states: t.Mapping[str, int]  # uuid of each of its domains, also of guests that are not instances
    boot_id: str = ""  # of the start of the host that these are from; "": not known
    resumes: bool = True  # bootflow_resume_guests_state_on_host_boot of the host
    at_work: t.Collection[str] = ()  # uuids of guests that a module works on: what dead runs left of them waits


@dataclass(frozen=True)
class Noticed:
    """Reports of the listener on a host about some of its guests."""

    asked_at: float  # when it was asked for the power states, after the events
    events: t.Mapping[str, t.Sequence[str]]  # uuid -> its events, by Nova's names
    power_states: t.Mapping[str, int]  # uuid -> its state now, of the guests with events that are there


@dataclass(frozen=True)
class Difference:
    """An instance whose guest is not as the ledger has it."""

    uuid: str
    name: str
    host: str
    vm_state: str  # before
    power_state: int  # in the ledger, before
    reported: int
    action: str | None  # power_sync.STOP, FORCE_STOP, RESUME
    reason: str  # Nova's words; empty: only the power_state is new


@dataclass
class Synced:
    differences: list[Difference] = field(default_factory=list)
    written: set[str] = field(default_factory=set)  # uuids whose power_state is new
    stopped: set[str] = field(default_factory=set)  # uuids that are stopped now: their guests were off
    #: Taken into the operation stop: their guests still have power, or crashed, and their hosts have them still.
    to_stop: list[Instance] = field(default_factory=list)
    to_resume: list[Instance] = field(default_factory=list)  # taken into RESUME: their hosts restarted
    compared: int = 0  # instances
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)  # host -> instances and domains, where they differ

    @property
    def changed(self) -> bool:
        return bool(self.written or self.stopped or self.to_stop or self.to_resume)


def settle_and_sync(
    tx: Transaction,
    reports: t.Mapping[str, Report],
    stops: bool = True,
    others: t.Mapping[str, Report] | None = None,
) -> Synced:
    """The sync of a run: what dead runs left half done on these hosts is settled first. See sync()."""
    hosts = sorted(dead_runs.hosts_to_ask(tx) & set(reports))
    again = restarted(tx, {host: reports[host] for host in hosts})
    for host in hosts:
        report = reports[host]
        operations.settle_operations(
            tx, host, report.power_states, report.asked_at, restarted=host in again, at_work=report.at_work
        )
    return sync(tx, reports, stops=stops, others=others)


def restarted(tx: Transaction, reports: t.Mapping[str, Report]) -> set[str]:
    """The hosts that restarted, and whose guests do not all run again yet as they did."""
    return _restarted(reports, _known_boots(tx, reports))


def _known_boots(tx: Transaction, reports: t.Mapping[str, Report]) -> dict[str, str]:
    said = [host for host, report in reports.items() if report.boot_id]
    return nodes.boot_ids(tx, said) if said else {}


def _restarted(reports: t.Mapping[str, Report], known: t.Mapping[str, str]) -> set[str]:
    said = {host: report.boot_id for host, report in reports.items() if report.boot_id and report.resumes}
    return {host for host, boot_id in said.items() if known.get(host) not in (None, "", boot_id)}


def resumed(tx: Transaction, reports: t.Mapping[str, Report], failed_uuids: t.Collection[str] = ()) -> None:
    """The guests of these hosts were started, as far as they can be. :arg failed_uuids: instances that are to be tried again"""
    rows = instances.powers(tx, hosts=reports)
    waits = {
        r.uuid for r in rows if r.vm_state == states.ACTIVE and r.power_state in power_sync.OFF
    }  # for its guest elsewhere
    busy = {str(r.host) for r in rows if r.task_state is not None or r.uuid in waits or r.uuid in failed_uuids}
    nodes.record_boots(tx, {h: report.boot_id for h, report in reports.items() if report.boot_id and h not in busy})


def follow_events(tx: Transaction, noticed: t.Mapping[str, Noticed]) -> Synced:
    """Write what follows from events, by host. Nothing follows from one that came late: the guest is in another state now.

    Guests that have power and should not have it are only found: the next sync stops them.
    source: Nova's ComputeManager.handle_lifecycle_event. It holds a stop back for 15 s, as its reboots stop guests; ours have a
    task_state until the guest runs again, and an instance with a task_state is left alone.
    """
    synced = Synced()
    runs.renew(tx)
    decided = []
    for row in instances.powers(
        tx, uuids={uuid for noticed_guests in noticed.values() for uuid in noticed_guests.events}
    ):
        host = str(row.host)
        noticed_guests = noticed.get(host)
        if noticed_guests is None or row.uuid not in noticed_guests.events or row.updated_at >= noticed_guests.asked_at:
            continue
        reported = noticed_guests.power_states.get(row.uuid, NOSTATE)
        known = Known(row.host, row.vm_state, row.task_state, row.power_state)
        decisions = (power_sync.decide_event(known, host, event, reported) for event in noticed_guests.events[row.uuid])
        decision = next((d for d in decisions if d != Decision()), Decision())
        if decision != Decision() and not decision.skipped:
            decided.append((row, reported, decision))
    _finish(tx, decided, synced, stops=False)
    return synced


def sync(
    tx: Transaction,
    reports: t.Mapping[str, Report],
    stops: bool = False,
    others: t.Mapping[str, Report] | None = None,
) -> Synced:
    """Write what the hosts report.

    Instances that were shut down from inside, or behind our back, are stopped: with action, event and notifications. A lock
    does not prevent it, as it does not prevent Nova's own tasks.

    :arg reports: by host. A guest that runs on another of these hosts, or of ``others``, is not started on its own.
    :arg stops: guests that have power and should not have it are taken into the operation stop (``to_stop``), guests that lost it with
        their host's restart into a hard reboot (``to_resume``), which the caller does on their hosts and finishes. Otherwise they
        are only found. A host's start counts as dealt with when none is left, so that a run that dies on the way leaves them to the next one.
    """
    rows = instances.powers(tx, hosts=reports)
    synced = Synced(compared=len(rows), counts=_counts(rows, reports))
    known = _known_boots(tx, reports)
    again = _restarted(reports, known)
    down = nodes.forced_down(tx) if again else set()
    running = _running(tx, rows, {**(others or {}), **reports}) if again else {}
    apart = _adopted_on(tx, rows, again)
    differing = list(_differing(rows, reports, again, down, running, apart))
    suspects = {r.uuid: str(r.host) for r, decision in differing if _holds(tx, r, reports, decision)}
    # What this report cannot decide may be theirs.
    waiting = {
        str(r.host) for r in (*(r for r in rows if r.task_state is not None), *(r for r, _decision in differing))
    }
    waiting &= again
    new = {h: r.boot_id for h, r in reports.items() if h in known and known[h] != r.boot_id and h not in waiting}
    nodes.record_boots(tx, new)
    if not suspects:
        return synced
    runs.renew(tx)
    decided = []
    for row in instances.powers(tx, uuids=suspects):
        host = suspects[row.uuid]
        reported = reports[host].power_states.get(row.uuid, NOSTATE)
        runs_again = host in again and row.uuid not in apart
        decision = _decide(row, host, reported, runs_again, host in down, running.get(row.uuid))
        if not decision.skipped and _holds(tx, row, reports, decision):
            decided.append((row, reported, decision))
    _finish(tx, decided, synced, stops)
    return synced


def _finish(
    tx: Transaction, decided: t.Sequence[tuple[InstancePower, int, Decision]], synced: Synced, stops: bool
) -> None:
    for row, reported, decision in decided:
        state = (row.uuid, row.display_name, str(row.host), row.vm_state, row.power_state, reported)
        synced.differences.append(Difference(*state, decision.action, decision.reason))
    _write(tx, decided, synced)
    _stop(tx, synced, stops)


def _counts(rows: t.Sequence[InstancePower], reports: t.Mapping[str, Report]) -> dict[str, tuple[int, int]]:
    known = Counter(str(r.host) for r in rows)
    numbers = {host: (known[host], len(report.power_states)) for host, report in sorted(reports.items())}
    return {host: (ours, theirs) for host, (ours, theirs) in numbers.items() if ours != theirs}


def _running(tx: Transaction, rows: t.Sequence[InstancePower], reports: t.Mapping[str, Report]) -> dict[str, str]:
    """uuid of each guest that has power, or had it when another host reported last -> that host. Hosts that are forced down do not count."""
    down = nodes.forced_down(tx)
    recorded = elsewhere.running_on(tx, [r.uuid for r in rows if r.host not in down])
    now = {
        u: host
        for host, report in reports.items()
        if host not in down
        for u, power_state in report.power_states.items()
        if power_state not in power_sync.OFF
    }
    return {**{u: host for u, host in recorded.items() if host not in reports}, **now}


def _decide(row: InstancePower, host: str, reported: int, again: bool, down: bool, runs_on: str | None) -> Decision:
    known = Known(row.host, row.vm_state, row.task_state, row.power_state)
    return power_sync.decide(known, host, reported, again, down, runs_on)


def _adopted_on(tx: Transaction, rows: t.Iterable[InstancePower], again: t.Collection[str]) -> set[str]:
    """Return the adopted instances on hosts that restarted: nothing here can define their guests, and libvirt's autostart says which run again."""
    uuids = [row.uuid for row in rows if str(row.host) in again]
    return {row.uuid for row in instances.select_live(tx, uuids=uuids) if row.spec.get("adopted")} if uuids else set()


def _differing(
    rows: t.Sequence[InstancePower],
    reports: t.Mapping[str, Report],
    again: t.Collection[str],
    down: t.Collection[str],
    running: t.Mapping[str, str],
    apart: t.Collection[str] = (),
) -> t.Iterator[tuple[InstancePower, Decision]]:
    """Yield the instances for which something follows. Few are different, so that few are locked and read again. :arg apart: see _adopted_on()"""
    follows: dict[tuple[str, str | None, int, int, bool, bool, str | None], Decision] = {}
    for row in rows:
        reported = reports[str(row.host)].power_states.get(row.uuid, NOSTATE)
        state = (
            row.vm_state,
            row.task_state,
            row.power_state,
            reported,
            str(row.host) in again and row.uuid not in apart,
            str(row.host) in down,
            running.get(row.uuid) if str(row.host) in again else None,
        )
        if state not in follows:
            follows[state] = _decide(row, str(row.host), reported, *state[-3:])
        decision = follows[state]
        if decision != Decision() and not decision.skipped:
            yield row, decision


def _holds(tx: Transaction, row: InstancePower, reports: t.Mapping[str, Report], decision: Decision) -> bool:
    """Whether the report still tells the state of this instance: no other run wrote it since; this one may have, when it settled a reboot of a dead run."""
    settled = decision.action == power_sync.RESUME and row.run_id == tx.run.id
    return settled or row.updated_at < reports[str(row.host)].asked_at


def _write(tx: Transaction, decided: t.Sequence[tuple[InstancePower, int, Decision]], synced: Synced) -> None:
    new: dict[int, list[str]] = defaultdict(list)
    for row, reported, decision in decided:
        if decision.power_state is not None:
            new[reported].append(row.uuid)
            synced.written.add(row.uuid)
    for power_state, uuids in sorted(new.items()):
        instances.write(tx, uuids, power_state=power_state, updated_at=tx.now)


def _stop(tx: Transaction, synced: Synced, stops: bool) -> None:
    """Begin the operation stop for all that need it, and finish it for instances whose guests are off."""
    to_resume = [f.uuid for f in synced.differences if f.action == power_sync.RESUME]
    if to_resume and stops:
        synced.to_resume = instances.select_live(tx, uuids=to_resume)
        operation.start(tx, RESUME, synced.to_resume)
        history.start_events_on(tx, {r.uuid: r.host for r in synced.to_resume}, RESUME.name)
    ends = [f for f in synced.differences if f.action and f.action != power_sync.RESUME]
    off = {f.uuid: operation.Outcome(f.reported) for f in ends if f.reported == SHUTDOWN}
    begin = [f.uuid for f in ends if f.uuid in off or stops]
    if not begin:
        return
    rows = instances.select_live(tx, uuids=begin)
    operation.start(tx, STOP, rows)
    history.start_events_on(tx, {r.uuid: r.host for r in rows}, STOP.name)
    operation.finish(tx, STOP, off)
    synced.stopped = set(off)
    synced.to_stop = [r for r in rows if r.uuid not in off]
