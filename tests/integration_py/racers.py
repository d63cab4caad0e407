# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One racer: a process with a ledger and a run of its own, that boots and deletes as the actions do, host work left out.

What a racer was told goes to its journal, line by line and at once, so that it is known even of one that was killed:
``claimed`` after the commit that claimed, ``leaving`` before anything that gives claims back, ``released`` after it.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import pathlib
import random
import time
import typing as t

import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import power_states, states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.request import ServerRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor, Image, NetworkRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network import Network
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.subnet import Subnet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.options import SchedulerOptions
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import accept, builds, failure
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import schedule as scheduling
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import cleanup, delete
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import (
    claims,
    cleanups,
    fleet,
    history,
    instances,
    nodes,
    runs,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import this_run
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.this_run import Context
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables

SMALL = Flavor(name="small", memory_mb=64, vcpus=1, root_gb=1)
IMAGE = Image(
    name="cirros", id="0e7a7fc4-6d5b-5a5e-9d3a-0a4c6e2f7b11", disk_format="qcow2", checksum="0" * 64, url="/cirros"
)
# What a racer may be told instead of a place.
LOST = {"NoValidHost", "ComputeResourcesUnavailable", "MaxRetriesExceeded", "RescheduledException"}


def network(number: int) -> Network:
    """10.<number>.0.0/16, with some 2,000 addresses."""
    subnet = Subnet(
        id="5b1e7000-0000-4000-8000-%012d" % number,
        name="subnet-%d" % number,
        cidr="10.%d.0.0/16" % number,
        gateway_ip="10.%d.0.1" % number,
        allocation_pools=({"start": "10.%d.0.10" % number, "end": "10.%d.7.250" % number},),
    )
    return Network(
        id="0e7f0000-0000-4000-8000-%012d" % number, name="net-%d" % number, subnets=(subnet,), source="default"
    )


NETWORKS = {n.name: n for n in (network(1), network(2), network(3))}


def group(name: str, policy: str, most: int = 1, project: str = "shared") -> ServerGroup:
    identity = "%s/%s" % (project, name)
    return ServerGroup(id=identity[-36:], name=name, policy=policy, max_server_per_host=most, project=project)


def report(ledger: database.Ledger, host: str, memory_mb: int, facts: t.Mapping[str, t.Any] | None = None) -> int:
    values = {"hypervisor_hostname": host, "memory_mb": memory_mb, "local_gb": 100000, "vcpus": 10000, **(facts or {})}
    settings = {"ram_allocation_ratio": 1.0, "disk_allocation_ratio": 1.0, "cpu_allocation_ratio": 16.0}
    run = this_run.RunIdentity("report", "racers", "", "", 1, 1, "racer")
    context = Context(run=run, request_id="req-report")
    return ledger.for_run(context).transact(nodes.record_report, host, values, settings)


class Racer:
    """:arg name: tells its journal and its instances from those of others and of its own earlier lives."""

    def __init__(self, url: str, folder: pathlib.Path, name: str, seed: t.Any, lease: float | None = None):
        self.name = name
        self.rng = random.Random("%s %s" % (seed, name))
        run = this_run.identify(os.getpid(), this_run.controller_name(), "racer")
        if lease is not None:  # as seen from another machine: only its lease tells whether it lives
            run = dataclasses.replace(run, controller="far-" + name, boot_id="far-" + name)
        run = dataclasses.replace(run, id="%s-%s" % (name, run.id[-40:]))
        self.context = Context(run=run, request_id="req-" + name, lease_seconds=lease or 600.0, rng=self.rng)
        self.ledger = database.open_ledger(url).for_run(self.context)
        self.journal = os.open(folder / ("%s.journal" % name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.hosts: set[str] = set()
        self.mine: dict[str, str] = {}  # uuid -> host, as it was told
        self.told: collections.Counter[str] = collections.Counter()

    def note(self, event: str, uuids: t.Iterable[str], detail: t.Mapping[str, str] | None = None) -> None:
        stamp = time.monotonic_ns()
        lines = [json.dumps([stamp, event, u, (detail or {}).get(u, "")]) for u in uuids]
        if lines:
            os.write(self.journal, ("\n".join(lines) + "\n").encode())
        self.told[event] += len(lines)

    def close(self) -> None:
        self.note("told", [json.dumps(self.told)])
        self.ledger.close()
        os.close(self.journal)

    # --- booting ---------------------------------------------------------------------------------------------------

    def accept(self, name: str, count: int = 1, networks: t.Sequence[str] = (), **fields: t.Any) -> list[str]:
        """The uuids, or nothing where it was refused: the codes are counted in ``told``."""
        values: dict[str, t.Any] = {"flavor": SMALL, "image": IMAGE, "min_count": count, "max_count": count, **fields}
        wish = ServerRequest(name=name, networks=tuple(NetworkRequest(network=n) for n in networks), **values)
        known = {k: n for v in NETWORKS.values() for k, n in ((v.id, v), (v.name, v))}
        options = accept.AcceptOptions(networks=known)
        try:
            accepted = self.ledger.transact(accept.accept, [wish], options, collisions=3)
        except errors.InvalidRequest as e:
            self.told.update(r["code"] for r in e.errors)
            return []
        return accepted.created + accepted.resumed

    def options(self, **fields: t.Any) -> SchedulerOptions:
        return SchedulerOptions(now=time.time(), service_down_time=1e9, **fields)

    def schedule(self, **fields: t.Any) -> None:
        """All rounds, until nothing waits."""

        def read(tx: Transaction, needs: fleet.Needs) -> t.Any:
            if not self.hosts:
                self.hosts = {r.host for r in tx.execute(sa.select(tables.compute_nodes.c.host))}
            return fleet.read(tx, self.hosts, needs=needs)

        for _round in range(12):
            done = self.ledger.transact(scheduling.schedule, read, self.options(**fields))
            placed = {u: s.host for u, s in done.placed.items()}
            self.mine.update(placed)
            self.note("claimed", placed, placed)
            self.note("refused", done.waiting)
            if done.failed:
                self.lost(done.failed)
            if not done.waiting:
                return
        raise AssertionError("%s still waits after 12 rounds" % self.name)

    def lost(self, uuids: t.Sequence[str]) -> None:
        faults = self.ledger.inspect(history.last_faults, uuids)
        codes = {u: str(faults[u]["code"]) for u in uuids if u in faults}
        self.note("lost", codes, codes)
        wrong = {u: faults[u] for u, code in codes.items() if code not in LOST}
        if wrong:
            raise AssertionError("%s was told something else than that there is no place: %s" % (self.name, wrong))

    def networking(self, host: str) -> list[str]:
        """Into the first stage on a host. Returns the uuids that are in it."""
        begun, failed = self.ledger.transact(builds.begin, host)
        if failed:
            raise AssertionError("no address: %s" % failed)
        return [b.uuid for b in begun]

    def up(self, host: str) -> None:
        """Every build of this run on a host becomes a running guest."""
        uuids = self.networking(host)
        if uuids:
            for stage in (builds.BLOCK_DEVICE_MAPPING, builds.SPAWNING):
                self.ledger.transact(builds.reach, stage, dict.fromkeys(uuids, host), {})
            ended = [builds.Ended(uuid, host, power_states.RUNNING) for uuid in uuids]
            self.ledger.transact(builds.spawned, ended)

    def fail(self, host: str, uuids: t.Sequence[str], cleaned: bool) -> None:
        """These builds fail in networking, to go elsewhere; what a host is not rid of stays claimed there."""
        self.note("leaving", uuids)
        how = {"cleaned": cleaned, "cleanup_reason": "" if cleaned else "busy"}
        found = {u: failure.Failed(errors.RemoteError(reason="race"), **how) for u in uuids}
        self.ledger.transact(failure.fail_builds, host, "networking", found, collisions=3)
        for uuid in uuids:
            self.mine.pop(uuid, None)

    def again(self, uuids: t.Sequence[str], **fields: t.Any) -> None:
        """Builds that have not begun give their claims back and wait for a host anew, all at once."""
        self.note("leaving", uuids)
        self.ledger.transact(self._requeue, uuids)
        for uuid in uuids:
            self.mine.pop(uuid, None)
        self.schedule(**fields)

    def _requeue(self, tx: Transaction, uuids: t.Sequence[str]) -> None:
        run = self.context.run.id
        rows = instances.select_live(tx, uuids=uuids, run_id=run, vm_state=states.BUILDING, task_state=None, lock=True)
        mine = [r.uuid for r in rows if r.host is not None and r.task_state is None]
        claims.release(tx, mine)
        table = tables.instances
        values = {"host": None, "node": None, "task_state": states.SCHEDULING, "retry": None}
        tx.execute(table.update().where(table.c.uuid.in_(mine)).values(**values))

    # --- giving back -----------------------------------------------------------------------------------------------

    def remove(self, uuids: t.Sequence[str], force: bool = False) -> bool:
        """Delete these. False: another run is at it."""
        if not uuids:
            return True
        self.note("leaving", uuids)
        try:
            found = self.ledger.transact(delete.begin, Selection(uuids=list(uuids)), missing_ok=True)
        except errors.InstanceBusy:
            return False
        if not force:
            for host in self.rng.sample(found.hosts, len(found.hosts)):
                self.ledger.transact(self._host_done, host)
        gone, _left = self.ledger.transact(delete.finish, force, collisions=3)
        if len(gone) == len(found.rows):
            self.note("released" if not force else "forced", [r.uuid for r in found.rows])
        for uuid in uuids:
            self.mine.pop(uuid, None)
        return True

    @staticmethod
    def _host_done(tx: Transaction, host: str) -> None:
        todo = [i["uuid"] for i in delete.of_host(tx, host)]
        delete.removed(tx, {host: todo}, {})

    def bury(self) -> int:
        """Delete what dead runs left, in any order. Returns how many instances."""

        def left(tx: Transaction) -> list[str]:
            c = tables.instances.c
            rows = tx.execute(sa.select(c.uuid, c.run_id).where(c.deleted == "", c.run_id.is_not(None))).all()
            dead = runs.dead_among(tx, {r.run_id for r in rows})
            return [r.uuid for r in rows if r.run_id in dead]

        found = self.ledger.inspect(left)
        self.rng.shuffle(found)
        self.remove(found)
        return len(found)

    def clean(self, host: str) -> None:
        """What a report does first: the host is rid of what was left there."""

        def cleaned(tx: Transaction) -> None:
            cleanup.finish(tx, {host: [c.instance_uuid for c in cleanups.of_host(tx, host)]})

        self.ledger.transact(cleaned)


def read_journals(folder: pathlib.Path) -> tuple[dict[str, tuple[str, str]], collections.Counter[str]]:
    """uuid -> (last event, host) of all racers together, and how often they were told what."""
    events: list[list[t.Any]] = []
    told: collections.Counter[str] = collections.Counter()
    for path in folder.glob("*.journal"):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            told[event[1]] += 1
            if event[1] in ("claimed", "leaving", "released", "forced"):
                events.append(event)
    events.sort()
    return {uuid: (what, host) for _stamp, what, uuid, host in events}, told
