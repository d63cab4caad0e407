# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Short words for what the tests do with a ledger, and the laws that hold at every moment."""

from __future__ import annotations

import functools
import random
import tempfile
import typing as t

import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import moves, power_states, states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.request import ServerRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.port_entries import PortEntry
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import (
    Flavor,
    Image,
    ImageAccess,
    NetworkRequest,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network import Network
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.subnet import Subnet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.options import SchedulerOptions
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import accept, builds, failure
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import schedule as scheduling
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import delete as deletion
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.networks import ports as project_ports
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import fleet, instances, nodes, ports
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import this_run
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.this_run import Context
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema.plan_tables import plan_places

from .ledgers import open_in_tests

SMALL = Flavor(name="small", memory_mb=1024, vcpus=1, root_gb=1)
IMAGE = Image(
    name="cirros",
    id="0e7a7fc4-6d5b-5a5e-9d3a-0a4c6e2f7b11",
    disk_format="qcow2",
    checksum="0" * 64,
    url="https://example.org/cirros.qcow2",
    access=ImageAccess(url_username="someone", url_password="image-secret", headers={"X-Key": "image-secret-2"}),
)
STAGES = builds.STAGES
UNTIL = {"scheduled": 0, "networking": 1, "block_device_mapping": 2, "spawning": 3}


def subnet(number: int, addresses: int = 50, cidr: str | None = None, pool: tuple[str, str] | None = None) -> Subnet:
    start, end = pool or ("10.0.%d.10" % number, "10.0.%d.%d" % (number, 9 + addresses))
    return Subnet(
        id="5b1e7000-0000-4000-8000-%012d" % number,
        name="subnet-%d" % number,
        cidr=cidr or "10.0.%d.0/24" % number,
        gateway_ip="10.0.%d.1" % number if cidr is None else None,
        dns_nameservers=("10.0.0.53",),
        host_routes=({"destination": "192.0.2.0/24", "nexthop": "10.0.0.2"},),
        allocation_pools=({"start": start, "end": end},),
    )


def network(number: int, *subnets: Subnet, addresses: int = 50, enforce: bool = False) -> Network:
    return Network(
        id="0e7f0000-0000-4000-8000-%012d" % number,
        name="net-%d" % number,
        subnets=subnets or (subnet(number, addresses),),
        source="default",
        enforce_allocation_pools=enforce,
    )


NET = network(1)


def request(name: str, count: int = 1, **fields: t.Any) -> ServerRequest:
    """An entry of bootflow_instances; ``networks`` may be names like net-1, whose ids a request has."""
    values: dict[str, t.Any] = {
        "flavor": SMALL,
        "image": IMAGE,
        "min_count": count,
        "max_count": count,
        "networks": ("net-1",),
        **fields,
    }
    values["networks"] = tuple(
        NetworkRequest(network=network(int(n[4:])).id if n.startswith("net-") else n) if isinstance(n, str) else n
        for n in values["networks"]
    )
    return ServerRequest(name=name, **values)


def at(tx: Transaction, moment: float, run: this_run.RunIdentity | None = None, **settings: t.Any) -> Transaction:
    """The same transaction at another moment, of ``run`` or of nobody in particular."""
    run = run or this_run.RunIdentity("run-at", "controller", "", "", 1, 1, "ann")
    return tx.for_run(Context(run=run, request_id="req-at", clock=lambda: moment, **settings))


class World:
    """One ledger, a clock that only moves when told, and runs that are alive until their lease is out."""

    def __init__(self, url: str, networks: t.Sequence[Network] = (NET,)):
        self.url = url
        self.ledger = open_in_tests(url)
        self.time = 1_700_000_000.0
        self.networks: dict[str, Network] = {}
        self.know(*networks)
        self.rng = random.Random(7)
        self.max_attempts = 3

    @functools.cached_property
    def shared(self) -> tempfile.TemporaryDirectory[str]:
        """Of the tasks of each run. Made where one needs it: a process that is killed, as those of races are, leaves its own behind."""
        return tempfile.TemporaryDirectory()

    def close(self) -> None:
        self.ledger.close()
        if "shared" in self.__dict__:
            self.shared.cleanup()

    def know(self, *networks: Network) -> None:
        self.networks.update({n.id: n for n in networks})
        self.networks.update({n.name: n for n in networks})

    def context(self, run: str = "a", **fields: t.Any) -> Context:
        identity = this_run.RunIdentity(
            id="run-" + run,
            controller="controller-" + run,
            boot_id="boot-" + run,
            pid_namespace="",
            pid=1,
            pid_started=1,
            actor="ann",
        )
        return Context(
            run=identity, request_id="req-" + run, rng=fields.pop("rng", self.rng), clock=lambda: self.time, **fields
        )

    # --- the flow --------------------------------------------------------------------------------------------------

    def report(
        self,
        host: str = "h1",
        memory: int = 4,
        node: str | None = None,
        ledger: t.Any = None,
        host_uuid: str = "",
        boot_id: str = "",
        stats: t.Mapping[str, t.Any] | None = None,
        **configuration: t.Any,
    ) -> int:
        """``memory`` in instances of the flavor SMALL, which fill the host exactly."""
        facts = {"hypervisor_hostname": node or host, "memory_mb": memory * 1024, "local_gb": 4000, "vcpus": 500}
        facts.update(host_uuid=host_uuid, boot_id=boot_id, stats=dict(stats or {}))
        settings = {
            "ram_allocation_ratio": 1.0,
            "disk_allocation_ratio": 1.0,
            "cpu_allocation_ratio": 16.0,
            **configuration,
        }
        with self.ledger.write() as tx:
            return nodes.record_report(tx.for_run(self.context()), host, facts, settings)

    def accept(
        self, *requests: ServerRequest, run: str = "a", quotas: t.Any = None, **context: t.Any
    ) -> accept.Accepted:
        options = accept.AcceptOptions(networks=self.networks, quotas=quotas or {})
        with self.ledger.write() as tx:
            return accept.accept(tx.for_run(self.context(run, **context)), requests, options)

    def refusals(self, *requests: ServerRequest, **arguments: t.Any) -> list[dict[str, t.Any]]:
        try:
            self.accept(*requests, **arguments)
        except errors.InvalidRequest as e:
            return e.errors
        raise AssertionError("accepted")

    def options(self, **fields: t.Any) -> SchedulerOptions:
        return SchedulerOptions(
            now=self.time, service_down_time=1e9, max_attempts=fields.pop("max_attempts", self.max_attempts), **fields
        )

    def schedule(self, run: str = "a", **fields: t.Any) -> scheduling.Scheduled:
        with self.ledger.write() as tx:
            return scheduling.schedule(tx.for_run(self.context(run)), self.fleet, self.options(**fields))

    def fleet(self, tx: Transaction, needs: fleet.Needs = fleet.NUMBERS_ONLY) -> t.Any:
        known = {r.host for r in tx.execute(sa.select(tables.compute_nodes.c.host))}
        return fleet.read(tx, known, needs=needs)

    def hosts(self, tx: Transaction) -> list[t.Any]:
        return list(self.fleet(tx).hosts)

    def begin(
        self, stage: builds.Stage, host: str, run: str = "a", **context: t.Any
    ) -> tuple[list[builds.Build], dict[str, failure.Failed]]:
        """Take the builds on the host that are in the stage before into this one."""
        with self.ledger.write() as tx:
            tx = tx.for_run(self.context(run, **context))
            if stage is builds.NETWORKING:
                return builds.begin(tx, host)
            before = builds.STAGES[builds.STAGES.index(stage) - 1].task_state
            rows = instances.select_live(tx, run_id=tx.run.id, host=host, task_state=before)
            reached = builds.reach(tx, stage, {r.uuid: host for r in rows}, {})
            mine = [r for r in instances.select_live(tx, uuids=sorted(reached)) if instances.is_placed(r)]
            return builds.load(tx, mine), {}

    def done(self, stage: builds.Stage, uuids: t.Sequence[str], run: str = "a") -> list[str]:
        """Those that the run lost in this stage."""
        with self.ledger.write() as tx:
            reached = builds.reach(tx.for_run(self.context(run)), stage, dict.fromkeys(uuids, "?"), {})
            return [u for u in uuids if u not in reached]

    def spawned(self, host: str, uuids: t.Iterable[str], run: str = "a") -> tuple[list[str], list[str]]:
        uuids = list(uuids)
        with_volumes = self.with_volumes(uuids)
        ended = [
            builds.Ended(u, host, power_states.RUNNING, with_volumes=u in with_volumes, machine_type="pc")
            for u in uuids
        ]
        with self.ledger.write() as tx:
            return builds.spawned(tx.for_run(self.context(run)), ended)

    def with_volumes(self, uuids: t.Iterable[str]) -> t.Collection[str]:
        """Those of the instances that have volumes."""
        return ()

    def fail(
        self, host: str, uuid: str, error: errors.BootflowError, run: str = "a", event: str = "spawning", **how: t.Any
    ) -> str:
        with self.ledger.write() as tx:
            return failure.fail_builds(
                tx.for_run(self.context(run)), host, event, {uuid: failure.Failed(error, **how)}
            )[uuid]

    def build(self, host: str, until: str = "active", run: str = "a") -> list[str]:
        """Take every build of the run on ``host`` through the stages, up to ``until`` and into it."""
        uuids: list[str] = []
        for stage in STAGES[: UNTIL.get(until, 3)]:
            found, failed = self.begin(stage, host, run)
            assert not failed
            uuids = [b.uuid for b in found]
            if stage.name == until:
                return uuids
            if stage is not builds.SPAWNING:
                assert self.done(stage, uuids, run) == []
        if until == "active":
            active, lost = self.spawned(host, uuids, run)
            assert sorted(active) == sorted(uuids) and not lost
        return uuids

    def boot(self, name: str = "web", until: str = "active", run: str = "a", **fields: t.Any) -> str:
        """One instance as far as ``until``: accepted, scheduled, a stage, or active. Returns its uuid."""
        uuid = self.accept(request(name, **fields), run=run).created[0]
        if until != "accepted":
            placed = self.schedule(run).placed[uuid]
            if until != "scheduled":
                self.build(placed.host, until, run)
        return uuid

    def make_port(self, name: str = "front", network_name: str = "net-1", **fields: t.Any) -> str:
        """A port of the project "default". Returns its id."""
        project, limits = fields.pop("project", "default"), fields.pop("quotas", {})
        entry = PortEntry("ports[0]", name, self.networks[network_name], **fields)
        with self.ledger.write() as tx:
            written = project_ports.create(tx.for_run(self.context("p")), [entry], project, limits)
        (port_id,) = [*written.created, *written.unchanged]
        return str(port_id)

    def port(self, name: str = "front") -> tuple[str | None, str | None]:
        """The instance that has the port of this name, and the host that it is bound to."""
        (row,) = self.rows(tables.ports, tables.ports.c.name == name)
        return row.instance_uuid, row.host

    def delete(self, run: str = "d", **which: t.Any) -> deletion.Deleting:
        with self.ledger.write() as tx:
            return deletion.begin(tx.for_run(self.context(run)), Selection(**which), missing_ok=True)

    def of_host(self, host: str, run: str = "d") -> list[dict[str, str]]:
        with self.ledger.read() as tx:
            return deletion.of_host(tx.for_run(self.context(run)), host)

    def removed(self, host: str, uuids: t.Sequence[str], run: str = "d") -> None:
        with self.ledger.write() as tx:
            deletion.removed(tx.for_run(self.context(run)), {host: uuids}, {})

    def finish(self, run: str = "d", force: bool = False) -> tuple[list[str], list[dict[str, t.Any]]]:
        with self.ledger.write() as tx:
            return deletion.finish(tx.for_run(self.context(run)), force)

    # --- what is there ---------------------------------------------------------------------------------------------

    def rows(self, table: sa.Table, *where: t.Any) -> list[t.Any]:
        with self.ledger.read() as tx:
            return list(tx.execute(sa.select(table).where(*where).order_by(*table.primary_key.columns)))

    def row(self, uuid: str) -> t.Any:
        return self.rows(tables.instances, tables.instances.c.uuid == uuid)[0]

    def state(self, uuid: str) -> tuple[str, str | None, str | None]:
        row = self.row(uuid)
        return row.vm_state, row.task_state, row.host

    def count(self, table: sa.Table) -> int:
        return len(self.rows(table))

    def everything(self) -> dict[str, list[t.Any]]:
        return {name: self.rows(table) for name, table in tables.metadata.tables.items() if name != "runs"}

    def used(self, host: str) -> tuple[int, int, int, int]:
        row = self.rows(tables.compute_nodes, tables.compute_nodes.c.host == host)[0]
        return row.memory_mb_used, row.local_gb_used, row.vcpus_used, row.num_instances

    def claims(self) -> set[tuple[str, str]]:
        """(uuid, host)"""
        with self.ledger.read() as tx:
            return {(uuid, host) for uuid, host, _id in _claims(tx)}

    def addresses(self, uuid: str | None = None) -> list[str]:
        query = sa.select(tables.ip_allocations.c.ip_address).join(
            tables.ports, tables.ports.c.id == tables.ip_allocations.c.port_id
        )
        if uuid is not None:
            query = query.where(tables.ports.c.instance_uuid == uuid)
        with self.ledger.read() as tx:
            return sorted(tx.execute(query).scalars())

    def cleanups(self) -> set[tuple[str, str]]:
        """(uuid, host)"""
        return {(r.instance_uuid, r.host) for r in self.rows(tables.cleanups)}

    def fault(self, uuid: str) -> t.Any:
        return self.rows(tables.instance_faults, tables.instance_faults.c.instance_uuid == uuid)[-1]

    # --- the laws --------------------------------------------------------------------------------------------------

    def check(self, tx: Transaction) -> None:
        """What holds after every transaction, whatever the history."""
        nodes_by_id = {r.id: r for r in tx.execute(sa.select(tables.compute_nodes))}
        claimed = list(tx.execute(sa.select(tables.claims)))
        for node in nodes_by_id.values():
            mine = [c for c in claimed if c.compute_node_id == node.id]
            assert node.memory_mb_used == node.reserved_memory_mb + sum(c.memory_mb for c in mine)
            assert node.local_gb_used == node.reserved_disk_gb + sum(c.disk_gb for c in mine)
            assert node.vcpus_used == node.reserved_vcpus + sum(c.vcpus for c in mine)
            assert node.num_instances == len({c.instance_uuid for c in mine})  # one that is resized there has two
        rows = {r.uuid: r for r in tx.execute(sa.select(tables.instances))}
        cleanups = {(r.instance_uuid, r.host) for r in tx.execute(sa.select(tables.cleanups))}
        places = {(u, h) for u, h, _id in _claims(tx)}
        moving = {r.instance_uuid: r for r in tx.execute(sa.select(tables.migrations)) if r.status in moves.OPEN}
        planned = {(r.instance_uuid, r.host) for r in tx.execute(sa.select(plan_places))}
        for uuid, host in places - planned:
            row = rows[uuid]
            lives_there = row.deleted == instances.LIVE and row.host == host
            if uuid in moving and host in (moving[uuid].source_compute, moving[uuid].dest_compute):
                lives_there = row.deleted == instances.LIVE
            assert lives_there or (uuid, host) in cleanups, "a claim of %s on %s is nobody's" % (uuid, host)
        for row in rows.values():
            if (
                row.deleted == instances.LIVE
                and row.host is not None
                and row.vm_state in (states.ACTIVE, states.BUILDING)
            ):
                assert (row.uuid, row.host) in places, "%s runs without a claim" % row.uuid
            if row.deleted != instances.LIVE:
                assert (row.vm_state, row.task_state, row.host) == (states.DELETED, None, None)
        of_all = {(r.instance_uuid, r.host) for r in tx.execute(sa.select(tables.cleanups)) if r.part == "all"}
        for uuid, host in of_all & {(r.uuid, r.host) for r in rows.values() if r.deleted == instances.LIVE}:
            assert rows[uuid].task_state == states.DELETING, "%s is to be removed from its own host %s" % (uuid, host)
        for port in tx.execute(sa.select(tables.ports)):
            assert (port.project is not None) == bool(port.preserve_on_delete)
            if port.instance_uuid is None:
                assert (port.host, port.position, port.tag) == (None, 0, None) and port.preserve_on_delete
                continue
            held = port.position == ports.HELD
            assert held == ((port.instance_uuid, port.host) in of_all), "port %s of %s" % (
                port.id,
                port.instance_uuid,
            )
            assert held or rows[port.instance_uuid].deleted == instances.LIVE
        allocations = list(tx.execute(sa.select(tables.ip_allocations)))
        assert len({(a.subnet_id, a.ip_address) for a in allocations}) == len(allocations)
        assert {a.port_id for a in allocations} <= {p.id for p in tx.execute(sa.select(tables.ports))}


def _claims(tx: Transaction) -> list[tuple[str, str, int]]:
    c = tables.claims.c
    query = sa.select(c.instance_uuid, tables.compute_nodes.c.host, c.id).join(
        tables.compute_nodes, tables.compute_nodes.c.id == c.compute_node_id
    )
    return [tuple(r) for r in tx.execute(query)]
