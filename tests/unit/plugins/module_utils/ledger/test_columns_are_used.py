# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each column of the ledger is written by the product, with a value other than its default, and the product reads it.

Written: in a life of hosts, instances and volumes that only the product's own functions lead, from reports as hosts give them. Read: its
name is an attribute or a text in the code, outside the tables and their migrations.
"""

from __future__ import annotations

import ast
import dataclasses
import os
import pathlib
import typing as t

import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.action import compute_host_state, compute_report, storage_report
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.progress import Progress
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.port_security import GivenSecurity
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.security_entries import (
    GroupEntry,
    read_rules,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import NetworkRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.image_imports import read_imports
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import migration_attachments, moving
from ansible_collections.bootflow.compute.plugins.module_utils.flows.backups import deletion as backup_deletion
from ansible_collections.bootflow.compute.plugins.module_utils.flows.backups import verification
from ansible_collections.bootflow.compute.plugins.module_utils.flows.images import deletion, imports, store_work
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import lock
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import (
    cold,
    cold_life,
    confirm,
    live,
    live_life,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.networks import port_filters
from ansible_collections.bootflow.compute.plugins.module_utils.flows.networks import security_groups as group_flow
from ansible_collections.bootflow.compute.plugins.module_utils.flows.service import rolling
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import capacity
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import cleanups, fleet, nodes, shelved
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances as instance_rows
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute.moves import set_progress
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import this_run
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.this_run import Context
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.guest_data import guest_texts
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.images import images as image_rows
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.networks import filter_marks
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.plans import places as places_of_plans
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.plans import plans as held_places
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema.tables import metadata
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.service import services
from ansible_collections.bootflow.compute.tests.unit.plugins.action.test_lying_hosts import (
    COMPUTE,
    NODE,
    STORAGE,
    variables,
)
from ansible_collections.bootflow.compute.tests.unit.plugins.module_utils.flows.backups import test_incremental
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld, from_image, volume_request
from ansible_collections.bootflow.compute.tests.unit.worlds.ledgers import migrate
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import A_GPU, CARD, cells, pinned
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE, SMALL, request

PLUGINS = pathlib.Path(__file__).resolve().parents[5] / "plugins"
COLUMNS = sorted("%s.%s" % (table.name, column.name) for table in metadata.tables.values() for column in table.columns)

#: What is read, and that operations to come will write. A column that is written now has to leave this list.
UNWRITTEN = {
    "volumes.migration_status": "the migration of volumes",
}


class Life(BootWorld):
    """Notes, after each step, the columns that have something other than their default."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.connection_info = {"name": "volumes/volume"}
        self.filled: set[str] = set()

    def look(self) -> None:
        self.time += 1
        with self.ledger.read() as tx:
            for table in metadata.tables.values():
                for row in tx.execute(sa.select(table)):
                    for column in table.columns:
                        if not _is_default(column, getattr(row, column.key)):
                            self.filled.add("%s.%s" % (table.name, column.name))

    def report_of(self, module: t.Any, host: str, answer: t.Any, **more: t.Any) -> None:
        ports = WorldPorts(self, "a", lambda _name, _arguments: answer)
        its = variables(host)
        its["hostvars"][host] = {**its["hostvars"][host], **more}
        assert action_of(module, ports, {**its, **its["hostvars"][host]}).act()["reported"] == ("msg" not in answer)
        self.look()

    def context(self, run: str = "a", **fields: t.Any) -> Context:
        fields.setdefault("notify_on_state_change", "vm_state")
        found = super().context(run, **fields)
        return dataclasses.replace(found, run=this_run.identify(os.getpid(), "controller", "ann"))

    def state_of(self, state: str) -> None:
        ports = WorldPorts(self, "a")
        reason = "" if state in ("enabled", "up") else "repair"
        action_of(compute_host_state, ports, variables("localhost"), hosts=["h2"], state=state, reason=reason).act()
        self.look()


def _is_default(column: sa.Column[t.Any], value: t.Any) -> bool:
    if value is None:
        return True
    return column.default is not None and not callable(column.default.arg) and value == column.default.arg


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    url = "sqlite:///%s" % (tmp_path_factory.mktemp("life") / "ledger.db")
    migrate(url)
    life = Life(url)
    hosts(life)
    instances(life)
    volumes(life)
    images(life)
    life.ledger.close()
    return life.filled


