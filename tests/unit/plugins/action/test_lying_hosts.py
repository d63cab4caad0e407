# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that answer anything: each is left out in words or believed, and everybody else is scheduled as if it were not there."""

from __future__ import annotations

import copy
import json
import math
import random
import typing as t

import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.action import audit, compute_report, storage_report
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit.plan import HOST_UNREACHABLE
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import HostNUMATopology
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import accept, schedule
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import accept as volume_accept
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import schedule as volume_schedule
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import fleet, nodes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables, volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import volume_views
from ansible_collections.bootflow.compute.plugins.plugin_utils.volumes import volume_texts
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of, results_of, run_stage
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples
from ansible_collections.bootflow.compute.tests.unit.worlds.volume_world import VolumeWorld
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

# Each takes a number of examples (worlds/examples.py): a tenth in the inner loop.
pytestmark = pytest.mark.hypothesis

UUID = "6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d01"
IQN = "iqn.2010-10.org.openstack:volume-" + UUID
EVERYTHING = fleet.Needs(numa=True, devices=True, instances=True, metrics=True, networks=True)

NODE: dict[str, t.Any] = {
    "hypervisor_hostname": "h2",
    "host_uuid": UUID,
    "host_ip": "192.0.2.2",
    "boot_id": "a1b2c3d4-0000-4000-8000-000000000001",
    "vcpus": 8,
    "vcpus_used": 1,
    "memory_mb": 8192,
    "memory_mb_used": 700,
    "local_gb": 100,
    "local_gb_used": 5,
    "disk_available_least": -3,
    "hypervisor_type": "QEMU",
    "hypervisor_version": 7002022,
    "libvirt_version": 9000000,
    "cpu_info": {
        "arch": "x86_64",
        "model": "Skylake",
        "vendor": "Intel",
        "features": ["aes", "vmx"],
        "topology": {"sockets": 1, "cores": 4, "threads": 2, "cells": 1},
    },
    "numa_topology": {
        "cells": [
            {
                "id": 0,
                "memory_mb": 8192,
                "cpus": [0, 1, 2, 3],
                "siblings": [[0, 1], [2, 3]],
                "pages": [{"size_kb": 4, "total": 2097152}, {"size_kb": 2048, "total": 16}],
            }
        ]
    },
    "supported_instances": [["x86_64", "kvm", "hvm"], ["i686", "qemu", "hvm"]],
    "pci_passthrough_devices": [
        {
            "address": "0000:0a:00.1",
            "vendor_id": "8086",
            "product_id": "10ed",
            "numa_node": 0,
            "dev_type": "type-VF",
            "parent_addr": "0000:0a:00.0",
            "tags": {"physical_network": "net", "trusted": None},
            "dev_id": "pci_0000_0a_00_1",
            "label": "label_8086_10ed",
        }
    ],
    "isolated_disks": [
        {"path": "/dev/sdb", "size_gb": 100, "medium": "ssd", "serial": "S1", "reason": ""},
        {"path": "/dev/sdc", "size_gb": 10, "medium": "", "serial": "", "reason": "is used by d", "domain": "d"},
    ],
    "metrics": {"cpu.frequency": 2100, "cpu.user.time": 2**40, "cpu.percent": 3},
    "emulators": {"x86_64": "/usr/bin/qemu-system-x86_64"},
    "machine_types": {"x86_64": ["pc", "q35"]},
    "uefi": True,
    "initiator": "iqn.1993-08.org.debian:01:h2",
    "qemu_iscsi": False,
    "networks": {
        "bridge": [{"name": "br0", "active": True}],
        "network": [{"name": "default", "active": True, "autostart": False}],
    },
    "stats": {"disk_backend": "qcow2"},
    "virt_type": "kvm",
    "virt_type_reason": "a guest ran",
    "domains": [{"uuid": UUID, "name": "d", "power_state": 1, "memory_mb": 512, "vcpus": 1, "ours": False}],
    "instance_folders": [UUID],
    "instance_volumes": {UUID: [UUID + "_disk"]},
    "running_domains": 1,
}
ENDS = {
    "sessions": [
        {"iqn": IQN, "volume_id": UUID, "session": True, "luns": [0], "portals": ["192.0.2.9:3260"], "in_use": ["d"]}
    ],
    "secrets": [{"iqn": IQN, "volume_id": UUID}],
    "error": None,
}
DHCP = {
    "networks": [
        {
            "name": "bf-n",
            "ours": True,
            "reservations": [{"mac": "fa:16:3e:00:00:01", "address": "10.3.0.5", "complete": True, "used": False}],
        }
    ],
    "error": None,
}
LOGICAL_VOLUME = {
    "kind": "volume",
    "id": UUID,
    "name": "volume-" + UUID,
    "path": "/dev/vg/volume-" + UUID,
    "project": "default",
    "source": "",
    "size": 2**30,
    "active": True,
    "open": False,
    "complete": True,
    "deleting": False,
    "origin": "",
    "pool": "pool",
    "data_percent": 12.5,
}
BACKEND: dict[str, t.Any] = {
    "total_capacity_gb": 100.0,
    "free_capacity_gb": 90.0,
    "provisioned_capacity_gb": 10.0,
    "allocated_capacity_gb": 10.0,
    "thin_provisioning_support": True,
    "thick_provisioning_support": False,
    "data_percent": 10.0,
    "metadata_percent": 1.0,
    "vg_free_gb": 1.0,
    "image_cache_count": 0,
    "image_cache_gb": 0.0,
    "total_volumes": 1,
    "extent_size": 4194304,
    "location_info": "LVMVolumeDriver:s2:vg:thin:0",
    "boot_id": UUID,
    "read_at": 5.5,
    "vg_uuid": "abc",
    "volumes": [LOGICAL_VOLUME],
    "orphans": [LOGICAL_VOLUME],
    "error": None,
}
FAILED = {"code": "DriverNotInitialized", "status": 500, "message": "no group", "remedy": "vgcreate", "retryable": True}
TARGETS = [
    {
        "target": "lio",
        "iqn_prefix": "iqn.2010-10.org.openstack:",
        "exports": [
            {"iqn": IQN, "volume_id": UUID, "path": "/dev/x", "sessions": ["iqn.h"], "running": True, "ours": True}
        ],
        "error": None,
    }
]
COMPUTE = {"changed": False, "compute_node": NODE, "iscsi": ENDS, "dhcp": DHCP, "warnings": ["slow"]}
STORAGE = {"changed": False, "backends": {"lvm": BACKEND, "old": {"error": FAILED}}, "targets": TARGETS, "progress": []}

