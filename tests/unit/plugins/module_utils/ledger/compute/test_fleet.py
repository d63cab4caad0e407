# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet in columns says what a plain reading of the tables says, host by host."""

from __future__ import annotations

import random
import typing as t

import numpy as np
import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.aggregates import Aggregate
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.filters.compute_capabilities_filter import (
    ComputeCapabilitiesFilter,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import dedicated_resources, fleet, nodes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.fast import packed_nodes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import (
    A_GPU,
    CARD,
    DISKS,
    PLAIN,
    asked,
    cells,
    claim,
    node,
    pinned,
    waiting,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

EVERYTHING = fleet.Needs(numa=True, devices=True, instances=True, metrics=True, networks=True)


NUMBERS = (
    "memory_mb",
    "memory_mb_used",
    "local_gb",
    "local_gb_used",
    "disk_available_least",
    "vcpus",
    "vcpus_used",
    "ram_allocation_ratio",
    "disk_allocation_ratio",
    "cpu_allocation_ratio",
    "num_instances",
    "failed_builds",
)


def read(world: World, *hosts: str, **how: t.Any) -> t.Any:
    with world.ledger.read() as tx:
        return fleet.read(tx, hosts, **how)


def states_of(found: t.Any) -> dict[str, HostState]:
    return {h.host: h for h in found.hosts}


def write(world: World, host: str, **values: t.Any) -> None:
    c = tables.compute_nodes.c
    with world.ledger.write() as tx:
        tx.execute(tables.compute_nodes.update().where(c.host == host).values(**values))


def forget_hosts(world: World) -> None:
    """What no report says of a host breaks the laws of a ledger."""
    with world.ledger.write() as tx:
        tx.execute(tables.node_facts.delete())
        tx.execute(tables.compute_nodes.delete())


def build(world: World, uuid: str, **values: t.Any) -> None:
    c = tables.instances.c
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().where(c.uuid == uuid).values(**values))


def plain(world: World, host: str) -> dict[str, t.Any]:
    """What the tables say of a host, one value after the other."""
    (row,) = world.rows(tables.compute_nodes, tables.compute_nodes.c.host == host)
    mine = [r for r in world.rows(tables.instances, tables.instances.c.deleted == "") if r.host == host]
    busy = [r for r in mine if r.vm_state == states.BUILDING or r.task_state in tables.IO_TASKS]
    zone = row.availability_zone
    return {
        **{n: getattr(row, n) for n in NUMBERS},
        "nodename": row.node,
        "disabled": row.disabled or row.service_disabled,
        "forced_down": row.forced_down or row.unreachable_reason is not None,
        "availability_zones": (zone,) if zone else (),
        "hypervisor_type": row.hypervisor_type,
        "hypervisor_version": row.hypervisor_version,
        "updated_at": row.reported_at,
        "host_ip": row.host_ip,
        "num_io_ops": len(busy),
    }


def same(found: HostState, wanted: t.Mapping[str, t.Any]) -> None:
    assert {n: getattr(found, n) for n in wanted} == dict(wanted)
    assert tuple(found.availability_zones) == wanted["availability_zones"]


def test_a_fleet_as_the_tables_have_it(world: World) -> None:
    """30 hosts with drawn numbers; the columns and the host's own view agree with a plain reading."""
    draw = random.Random(3)
    for number in range(30):
        host = "h%02d" % draw.randrange(1000)
        node(
            world,
            host,
            memory_mb=draw.randrange(1, 9999),
            vcpus=draw.randrange(1, 64),
            hypervisor_version=draw.randrange(9_000_000),
            disk_available_least=draw.choice((None, -3, 12)),
            host_ip="192.0.2.%d" % number,
            configuration={
                "availability_zone": draw.choice(("nova", "z1", "")),
                "disabled": draw.random() < 0.2,
                "reserved_memory_mb": draw.randrange(600),
                "ram_allocation_ratio": draw.choice((1.0, 1.5)),
                "cpu_allocation_ratio": 16.0,
            },
        )
        write(
            world,
            host,
            service_disabled=draw.random() < 0.2,
            forced_down=draw.random() < 0.2,
            failed_builds=draw.randrange(3),
        )
    names = [r.host for r in world.rows(tables.compute_nodes)]
    uuids = waiting(world, 20)
    claim(world, *(asked(u, draw.choice(names)) for u in uuids))
    for uuid in uuids[:12]:
        task = draw.choice((None, "resize_migrating", "rebuilding", "deleting", "rescuing", "networking"))
        build(world, uuid, task_state=task, vm_state=draw.choice((states.ACTIVE, states.BUILDING)))
    found = read(world, *names, needs=EVERYTHING)
    assert [h.host for h in found.hosts] == sorted(names)
    for row, host in enumerate(found.hosts):
        wanted = plain(world, host.host)
        same(host, wanted)
        same(found.host_state(row), wanted)
        for name in ("memory_mb", "vcpus_used", "num_instances", "num_io_ops"):
            assert found.column(name, float)[row] == wanted[name]
    assert sum(h.num_io_ops for h in found.hosts) > 0 and sum(h.num_instances for h in found.hosts) == 20


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize(
    "text", ["reported_at = NULL", "disk_available_least = NULL, profile_id = NULL", "host_ip = ''"]
)
@pytest.mark.parametrize("number", [-(2**31) + 1, -1, 0, 2**31 - 1])
@pytest.mark.parametrize("real", [0.1 + 0.2, 1e300, 16.0, 5e-324])
def test_packed_rows_are_what_a_plain_reading_finds(
    world: World, monkeypatch: pytest.MonkeyPatch, text: str, number: int, real: float
) -> None:
    for host in ("h1", "h2", "h3"):
        node(world, host)
    integers = (*("memory_mb", "local_gb_used", "vcpus", "disk_available_least"), "failed_builds")
    write(world, "h2", **dict.fromkeys(integers, number), ram_allocation_ratio=real, reported_at=real)
    with world.ledger.write() as tx:
        tx.execute(sa.text("UPDATE compute_nodes SET %s WHERE host <> 'h1'" % text))
    found = read(world, "h1", "h2", "h3")

    def refuse(_tx: t.Any) -> None:
        raise packed_nodes.Unpackable

    with monkeypatch.context() as plainly:
        plainly.setattr(packed_nodes, "read", refuse)
        wanted = read(world, "h1", "h2", "h3")
    assert list(found.hosts) == list(wanted.hosts)
    monkeypatch.setattr(fleet, "_unpacked", None)
    assert list(read(world, "h3", "h2").hosts) == list(wanted.hosts)[1:]
    forget_hosts(world)


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("value", ["2147483648", "-2147483649", "1.5", "'x'", "x'00'", "9e999"])
def test_a_row_that_cannot_be_packed_is_read_as_it_is(world: World, value: str) -> None:
    for host in ("h1", "h2"):
        node(world, host)
    with world.ledger.write() as tx:
        tx.execute(sa.text("UPDATE compute_nodes SET memory_mb = %s WHERE host = 'h2'" % value))
    with world.ledger.read() as tx, pytest.raises(packed_nodes.Unpackable):
        packed_nodes.read(tx)
    first, second = read(world, "h1", "h2").hosts
    assert first.memory_mb > 0 and not first.forced_down
    assert second.forced_down or second.memory_mb == float(value)
    forget_hosts(world)


def test_only_the_inventorys_hosts_in_order(world: World) -> None:
    for host in ("b", "a", "c", "not in the inventory"):
        node(world, host)
    assert [h.host for h in read(world, "c", "a", "b").hosts] == ["a", "b", "c"]
    assert [h.host for h in read(world, *{"c": 1, "a": 2}).hosts] == ["a", "c"]
    assert list(read(world).hosts) == []


def test_a_host_with_two_nodes(world: World) -> None:
    node(world, "h1", hypervisor_hostname="n2")
    node(world, "h1", hypervisor_hostname="n1")
    assert [(h.host, h.nodename) for h in read(world, "h1").hosts] == [("h1", "n1"), ("h1", "n2")]


def test_a_host_that_never_reported(world: World) -> None:
    """Last, down, with nothing on it: an explanation can name it."""
    node(world, "zz")
    found = read(world, "aa", "zz", needs=EVERYTHING)
    assert [h.host for h in found.hosts] == ["zz", "aa"]
    stranger = found.hosts[1]
    assert stranger.forced_down and not stranger.disabled and stranger.updated_at is None
    assert (stranger.memory_mb, stranger.vcpus, stranger.num_instances, stranger.disk_available_least) == (
        0,
        0,
        0,
        None,
    )
    assert tuple(stranger.availability_zones) == ()
    assert read(world, "only").hosts[0].forced_down


@pytest.mark.parametrize(
    ("ledger", "inventory", "disabled", "reason"),
    [
        (False, False, False, ""),
        (True, False, True, "by hand"),
        (False, True, True, "in the inventory"),
        (True, True, True, "by hand"),
    ],
)
def test_disabled_in_the_ledger_or_in_the_inventory(
    world: World, ledger: bool, inventory: bool, disabled: bool, reason: str
) -> None:
    node(world, configuration={"disabled": inventory, "disabled_reason": "in the inventory" if inventory else ""})
    write(world, "h1", service_disabled=ledger, service_disabled_reason="by hand" if ledger else "")
    (host,) = read(world, "h1").hosts
    assert (host.disabled, host.disabled_reason) == (disabled, reason)


def test_down_by_hand_or_unreachable(world: World) -> None:
    for host in ("h1", "h2", "h3"):
        node(world, host)
    write(world, "h1", forced_down=True)
    with world.ledger.write() as tx:
        nodes.record_unreachable(tx, "h2", "no route")
    assert [h.forced_down for h in read(world, "h1", "h2", "h3").hosts] == [True, True, False]
    node(world, "h1")
    node(world, "h2")
    assert [h.forced_down for h in read(world, "h1", "h2", "h3").hosts] == [True, False, False]


@pytest.mark.parametrize("column", ["host_ip", "hypervisor_type", "availability_zone", "disabled_reason"])
def test_a_text_with_the_separator_of_texts_in_it(world: World, column: str) -> None:
    for host in ("h1", "h2"):
        node(world, host, host_ip="192.0.2." + host[1])
    write(world, "h1", **{column: "a\x1fb"})
    write(world, "h1", disabled=True)
    first, second = read(world, "h1", "h2").hosts
    same(first, plain(world, "h1"))
    same(second, plain(world, "h2"))
    assert first.disabled_reason == ("a\x1fb" if column == "disabled_reason" else "")


@pytest.mark.parametrize("name", nodes.CONFIGURATION)
@pytest.mark.parametrize("alike", [True, False])
def test_each_setting_is_compared(world: World, name: str, alike: bool) -> None:
    """Of hosts that have all settings alike, and of hosts that have not."""
    settings = {
        "ram_allocation_ratio": 1.5,
        "disk_allocation_ratio": 1.0,
        "cpu_allocation_ratio": 16.0,
        "reserved_memory_mb": 512,
        "reserved_disk_gb": 0,
        "reserved_vcpus": 0,
        "availability_zone": "nova",
        "disabled": False,
        "disabled_reason": "",
    }
    other = {n: "x" if isinstance(v, str) else not v if isinstance(v, bool) else v + 1 for n, v in settings.items()}
    of_two = settings if alike else {**settings, name: other[name]}
    wanted = {"h1": settings, "h2": of_two, "h3": settings}
    for host, its in wanted.items():
        node(world, host, configuration=its)
    node(world, "stranger")
    for its in (wanted, {"h3": settings, "h2": of_two}, {"h1": {name: settings[name]}}):
        assert len(read(world, *wanted, configurations=its).hosts) == 3
    for host in ("h1", "h2"):
        write(world, host, **{name: 7 if not isinstance(settings[name], (str, bool)) else other[name]})
        if wanted[host][name] == other[name] and isinstance(settings[name], (str, bool)):
            write(world, host, **{name: settings[name]})
        with pytest.raises(fleet.SettingsDiffer):
            read(world, *wanted, configurations=wanted)
        write(world, host, **{name: wanted[host][name]})
    assert len(read(world, *wanted, configurations=wanted).hosts) == 3


def test_aggregates_and_variables(world: World) -> None:
    for host in ("h1", "h2", "h3"):
        node(world, host)
    ssd = (Aggregate("ssd", frozenset({"h1", "h2"}), {"disk": "ssd"}),)
    found = read(world, "h1", "h2", "h3", aggregates={"h1": ssd, "h2": ssd}, host_vars={"h3": {"rack": 7}})
    hosts = states_of(found)
    assert [[a.name for a in hosts[h].aggregates] for h in ("h1", "h2", "h3")] == [["ssd"], ["ssd"], []]
    assert (hosts["h3"].vars, hosts["h1"].vars) == ({"rack": 7}, {})
    groups = found.groups("aggregates", lambda host: tuple(a.name for a in host.aggregates), attributes=("aggregates",))
    assert groups.codes[0] == groups.codes[1] != groups.codes[2]


def test_the_cpu_and_the_guests_of_a_host(world: World) -> None:
    node(world, "h1", cpu_info={"arch": "x86_64"}, supported_instances=[["x86_64", "kvm", "hvm"]])
    node(world, "h2")
    hosts = states_of(read(world, "h1", "h2"))
    assert hosts["h1"].cpu_info == {"arch": "x86_64"} and not hosts["h2"].cpu_info
    assert [tuple(s) for s in hosts["h1"].supported_instances] == [("x86_64", "kvm", "hvm")]


def test_what_is_not_asked_for_is_not_read(world: World) -> None:
    node(world, numa_topology=cells(), pci_passthrough_devices=CARD, isolated_disks=DISKS, metrics={"load": 0.5})
    (uuid,) = waiting(world)
    claim(world, asked(uuid))
    (bare,) = read(world, "h1").hosts
    assert (bare.numa_topology, list(bare.pci_devices), list(bare.free_disks)) == (None, [], [])
    assert (dict(bare.instances), dict(bare.metrics)) == ({}, {})
    (full,) = read(world, "h1", needs=EVERYTHING).hosts
    assert full.numa_topology is not None and len(full.pci_devices) == len(CARD) and len(full.free_disks) == 2
    assert dict(full.instances) == {uuid: "small"} and dict(full.metrics) == {"load": 0.5}


def test_metrics_of_the_inventory_win(world: World) -> None:
    node(world, "h1", metrics={"load": 1.0, "heat": 2.0}, configuration={"metrics": {"load": 9.0}})
    node(world, "h2")
    hosts = states_of(read(world, "h1", "h2", needs=EVERYTHING))
    assert (dict(hosts["h1"].metrics), dict(hosts["h2"].metrics)) == ({"load": 9.0, "heat": 2.0}, {})


def test_parts_are_less_what_claims_hold(world: World) -> None:
    """As the claim sees it: the scheduler does not offer what is taken."""
    where = node(world, "h1", numa_topology=cells(), pci_passthrough_devices=CARD, isolated_disks=DISKS)
    node(world, "h2", numa_topology=cells())
    (uuid,) = waiting(world)
    limits = {"numa_topology": {"cpu_allocation_ratio": 1.0, "ram_allocation_ratio": 1.0}}
    claim(world, asked(uuid, limits=limits, numa=pinned(3), pci=(A_GPU,)))
    hosts = states_of(read(world, "h1", "h2", needs=EVERYTHING))
    with world.ledger.read() as tx:
        alone = dedicated_resources.load(tx, [where])[where]
        everywhere = dedicated_resources.load(tx, None)[where]
    for found in (alone, everywhere):
        assert hosts["h1"].numa_topology == found.numa
        assert list(hosts["h1"].pci_devices) == list(found.pci) and list(hosts["h1"].free_disks) == list(found.disks)
    assert PLAIN[0] not in {d.address for d in hosts["h1"].pci_devices}
    one, two = hosts["h1"].numa_topology, hosts["h2"].numa_topology
    assert one is not None and two is not None
    assert (sum(len(c.pinned_cpus) for c in one.cells), sum(len(c.pinned_cpus) for c in two.cells)) == (3, 0)


def test_io_ops_count_what_lives_and_loads_its_host(world: World) -> None:
    node(world)
    cases: list[tuple[str, str | None, int]] = [
        (states.BUILDING, None, 1),
        (states.BUILDING, "spawning", 1),
        (states.ACTIVE, None, 0),
        (states.ACTIVE, "resize_migrating", 1),
        (states.ACTIVE, "resize_prep", 1),
        (states.ACTIVE, "rebuilding", 1),
        (states.ACTIVE, "image_snapshot", 1),
        (states.ACTIVE, "image_backup", 1),
        (states.ACTIVE, "deleting", 0),
        (states.ERROR, None, 0),
    ]
    uuids = waiting(world, len(cases))
    claim(world, *(asked(u) for u in uuids))
    for uuid, (vm_state, task_state, _counts) in zip(uuids, cases):
        build(world, uuid, vm_state=vm_state, task_state=task_state)
    (host,) = read(world, "h1").hosts
    assert (host.num_io_ops, host.num_instances) == (sum(n for _v, _t, n in cases), len(cases))
    elsewhere = waiting(world, 1, "elsewhere")[0]
    with world.ledger.read() as tx:
        assert (
            tx.execute(sa.select(tables.instances.c.host).where(tables.instances.c.uuid == elsewhere)).scalar() is None
        )
    assert read(world, "h1").hosts[0].num_io_ops == host.num_io_ops


def test_more_hosts_than_a_statement_names(world: World) -> None:
    """Above 500 hosts the parts are read for all."""
    rows = [
        {
            "host": "n%04d" % n, "node": "n%04d" % n, "memory_mb": n, "local_gb": 1, "vcpus": 1, "created_at": 0.0,
            "reported_at": 1.0,
        }
        for n in range(700)
    ]  # fmt: skip
    with world.ledger.write() as tx:
        tx.execute(tables.compute_nodes.insert(), rows)
    node(world, "h1", pci_passthrough_devices=CARD)
    found = read(world, "h1", *(r["host"] for r in rows), needs=EVERYTHING)
    assert len(found.hosts) == 701 and len(found.hosts[0].pci_devices) == len(CARD)
    assert found.hosts[700].memory_mb == 699 and list(found.hosts[700].pci_devices) == []


def test_a_flavor_can_ask_for_what_local_disks_lie_on(world: World) -> None:
    for host, medium in (("h1", "ssd"), ("h2", "hdd"), ("h3", "ssd")):
        node(world, host, stats={"disk_backend": "lvm", "disk_medium": medium})
    node(world, "h4")
    hosts = ("h1", "h2", "h3", "h4")
    found = read(world, *hosts)
    assert {h.host: h.stats.get("disk_medium") for h in found.hosts} == dict(zip(hosts, ["ssd", "hdd", "ssd", None]))
    flavor = Flavor("f", 512, 1, 1, extra_specs={"capabilities:disk_medium": "ssd", "capabilities:disk_backend": "lvm"})
    spec = RequestSpec(["one"], flavor)
    result = ComputeCapabilitiesFilter(world.options()).evaluate(found, spec, np.arange(4))
    assert [found.hosts[i].host for i in np.flatnonzero(result.mask)] == ["h1", "h3"]
    assert "needs ssd, the host has hdd" in result.text(1) and "reports nothing of the kind" in result.text(3)