def hosts(life: Life) -> None:
    settings = {
        "disabled": True,
        "disabled_reason": "no",
        "availability_zone": "z",
        "reserved_memory_mb": 1,
        "reserved_vcpus": 1,
        "reserved_disk_gb": 1,
        "ram_allocation_ratio": 1.1,
        "disk_allocation_ratio": 1.1,
        "cpu_allocation_ratio": 1.1,
    }
    answer = {**COMPUTE, "compute_node": {**NODE, "hypervisor_type": "KVM"}}
    life.report_of(compute_report, "h2", answer, **{"bootflow_" + name: value for name, value in settings.items()})
    life.report_of(compute_report, "h2", {"unreachable": True, "msg": "no route"})
    for state in ("disabled", "forced_down", "enabled", "up"):
        life.state_of(state)


def instances(life: Life) -> None:
    room = {"hypervisor_hostname": "h3", "memory_mb": 9000, "local_gb": 4000, "vcpus": 500}
    with life.ledger.write() as tx:
        facts = {**room, "pci_passthrough_devices": CARD, "numa_topology": cells()}
        nodes.record_report(tx.for_run(life.context()), "h3", facts, {})
    group = ServerGroup(id="apart", name="apart", policy="anti-affinity", max_server_per_host=2)
    tagged = NetworkRequest(network="net-1", tag="front")
    first = life.boot(
        "first", "networking", server_group=group, pci_requests=(A_GPU,), numa_topology=pinned(), key_name="ops", config_drive=True,
        networks=(tagged,), user="bob", availability_zone="nova",
    )  # fmt: skip
    life.look()
    life.fail("h3", first, errors.RemoteError(reason="x"), cleaned=False, cleanup_reason="busy")
    life.look()
    move(life, room)
    grow(life)
    migrate_live(life)
    retried = life.boot("retried", "networking")
    life.report("h1", memory=9)
    life.fail("h3", retried, errors.RemoteError(reason="x"), event="networking")
    life.look()
    with life.ledger.write() as tx:
        assert capacity.record_day(tx.for_run(life.context()))
    two = life.boot_of(request("two", 2, flavor=dataclasses.replace(SMALL, swap=1, ephemeral_gb=1)))
    life.look()
    with life.ledger.write() as tx:
        lock.lock(tx.for_run(life.context()), Selection(uuids=two), "why")
        instance_rows.write_ssh_host_keys(tx, {two[0]: "ssh-ed25519 AAAA"})
    life.look()
    life.delete(uuids=two)
    life.look()
    life.removed("h1", two)
    life.finish()
    life.look()
    seen_elsewhere(life, room)


def seen_elsewhere(life: Life, room: t.Mapping[str, t.Any]) -> None:
    """A machine under two names, and one that reports a guest which the ledger has on another host."""
    machine = {**room, "hypervisor_hostname": "kvm6", "host_uuid": "f29cdf09-b68a-4f4f-ae9e-64bd00c2bbd8"}
    runner = life.boot("seen")
    life.time += 1
    for host, more in (("h6", {}), ("h6.example.org", {"domains": [{"uuid": runner, "power_state": 1, "name": "i"}]})):
        with life.ledger.write() as tx:
            nodes.record_report(tx.for_run(life.context()), host, {**machine, **more}, {})
    life.look()


def move(life: Life, room: t.Mapping[str, t.Any]) -> None:
    for host in ("h4", "h5"):
        facts = {**room, "hypervisor_hostname": host, "pci_passthrough_devices": CARD, "numa_topology": cells()}
        with life.ledger.write() as tx:
            nodes.record_report(tx.for_run(life.context()), host, facts, {})
    uuid = life.boot("mover", pci_requests=(A_GPU,), numa_topology=pinned())
    host = life.row(uuid).host
    backends = {"h4": "qcow2", "h5": "qcow2"}
    with life.ledger.write() as tx:
        wanted = cold.Wanted(Selection(uuids=[uuid]), ("h4", "h5"), backends)
        begun = cold.begin(tx.for_run(life.context("m")), wanted, life.fleet, life.options())
    assert host in backends and begun.moving
    life.look()
    with life.ledger.write() as tx:
        cold_life.switch(tx.for_run(life.context("m")), [uuid])
        assert not cold_life.finish(tx.for_run(life.context("m")), cold_life.MIGRATE, {uuid: cold_life.Result(1)})
        confirm.confirm(tx.for_run(life.context("m")), Selection(uuids=[uuid]))
    life.look()