LIES: list[t.Any] = [
    *(None, True, False, "", "lots", "inf", "NaN", "\x00", "\x1b[2J", "\ud800", "\u202eabc", "x" * 5000, "../../etc"),
    *(-1, 0, 1, 1.5, -2.5, 2**31, 2**63, -(2**63) - 1, 10**400, math.inf, -math.inf, math.nan),
    *([], [[]], [None], ["a", "a"], [{}], [0, 0], {}, {"a": "b"}, {"": 0}, {"cells": 5}, {"\x00": 1}, {"error": 5}),
]
GONE = object()


def nested(depth: int) -> t.Any:
    value: t.Any = 0
    for _level in range(depth):
        value = [value]
    return value


def paths(value: t.Any, path: tuple[t.Any, ...] = ()) -> t.Iterator[tuple[t.Any, ...]]:
    if path:
        yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield from paths(item, (*path, key))


def lies(truth: t.Mapping[str, t.Any], count: int) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    """``count`` answers with one lie each: every path has its turn, and every lie."""
    rng = random.Random(18)
    every = [(p, lie) for p in paths(truth) for lie in [*LIES, nested(100), GONE]]
    for path, lie in rng.sample(every, min(count, len(every))):
        answer = copy.deepcopy(dict(truth))
        place: t.Any = answer
        for key in path[:-1]:
            place = place[key]
        if lie is GONE:
            del place[path[-1]]
        else:
            place[path[-1]] = lie
        yield "%s: %.60r" % (".".join(map(str, path)), lie if lie != 10**400 else "10**400"), answer


def variables(host: str) -> dict[str, t.Any]:
    pools = [{"name": "lvm", "provisioning": "thin"}, {"name": "old", "volume_group": "old"}]
    stored = {"bootflow_storage_ip": "192.0.2.1", "bootflow_storage_backends": pools}
    hosts = {"h1": {}, "h2": {}, "s2": stored}
    return {
        "inventory_hostname": host,
        "hostvars": {"localhost": {}, **hosts},
        "groups": {"all": list(hosts), "bootflow_compute": ["h1", "h2"], "bootflow_storage": ["s2"]},
    }


def said(result: t.Mapping[str, t.Any], warnings: t.Sequence[str], lie: str) -> None:
    """A host that is not believed is named with the field and what it must be."""
    assert not result["reported"] or result.get("error") is None, lie
    if not result["reported"]:
        assert result["error"]["code"] in ("InvalidAnswer", "DriverNotInitialized"), (lie, result["error"])
        assert " must be " in result["error"]["message"] and result["error"]["remedy"], lie
        assert warnings, lie
        assert all(c.isprintable() or c == "\n" for c in result["error"]["message"]), lie


