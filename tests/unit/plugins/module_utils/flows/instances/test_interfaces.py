# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interfaces that instances get and lose while they live, without a host."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit.evidence import Evidence
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.entries import (
    NamedInterface,
    WantedInterface,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import NetworkRequest
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import builds
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import interfaces
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import audit as recovery_audit
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, network, request, subnet

OTHER = network(2, addresses=2)


@pytest.fixture
def web(world: World) -> str:
    """An instance "web" on h1, with an interface on net-1."""
    world.know(OTHER)
    world.report("h1")
    return world.boot("web")


def want(instance: str, net: str = "net-2", path: str = "interfaces[0]", **fields: t.Any) -> WantedInterface:
    ids = {"net-1": network(1).id, "net-2": OTHER.id}
    return WantedInterface(path, instance, NetworkRequest(network=ids[net], **fields))


def attach(world: World, *entries: WantedInterface, run: str = "v", **limits: int) -> interfaces.Begun:
    by_id = {n.id: n for n in world.networks.values()}
    with world.ledger.write() as tx:
        return interfaces.begin_attach(tx.for_run(world.context(run)), entries, by_id, None, ["h1", "h2"], limits)


def detach(
    world: World, run: str = "v", instance: str = "web", path: str = "interfaces[0]", **named: str
) -> interfaces.Begun:
    entry = NamedInterface(path, instance, **named)
    with world.ledger.write() as tx:
        return interfaces.begin_detach(tx.for_run(world.context(run)), [entry], world.networks, None, ["h1", "h2"])


def write(world: World, function: t.Callable[..., t.Any], *arguments: t.Any, run: str = "v") -> t.Any:
    with world.ledger.write() as tx:
        return function(tx.for_run(world.context(run)), *arguments)


def defined(world: World, uuid: str) -> list[list[str]]:
    """The addresses of each interface that a definition of the guest would have now."""
    with world.ledger.read() as tx:
        (build,) = builds.load(tx, instances.select_live(tx, uuids=[uuid]))
        info = build.network_info  # what domain and config drive are made of
    assert [vif["address"] for vif in info] == [port.mac_address for port, _network in build.ports]
    return [[fixed["ip_address"] for fixed in port.fixed_ips] for port, _network in build.ports]


def test_an_interface_comes_and_goes(world: World, web: str) -> None:
    begun = attach(world, want("web"))
    (found,) = begun.interfaces
    assert begun.new == {found.port.id} and found.port.host == "h1" and found.network == OTHER
    assert defined(world, web) == [["10.0.1.10"], ["10.0.2.10"]]
    write(world, interfaces.finish, interfaces.ATTACH, {web: []})

    again = attach(world, want(web), run="w")
    assert [f.port.id for f in again.interfaces] == [found.port.id] and not again.new, "its host may not have it yet"
    write(world, interfaces.finish, interfaces.ATTACH, {web: []}, run="w")

    begun = detach(world, network="net-2")
    assert [f.port.id for f in begun.interfaces] == [found.port.id] == sorted(begun.new)
    assert defined(world, web) == [["10.0.1.10"]] and "10.0.2.10" in world.addresses()
    assert write(world, interfaces.free_addresses, [found.port.id], "h1") == {found.port.id}
    write(world, interfaces.finish, interfaces.DETACH, {web: []})
    assert world.addresses() == ["10.0.1.10"]
    assert detach(world, network="net-2").unchanged == ["web (network net-2)"]
    actions = [(r.action, r.message, r.finish_time is not None) for r in world.rows(tables.instance_actions)]
    assert actions[1:] == [("attach_interface", None, True)] * 2 + [("detach_interface", None, True)]
    told = [r.event_type for r in world.rows(tables.notifications) if "interface" in r.event_type]
    start_end = [
        "compute.instance.interface_%s.%s" % (what, when) for what in ("attach", "detach") for when in ("start", "end")
    ]
    assert told == start_end[:2] * 2 + start_end[2:]
    assert world.accept(request("web"), run="w").unchanged == [web], (
        "what it was booted with is what was asked for then"
    )


def test_each_that_cannot_begin_is_refused_alone(world: World, web: str) -> None:
    off, busy = world.boot("off"), world.boot("busy")
    with world.ledger.write() as tx:
        c = tables.instances.c
        tx.execute(tables.instances.update().where(c.uuid == off).values(vm_state=states.SUSPENDED))
        tx.execute(tables.instances.update().where(c.uuid == busy).values(task_state=states.REBOOTING, run_id="run-a"))
    entries = [want(name, path="interfaces[%d]" % n) for n, name in enumerate(("off", "web", "busy", "web", "web"))]
    begun = attach(world, *entries)
    assert [f.row.display_name for f in begun.interfaces] == ["web", "web"]
    refused = sorted((r.request.path, r.guest.display_name, r.error.code) for r in begun.refused)
    assert refused == [
        ("interfaces[0]", "off", "InstanceInvalidState"),
        ("interfaces[2]", "busy", "InstanceBusy"),
        ("interfaces[4]", "web", "NoMoreFixedIps"),
    ]
    before = world.everything()
    for bad, code in ((want("nobody"), "InstanceNotFound"), (want("off"), "InstanceInvalidState")):
        with pytest.raises(errors.InvalidRequest) as caught:
            attach(world, bad, run="w")
        assert [e["code"] for e in caught.value.errors] == [code]
    with pytest.raises(errors.InvalidRequest) as caught:
        detach(world, instance="web", run="w", network="net-2")
    assert "has 2 interfaces of network net-2" in caught.value.errors[0]["message"]
    with pytest.raises(errors.InvalidRequest) as caught:
        detach(world, run="w", network="nowhere")
    assert caught.value.errors[0]["code"] == "NetworkNotFound"
    after = world.everything()
    for seen in (before, after):
        seen.pop("runs", None)
    assert after == before


def test_an_address_is_taken_once(world: World, web: str) -> None:
    world.boot("other")
    begun = attach(world, want("web", fixed_ip="10.0.2.11"), want("other", fixed_ip="10.0.2.11", path="interfaces[1]"))
    assert len(begun.interfaces) == 1 and [(r.error.code, r.error.status) for r in begun.refused] == [
        ("FixedIpAlreadyInUse", 409)
    ]
    assert begun.refused[0].error.message == "IP address 10.0.2.11 already allocated in subnet subnet-2"


def test_the_quota_of_ports(world: World, web: str) -> None:
    begun = attach(world, want("web"), want("web", path="interfaces[1]"), ports=2)
    assert len(begun.interfaces) == 1 and [(r.error.code, r.error.status) for r in begun.refused] == [
        ("PortLimitExceeded", 403)
    ]


def test_what_a_guest_keeps_stays_its_own(world: World, web: str) -> None:
    (first,) = attach(world, want("web")).interfaces
    detach(world, network="net-1")
    assert defined(world, web) == [["10.0.2.10"]]
    with world.ledger.read() as tx:
        gone = [r.id for r in tx.execute(tables.ports.select()) if r.position < 0]
    write(world, interfaces.keep_attached, gone)
    assert defined(world, web) == [["10.0.1.10"], ["10.0.2.10"]], "in the order that they had"
    assert write(world, interfaces.free_addresses, [first.port.id], "h1") == {first.port.id}
    assert defined(world, web) == [["10.0.1.10"], ["10.0.2.10"]], "only what is leaving can be gone"


def test_a_new_one_does_not_take_the_place_of_one_that_may_come_back(world: World, web: str) -> None:
    detach(world, network="net-1")
    attach(world, want("web"))
    write(world, interfaces.keep_attached, [r.id for r in world.rows(tables.ports, tables.ports.c.position < 0)])
    assert sorted(r.position for r in world.rows(tables.ports)) == [0, 1]


@pytest.mark.parametrize("change", [{"host": "h2"}, {"task_state": states.REBOOTING_HARD}])
def test_no_address_is_free_while_a_guest_may_have_it(world: World, web: str, change: dict[str, str]) -> None:
    """The instance went elsewhere, or another run works on it, since its host was asked."""
    (found,) = attach(world, want("web")).interfaces
    before = world.row(web)
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().where(tables.instances.c.uuid == web).values(**change))
    key = found.port.id
    assert write(world, interfaces.to_detach, [key], "h1") == set()
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(host=before.host, task_state=None))
    assert defined(world, web) == [["10.0.1.10"], ["10.0.2.10"]]
    assert write(world, interfaces.to_detach, [key], "h1") == {key}
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().where(tables.instances.c.uuid == web).values(**change))
    assert write(world, interfaces.free_addresses, [key], "h1") == set() and "10.0.2.10" in world.addresses()
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(host=before.host, task_state=None))
    assert detach(world, run="w", network="net-2").interfaces[0].port.id == key, "the same again goes on"
    assert write(world, interfaces.free_addresses, [key], "h1", run="w") == {key} and world.addresses() == ["10.0.1.10"]