def migrate_live(life: Life) -> None:
    uuid = life.boot("runner")
    backends = {"h1": "qcow2", "h4": "qcow2", str(life.row(uuid).host): "qcow2"}
    its = Progress(*range(1, 7))
    with life.ledger.write() as tx:
        tx = tx.for_run(life.context("m"))
        assert live.begin(
            tx, live.Wanted(Selection(uuids=[uuid]), tuple(backends), backends), life.fleet, life.options(), life.end
        ).moving
        live_life.mark_running(tx, [uuid])
        set_progress(tx, {uuid: (9, its)})
        live_life.finish(tx, {uuid: live_life.Result(1, errors.RemoteError(reason="x"), cleaned=False)})
    life.look()


def grow(life: Life) -> None:
    """On its own host, which is cleaned of a part then."""
    uuid = life.boot("grower")
    host = life.row(uuid).host
    large = dataclasses.replace(SMALL, name="larger", memory_mb=2048, swap=8)
    with life.ledger.write() as tx:
        tx = tx.for_run(life.context("m"))
        wanted = cold.Wanted(Selection(uuids=[uuid]), (host,), {host: "qcow2"}, large, same_host=True)

        def alone(tx, needs):
            return fleet.read(tx, {host}, needs=needs)

        assert cold.begin(tx, wanted, alone, life.options()).moving
        cold_life.switch(tx, [uuid])
        assert not cold_life.finish(tx, cold_life.RESIZE, {uuid: cold_life.Result(1)})
        confirm.confirm(tx, Selection(uuids=[uuid]))
        assert cleanups.begin(tx, host, [uuid])
    life.look()


def volumes(life: Life) -> None:
    life.store("s1", lvm=1000)
    life.make("source", description="d", volume_type="fast")
    life.make("copy", source_volid="source")
    life.snapshot({"name": "x", "volume": "source", "description": "d"}, {"name": "y", "volume": "source"})
    life.look()
    life.work()
    life.make("from-snapshot", None, snapshot_id="x", multiattach=True)
    life.make("from-image", image=IMAGE.name)
    life.request({"name": "late", "size": 1})
    life.choose()
    life.look()
    life.work(late=errors.VolumeBackendAPIException(data="broken"))
    life.snapshot({"name": "y", "volume": "source", "state": "absent"}, {"name": "z", "volume": "source"})
    life.request({"name": "quiet", "size": 1})
    life.choose()
    life.look()
    life.silent()
    life.look()
    life.remove("quiet")
    life.work_of("s1", "d")
    life.look()
    life.reported("s1")
    life.work(run="d")
    life.look()
    (guest,) = life.boot_of(volume_request("guest", from_image(delete_on_termination=True)), until="exported")
    life.look()
    life.build(str(life.row(guest).host))
    with life.ledger.write() as tx:  # it begins to migrate
        moving.adopt(tx.for_run(life.context("m")), [guest])
        migration_attachments.reserve_on_destination(tx.for_run(life.context("m")), {guest: life.end("h9", {})})
    life.look()
    with life.ledger.write() as tx:
        migration_attachments.end_on_destination(tx.for_run(life.context("m")), [guest])
        migration_attachments.release(tx, [guest], [life.context("m").run.id])
    (root,) = [a.volume_id for a in life.live_attachments()]
    life.extend(root, 20)
    life.look()
    life.work()
    life.attach({"instance": "guest", "volume": "source", "device": "/dev/vdc", "mode": "ro"})
    life.look()
    life.storage_round()
    life.connect(life.row(guest).host, [guest])
    life.look()
    life.snapshot({"name": "x", "volume": "source", "state": "absent"})
    life.work()
    life.delete_all(guest)
    life.remove("late", "copy")
    life.look()
    life.storage_round()
    life.removed_all()
    life.look()
    pools = [
        {"name": "lvm", "availability_zone": "z", "frozen": True, "disabled": True},
        {"name": "old", "volume_group": "old"},
    ]
    life.report_of(storage_report, "s2", STORAGE, bootflow_storage_backends=pools)