def test_a_lying_compute_host_is_left_out_and_everybody_else_boots(world: World) -> None:
    """Whatever a host answers, the report and the audit come to an end, and a boot finds its host."""
    world.report("h1", numa_topology=None)
    lying = list(lies(COMPUTE, examples(1000)))
    left_out = 0
    for lie, answer in lying:
        ports = WorldPorts(world, "a", lambda _name, _arguments, answer=answer: answer)
        result = action_of(compute_report, ports, variables("h2")).act()
        said(result, ports.warnings, lie)
        left_out += not result["reported"]
        with world.ledger.rehearse() as tx:
            _boots(world, tx, lie)
        if not result["reported"]:
            _audited(world, answer, lie)
    assert left_out > len(lying) / 2
    ports = WorldPorts(world, "a", lambda _name, _arguments: copy.deepcopy(COMPUTE))
    assert action_of(compute_report, ports, variables("h2")).act()["reported"], "the truth is believed"


def test_a_host_that_has_a_domain_twice_is_not_believed(world: World) -> None:
    """Which of its states counted would be left to chance."""
    answer = copy.deepcopy(COMPUTE)
    answer["compute_node"]["domains"] *= 2
    answer["compute_node"]["domains"][1] = {**answer["compute_node"]["domains"][0], "power_state": 4}
    ports = WorldPorts(world, "a", lambda _name, _arguments: answer)
    result = action_of(compute_report, ports, variables("h2")).act()
    assert not result["reported"] and "a list in which each uuid occurs once" in result["error"]["message"]


def _boots(world: World, tx: Transaction, lie: str) -> None:
    (uuid,) = _accepted(world, tx)

    def read(tx: Transaction, _needs: fleet.Needs = fleet.NUMBERS_ONLY) -> t.Any:
        found = world.fleet(tx, EVERYTHING)
        assert [h.nodename for h in found.hosts], lie
        return found

    result = schedule.schedule(tx.for_run(world.context()), read, world.options())
    assert uuid in result.placed, (lie, result)


def _accepted(world: World, tx: Transaction) -> list[str]:
    options = accept.AcceptOptions(networks=world.networks)
    return list(accept.accept(tx.for_run(world.context()), [request("web")], options).created)


def _audited(world: World, answer: dict[str, t.Any], lie: str) -> None:
    hosts = variables("h2")
    ports = WorldPorts(world, "a", lambda _name, _arguments: answer)
    results_of(ports, "audit").leave("begin", "localhost", {})
    inspected = run_stage(action_of(audit, ports, hosts, phase="inspect"))
    assert not inspected["inspected"], lie
    repaired = run_stage(action_of(audit, ports, {**hosts, "inventory_hostname": "localhost"}, True, phase="repair"))
    assert [f["host"] for f in repaired["findings"] if f["kind"] == HOST_UNREACHABLE] == ["h2"], (lie, repaired)


def test_a_lying_storage_host_is_left_out_and_everybody_elses_volumes_are_placed(vworld: VolumeWorld) -> None:
    """Whatever a storage host answers, volumes are placed on the others, and the table of backends is shown."""
    vworld.store("s1", lvm=100)
    lying = list(lies(STORAGE, examples(1000)))
    left_out = 0
    for lie, answer in lying:
        ports = WorldPorts(vworld, "a", lambda _name, _arguments, answer=answer: answer)
        result = action_of(storage_report, ports, variables("s2")).act()
        left_out += not result["reported"]
        said(result, ports.warnings, lie)
        _makes_volumes(vworld, lie)
        if not result["reported"]:
            results_of(ports, "audit").leave("begin", "localhost", {})
            inspected = run_stage(action_of(audit, ports, variables("s2"), phase="inspect"))
            assert not inspected["storage"]["inspected"], lie
    assert left_out > len(lying) / 2
    ports = WorldPorts(vworld, "a", lambda _name, _arguments: copy.deepcopy(STORAGE))
    assert action_of(storage_report, ports, variables("s2")).act()["reported"], "the truth is believed"


def _makes_volumes(world: VolumeWorld, lie: str) -> None:
    with world.ledger.rehearse() as tx:
        tx = tx.for_run(world.context())
        (volume,) = volume_accept.accept(tx, [{"name": "v", "size": 1}], world.settings()).created
        assert volume in volume_schedule.schedule(tx, world.volume_options()).placed, lie
        assert volume_texts.backend_table(volume_views.backends(tx)), lie


