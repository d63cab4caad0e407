# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Adoptions and releases in the ledger: claims, pinned CPUs, devices, ports and addresses, and what other runs see of them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.adopt.verdict import Verdict, Wishes
from ansible_collections.bootflow.compute.plugins.module_utils.flows.adopt import adoption, release
from ansible_collections.bootflow.compute.plugins.module_utils.flows.adopt.adoption import Adopter
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import lock, operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import (
    cleanups,
    dedicated_resources,
    history,
    nodes,
    service_state,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import NET, World

UUID, OTHER = "a0000000-0000-4000-8000-000000000001", "a0000000-0000-4000-8000-000000000002"
MAC = "52:54:00:aa:bb:01"
CARD = {"address": "0000:81:00.0", "vendor_id": "8086", "product_id": "1572", "numa_node": 0, "dev_type": "type-PCI"}
CELLS = {"cells": [{"id": n, "cpus": [4 * n + c for c in range(4)], "memory_mb": 4096} for n in range(2)]}
DOMAIN: dict[str, t.Any] = {
    "uuid": UUID,
    "name": "web",
    "arch": "x86_64",
    "machine": "pc",
    "memory_mb": 1000,
    "vcpus": 2,
    "disks": [{"target": "vda", "device": "disk", "type": "file", "source": "/x", "size": 1024**3, "local": True}],
    "interfaces": [{"mac": MAC, "type": "network", "source": "default", "addresses": ["10.0.1.77"]}],
    "pci": [CARD["address"]],
    "other_devices": [],
    "pins": [[0, 1], [1, 5]],
    "agent": False,
    "made_by": "",
    "ledger": "",
    "power_state": 1,
    "persistent": True,
    "saved": False,
    "snapshots": 0,
    "jobs": [],
}


@pytest.fixture(name="host")
def _host(world: World) -> t.Iterator[World]:
    facts = {
        "hypervisor_hostname": "h1",
        "memory_mb": 8192,
        "local_gb": 4000,
        "vcpus": 8,
        "numa_topology": CELLS,
        "pci_passthrough_devices": [CARD],
        "stats": {},
    }
    ratios = {"ram_allocation_ratio": 1.0, "disk_allocation_ratio": 1.0, "cpu_allocation_ratio": 16.0}
    with world.ledger.write() as tx:
        nodes.record_report(tx.for_run(world.context()), "h1", facts, ratios)
    yield world
    with world.ledger.read() as tx:
        world.check(tx)


def adopt(world: World, *domains: dict[str, t.Any], required: t.Collection[str] = (), run: str = "a") -> list[Verdict]:
    adopter = Adopter(Wishes("default", (NET,)), "bob", frozenset(required))
    with world.ledger.write() as tx:
        return adoption.adopt(tx.for_run(world.context(run)), [("h1", d) for d in domains], adopter)


def free(world: World, *uuids: str) -> None:
    with world.ledger.write() as tx:
        work = tx.for_run(world.context("r"))
        rows, down = release.begin(work, Selection(uuids=uuids), {"h1"})
        assert {r.uuid for r in rows} == set(uuids) and not down
        release.finish(work, uuids)


def taken(world: World) -> dict[str, t.Any]:
    """What the instance has, without the ids and times of rows."""
    claims = [(c.memory_mb, c.disk_gb, c.vcpus, c.kind, c.numa) for c in world.rows(tables.claims)]
    devices = [(d.device, d.kind, d.claim_kind, d.detail) for d in world.rows(tables.device_claims)]
    ports = [(p.mac_address, p.network_id, p.position, p.host) for p in world.rows(tables.ports)]
    return {
        "claims": claims,
        "devices": devices,
        "ports": ports,
        "addresses": world.addresses(),
        "used": world.used("h1"),
    }


def test_an_adopted_guest_has_what_it_uses(host: World) -> None:
    (found,) = adopt(host, DOMAIN)
    assert found.state == "adopt" and host.state(UUID) == ("active", None, "h1")
    row = host.row(UUID)
    assert (row.user_name, row.display_name, row.domain_name, row.root_gb) == ("bob", "web", "web", 1)
    found_now = taken(host)
    assert [c[:4] for c in found_now["claims"]] == [(1000, 1, 2, "build")] and found_now["used"] == (1000, 1, 2, 1)
    assert found_now["addresses"] == ["10.0.1.77"] and found_now["ports"] == [(MAC, NET.id, 0, "h1")]
    with host.ledger.read() as tx:
        (free_now,) = dedicated_resources.load(tx, None).values()
    assert list(free_now.pci) == [] and free_now.numa is not None
    assert [sorted(c.pinned_cpus) for c in free_now.numa.cells] == [[1], [5]]
    assert not host.rows(tables.ports)[0].port_security_enabled


def test_a_release_frees_it_and_the_next_adoption_claims_the_same(host: World) -> None:
    adopt(host, DOMAIN)
    before = taken(host)
    free(host, UUID)
    assert taken(host) == {"claims": [], "devices": [], "ports": [], "addresses": [], "used": (0, 0, 0, 0)}
    assert host.row(UUID).deleted == UUID
    host.time += 10
    adopt(host, DOMAIN, run="b")
    assert taken(host) == before and host.row(UUID).deleted == ""
    with host.ledger.read() as tx:
        events = [e["event"] for e in history.events_of(tx, UUID)]
    assert events == ["adopt", "release", "adopt"]
    assert (host.row(UUID).deleted_at, host.row(UUID).locked_by) == (None, None)


def test_an_address_that_was_adopted_is_given_to_nobody_else(host: World) -> None:
    adopt(host, {**DOMAIN, "interfaces": [{**DOMAIN["interfaces"][0], "addresses": ["10.0.1.10"]}]})
    host.boot("one")
    host.boot("two")
    assert len(set(host.addresses())) == 3
    free(host, UUID)
    host.boot("three")
    assert len(set(host.addresses())) == 3


def test_a_required_domain_that_is_refused_has_nothing_written(host: World) -> None:
    host.boot("web")
    with pytest.raises(errors.DomainsNotAdoptable) as refused:
        adopt(
            host,
            {**DOMAIN, "uuid": OTHER, "name": "db"},
            {**DOMAIN, "interfaces": [], "pci": [], "pins": []},
            required=["web"],
        )
    assert "web on h1: the project default has another instance web (name_taken)" in refused.value.message
    assert "bootflow_adopt_names" in refused.value.remedy
    assert {r.display_name for r in host.rows(tables.instances)} == {"web"}


def test_what_the_ledger_knows_of_a_domain(host: World) -> None:
    adopt(host, DOMAIN)
    (again,) = adopt(host, DOMAIN)
    assert again.state == "adopted"
    second = {**DOMAIN, "uuid": OTHER, "name": "db"}
    (refused,) = adopt(host, second)
    assert [r.code for r in refused.reasons] == ["pci_taken", "cpu_taken", "mac_taken"]
    assert "of instance web" in refused.reasons[2].message
    other_mac = [{**DOMAIN["interfaces"][0], "mac": "52:54:00:aa:bb:02"}]
    (refused,) = adopt(host, {**second, "pci": [], "pins": [], "interfaces": other_mac})
    assert [r.code for r in refused.reasons] == ["address_taken"]
    assert "of instance web has it" in refused.reasons[0].message
    free(host, UUID)
    with host.ledger.write() as tx:
        cleanups.add(tx.for_run(host.context()), cleanups.Due("h1", UUID, "web", "a test"))
    (refused,) = adopt(host, DOMAIN)
    assert [r.code for r in refused.reasons] == ["cleanup_due"]


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_operations_that_touch_disks_or_definitions_are_refused(host: World, name: str) -> None:
    adopt(host, DOMAIN)
    works = {"stop", "pause", "suspend", "soft_reboot", "trigger_crash_dump"}
    with host.ledger.read() as tx:
        work = tx.for_run(host.context())
        (row,) = operation.select(work, Selection(uuids=[UUID]), lock=False)
        if name in works:
            operation.check(work, OPERATIONS[name], row, (), {"h1"})
            return
        wanted = errors.InstanceInvalidState if name in ("start", "unpause", "resume") else errors.InstanceIsAdopted
        with pytest.raises(wanted):
            operation.check(work, OPERATIONS[name], row, (), {"h1"})


def test_who_cannot_release(host: World) -> None:
    ours = host.boot("ours")
    adopt(host, DOMAIN)
    with host.ledger.write() as tx:
        work = tx.for_run(host.context())
        with pytest.raises(errors.InstanceNotAdopted):
            release.begin(work, Selection(uuids=[ours, UUID]), {"h1"})
        with pytest.raises(errors.ComputeHostNotFound):
            release.begin(work, Selection(uuids=[UUID]), {"h2"})
        lock.lock(work, Selection(uuids=[UUID]))
    with host.ledger.write() as tx:
        work = tx.for_run(host.context())
        object.__setattr__(work.context.run, "actor", "eve")
        with pytest.raises(errors.InstanceIsLocked):
            release.begin(work, Selection(uuids=[UUID]), {"h1"})
    assert host.state(UUID) == ("active", None, "h1")


def test_a_host_that_is_gone_keeps_nothing_in_the_ledger(host: World) -> None:
    adopt(host, DOMAIN)
    with host.ledger.write() as tx:
        work = tx.for_run(host.context())
        service_state.set_state(work, ["h1"], "forced_down", "it burnt")
        rows, down = release.begin(work, Selection(uuids=[UUID]), ())
        assert [r.uuid for r in rows] == [UUID] and down == {"h1"}
        release.finish(work, [UUID])
    assert host.used("h1") == (0, 0, 0, 0)