def test_an_instance_that_is_deleted_takes_all_with_it(world: World, web: str) -> None:
    attach(world, want("web"))
    detach(world, network="net-2")
    world.delete(names=["web"])
    world.removed("h1", [web])
    world.finish()
    assert world.addresses() == [] and world.count(tables.ports) == 0


def test_a_network_that_changed_in_the_inventory(world: World, web: str) -> None:
    """The new subnet has room; what the guest has on the former one stays."""
    changed = network(1, subnet(3, pool=("10.0.3.10", "10.0.3.20")))
    world.know(changed)
    attach(world, want("web", net="net-1", subnet=changed.subnets[0].id))
    assert defined(world, web) == [["10.0.1.10"], ["10.0.3.10"]]
    world.boot("other", networks=("net-1",))
    assert defined(world, web) == [["10.0.1.10"], ["10.0.3.10"]]


def test_a_subnet_that_got_another_name(world: World, web: str) -> None:
    """Its former name is forgotten with the last address: a host cannot have one range in two subnets of a network."""
    (first,) = attach(world, want("web")).interfaces
    renamed = network(2, replace(OTHER.subnets[0], id=subnet(7).id, name="subnet-7"))
    world.know(renamed)
    detach(world, network="net-2")
    write(world, interfaces.free_addresses, [first.port.id], "h1")
    attach(world, want("web"))
    with world.ledger.read() as tx:
        (build,) = builds.load(tx, instances.select_live(tx, uuids=[web]))
    assert [[s.name for s in n.subnets] for _port, n in build.ports] == [["subnet-1"], ["subnet-7"]]