# --- what the ledger took before answers were checked --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite"])  # PostgreSQL takes no such value
@pytest.mark.parametrize("column", ["memory_mb", "vcpus", "local_gb", "disk_available_least"])
@pytest.mark.parametrize("value", ["'lots'", "9e999", "-9e999", "1e300"])
def test_a_row_that_cannot_be_read_is_a_host_that_is_down(world: World, column: str, value: str) -> None:
    """sqlite took such values; the host is down in words where its numbers are none, and all others are scheduled."""
    world.report("h1")
    world.report("h2")
    c = tables.compute_nodes.c
    with world.ledger.write() as tx:
        tx.execute(tables.compute_nodes.update().where(c.host == "h2").values({column: sa.literal_column(value)}))
    with world.ledger.rehearse() as tx:
        down = {h.host: h.down_reason for h in world.hosts(tx)}
        assert down["h1"] == ""
        assert column in down["h2"]
        _boots(world, tx, column)


PROFILES: list[dict[str, t.Any]] = [
    {"cpu_info": [5]},
    {"supported_instances": 5},
    {"stats": "x", "cpu_info": {"topology": {"sockets": math.inf}}},
]


@pytest.mark.parametrize("profile", PROFILES, ids=json.dumps)
def test_a_profile_that_cannot_be_read_is_a_host_that_is_down(world: World, profile: dict[str, t.Any]) -> None:
    """The CPU and guests of a host as an older version stored them."""
    world.report("h1")
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context())
        plain = json.loads(json.dumps(profile).replace("Infinity", "-1"))
        nodes.record_report(tx, "h2", {"hypervisor_hostname": "h2", **plain}, {})
    with world.ledger.rehearse() as tx:
        assert "must report again" in {h.host: h.down_reason for h in world.hosts(tx)}["h2"]
        _boots(world, tx, str(profile))


@pytest.mark.parametrize(
    "facts",
    [
        {"numa_topology": {"cells": [{"id": "x"}]}},
        {"numa_topology": {"cells": 5}},
        {"pci_passthrough_devices": 5},
        {"pci_passthrough_devices": ["x"]},
        {"isolated_disks": [{"path": 5}]},
        {"isolated_disks": {"a": 1}},
    ],
    ids=json.dumps,
)
def test_devices_that_cannot_be_read_are_offered_to_nobody(world: World, facts: dict[str, t.Any]) -> None:
    """Cells and devices of a host as an older version stored them."""
    world.report("h1")
    cells = facts.get("numa_topology")
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context())
        node = nodes.record_report(tx, "h2", {"hypervisor_hostname": "h2", "numa_topology": cells, **facts}, {})
    assert node
    with world.ledger.rehearse() as tx:
        h2 = next(h for h in world.fleet(tx, EVERYTHING).hosts if h.host == "h2")
        assert (h2.numa_topology, list(h2.pci_devices), list(h2.free_disks)) == (None, [], [])
        _boots(world, tx, str(facts))
    assert HostNUMATopology.from_facts(NODE["numa_topology"]) is not None


@pytest.mark.parametrize("column", ["total_gb", "free_gb", "provisioned_gb"])
@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_a_pool_of_infinite_size_is_not_ready(vworld: VolumeWorld, column: str, value: float) -> None:
    """Both databases take an infinite number; volumes are placed on the other pools."""
    vworld.store("s1", lvm=100)
    vworld.store("s2", lvm=100)
    with vworld.ledger.write() as tx:
        of_s2 = volume_tables.storage_backends.c.host == "s2"
        tx.execute(volume_tables.storage_backends.update().where(of_s2).values({column: value}))
    assert "is invalid" in vworld.pools()["s2@lvm#lvm"].not_ready
    _makes_volumes(vworld, column)


@pytest.mark.parametrize("report", [{"orphans": 5}, {"orphans": [5]}, {"data_percent": "many"}, []])
def test_a_stored_report_that_cannot_be_read_breaks_no_table(vworld: VolumeWorld, report: t.Any) -> None:
    """The table of backends shows the others, and says why."""
    vworld.store("s1", lvm=100)
    vworld.store("s2", lvm=100)
    with vworld.ledger.write() as tx:
        of_s2 = volume_tables.storage_backends.c.host == "s2"
        tx.execute(volume_tables.storage_backends.update().where(of_s2).values(report=report))
    _makes_volumes(vworld, str(report))
    with vworld.ledger.read() as tx:
        (shown,) = (b for b in volume_views.backends(tx) if b["host"] == "s2")
    assert "is invalid" in shown["error"]["message"]