def images(life: Life) -> None:
    life.make_port(tags=("front",))
    life.look()
    rules = [
        {"security_group": "web", "direction": "ingress", "remote_group": "default", "description": "d"},
        {
            "security_group": "web",
            "direction": "ingress",
            "protocol": "tcp",
            "port_range_min": 1,
            "port_range_max": 2,
            "remote_ip_prefix": "10.0.0.0/8",
        },
    ]
    with life.ledger.write() as tx:
        of_run = tx.for_run(life.context("g"))
        assert group_flow.create(of_run, [GroupEntry("g", "web", "d")], "default", {}).created
        assert group_flow.create_rules(of_run, read_rules(rules), "default", {}).created
        assert port_filters.port_filters_of(of_run, ["h1"])
        filter_marks.confirm(of_run, {"h1": 1})
    pairs = ({"ip_address": "10.0.0.250", "mac_address": None},)
    life.make_port("grouped", security=GivenSecurity(groups=("web",), pairs=pairs))
    life.make_port("unfiltered", security=GivenSecurity(enabled=False))
    life.look()
    life.report("h1")
    uuid = life.boot("snapped")
    with life.ledger.write() as tx:
        of_run = tx.for_run(life.context("v"))
        rolling.enter(of_run, "spring", {"h1": "nova"}, restart=False)
        services.leave(of_run, "spring", 7.0)
        rolling.enter(of_run, "spring", {"h1": "nova"}, restart=False)
        services.note_instances(of_run, "spring", "h1", [uuid])
        services.set_state(of_run, "spring", "h1", "pending", "drain")
        held_places.add(of_run, "a-plan", "boot", "0" * 64, 1, of_run.now + 60)
        places_of_plans.add(of_run, "a-plan", {uuid: "h1"})
    life.look()
    with life.ledger.write() as tx:
        of_run = tx.for_run(life.context("v"))
        held_places.end(of_run, "a-plan", "used")
        guest_texts.write(of_run, "a-key", {"0" * 64: "text"})
    life.look()
    with life.ledger.write() as tx:
        shelved.add(tx.for_run(life.context("i")), {uuid: "its-image"}, {uuid: "h1"})
    life.look()
    stores = read_stores([{"name": "here", "path": "/srv/images"}], [])
    data = {
        "name": "kernel",
        "path": "/tmp/k",
        "disk_format": "ami",
        "min_disk": 1,
        "min_ram": 1,
        "properties": {"a": "b"},
    }
    wanted = {**data, "checksum": "sha256:" + "0" * 64, "protected": True, "instance": "snapped"}
    with life.ledger.write() as tx:
        of_run = tx.for_run(life.context("i"))
        begun = imports.begin(of_run, read_imports([wanted, {**wanted, "name": "lost"}], stores), "default", [], {})
    life.look()
    kernel, lost = begun.created
    with life.ledger.write() as tx:
        arrived = {
            kernel: store_work.Uploaded(5, "0" * 64),
            lost: errors.DiskFull(host="h", path="/srv", reason="full"),
        }
        store_work.finish(tx.for_run(life.context("i")), stores.default(), arrived, {})
        imports.finish(tx.for_run(life.context("i")))
    with life.ledger.write() as tx:
        image_rows.keep_nvram(tx.for_run(life.context("i")), kernel, "eA==")
    life.look()
    with life.ledger.write() as tx:
        deletion.begin(tx.for_run(life.context("i")), ["lost"], None, False, stores)
    life.look()
    hosts = [life.row(life.boot("web")).host]
    first = test_incremental.back_up(life, hosts=hosts)
    life.look()
    plans = test_incremental.begin(life, hosts=hosts)
    life.look()
    full_disk = errors.DiskFull(host="h1", path="/b", reason="full")
    assert test_incremental.finish(life, plans, error=full_disk)
    life.look()
    with life.ledger.write() as tx:
        verification.finish(tx.for_run(life.context("d")), {first: "its file has another content"})
    life.look()
    with life.ledger.write() as tx:
        backup_deletion.begin(tx.for_run(life.context("d")), ids=[first])
        backup_deletion.finish(tx.for_run(life.context("d")), [first])
    life.look()


def test_each_column_is_written(filled: set[str]) -> None:
    assert set(COLUMNS) - filled == set(UNWRITTEN)


def test_each_column_is_read() -> None:
    names: set[str] = set()
    for path in PLUGINS.rglob("*.py"):
        if not {"schema", "migrations"} & set(path.parts):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute):
                    names.add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    names.add(node.value)
    unread = {"%s.%s" % (t.name, c.name) for t in metadata.tables.values() for c in t.columns if c.key not in names}
    assert unread == set()