def test_the_audit_tells_of_an_interface_that_is_half_detached(world: World, web: str) -> None:
    """Who does not run the same command again would not know that its address stays taken."""
    (left,) = detach(world, network="net-1").interfaces
    with world.ledger.read() as tx:
        found = [f for f in recovery_audit.plan(tx.for_run(world.context("z")), Evidence()) if f.kind == "port"]
    (told,) = found
    assert (told.host, told.instance, told.old, told.changes) == ("h1", web, ["10.0.1.10"], False)
    assert "detach_interface with port_id: %s" % left.port.id in told.remedy
    write(world, interfaces.free_addresses, [left.port.id], "h1")
    with world.ledger.read() as tx:
        assert not [f for f in recovery_audit.plan(tx.for_run(world.context("z")), Evidence()) if f.kind == "port"]


def test_an_instance_of_another_project(world: World, web: str) -> None:
    """Its UUID does not lead there, either."""
    other = world.boot("db", project="other")
    for word, remedy in (
        ("db", "The instance is in project other: set bootflow_project."),
        (other, "The instance is in project other"),
        ("wbe", "web"),
    ):
        with pytest.raises(errors.InvalidRequest) as caught:
            by_id = {n.id: n for n in world.networks.values()}
            write(world, interfaces.begin_attach, [want(word)], by_id, "default", ["h1"], {})
        (error,) = caught.value.errors
        assert error["code"] == "InstanceNotFound" and remedy in error["remedy"], error
