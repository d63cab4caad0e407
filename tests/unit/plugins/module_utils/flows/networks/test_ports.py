# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports of projects in the ledger: made, given to instances, kept after them, and given once."""

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
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.port_entries import PortChange, PortEntry
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import NetworkRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.fixed_addresses import FixedAddress
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.problems import Problems
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import builds, whatif
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import interfaces
from ansible_collections.bootflow.compute.plugins.module_utils.flows.networks import ports as flow
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import audit as recovery_audit
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import cleanups, project_ports
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, network, request

MAC = "52:54:00:00:00:01"
FRONT = NetworkRequest(port="front")
OTHER = network(2)


def at(address: str, number: int = 1) -> tuple[FixedAddress, ...]:
    return (FixedAddress(network(number).subnets[0].id, address),)


def refusals(call: t.Callable[..., t.Any], *arguments: t.Any, **named: t.Any) -> list[tuple[str, int]]:
    with pytest.raises(errors.InvalidRequest) as caught:
        call(*arguments, **named)
    return [(e["code"], e["status"]) for e in caught.value.errors]


def booting(world: World, *networks: t.Any, name: str = "web", **fields: t.Any) -> list[tuple[str, str, int]]:
    return [(e["path"], e["code"], e["status"]) for e in world.refusals(request(name, networks=networks, **fields))]


def create(world: World, *entries: PortEntry, project: str = "default", **limits: int) -> flow.PortsWritten:
    with world.ledger.write() as tx:
        return flow.create(tx.for_run(world.context("p")), entries, project, limits)


def entry(name: str, number: int = 1, **fields: t.Any) -> PortEntry:
    return PortEntry("ports[%s]" % name, name, network(number), **fields)


def update(world: World, port: str = "front", project: str | None = None, **fields: t.Any) -> flow.PortsWritten:
    by_id = {n.id: n for n in world.networks.values()}
    with world.ledger.write() as tx:
        return flow.update(tx.for_run(world.context("p")), [PortChange("ports[0]", port, **fields)], by_id, project)


def delete(world: World, *words: str, project: str | None = None, missing_ok: bool = False) -> flow.PortsWritten:
    with world.ledger.write() as tx:
        return flow.delete(tx.for_run(world.context("p")), words, project, missing_ok)


def attach(world: World, port: str = "front", instance: str = "web", **limits: int) -> interfaces.Begun:
    wanted = WantedInterface("interfaces[0]", instance, NetworkRequest(port=port))
    by_id = {n.id: n for n in world.networks.values()}
    with world.ledger.write() as tx:
        return interfaces.begin_attach(tx.for_run(world.context("v")), [wanted], by_id, None, ["h1", "h2"], limits)


def mac(world: World, name: str = "front") -> str:
    return str(world.rows(tables.ports, tables.ports.c.name == name)[0].mac_address)


# --- made, changed, deleted ---------------------------------------------------------------------------------------------


def test_ports_are_made_once(world: World) -> None:
    both = (entry("a", mac_address=MAC, fixed_ips=at("10.0.1.200"), tags=("x",)), entry("b"))
    made = create(world, *both)
    assert len(made.created) == 2 and world.addresses() == ["10.0.1.10", "10.0.1.200"]
    assert mac(world, "a") == MAC and mac(world, "b").startswith("fa:16:3e")
    before = world.everything()
    again = create(world, *both, entry("c"))
    assert sorted(again.unchanged) == sorted(made.created) and len(again.created) == 1
    assert delete(world, "c").deleted == again.created
    assert create(world, *both).created == []
    assert world.rows(tables.ports) == before["ports"]
    assert world.accept(request("web")).created and world.addresses() == ["10.0.1.10", "10.0.1.11", "10.0.1.200"]


@pytest.mark.parametrize(
    ("second", "code"),
    [
        (entry("front", 2), "PortExists"),
        (entry("front", mac_address="52:54:00:00:00:02"), "PortExists"),
        (entry("front", fixed_ips=at("10.0.1.201")), "PortExists"),
        (entry("front", tags=("x",)), "PortExists"),
        (entry("other", mac_address=MAC), "MacAddressInUse"),
        (entry("other", fixed_ips=at("10.0.1.200")), "FixedIpAlreadyInUse"),
    ],
)
def test_what_is_taken_is_refused(world: World, second: PortEntry, code: str) -> None:
    world.know(OTHER)
    world.make_port(mac_address=MAC, fixed_ips=at("10.0.1.200"))
    before = world.everything()
    assert refusals(create, world, entry("new"), second) == [(code, 409)]
    assert world.everything() == before, "all or none"


def test_an_occupied_address_is_named_with_its_holder(world: World) -> None:
    world.report("h1")
    world.make_port(fixed_ips=at("10.0.1.200"))
    world.boot("db")

    def remedy(address: str) -> str:
        (refusal,) = world.refusals(request("web", networks=(NetworkRequest(network="net-1", fixed_ip=address),)))
        assert (refusal["code"], refusal["status"]) == ("FixedIpAlreadyInUse", 409)
        return str(refusal["remedy"])

    assert remedy("10.0.1.200").startswith("Port front has it. ")
    world.boot("web2", networks=(FRONT,))
    assert remedy("10.0.1.200").startswith("Port front of instance web2 has it. ")
    assert remedy("10.0.1.10").partition(" of ")[2].startswith("instance db has it. ")
    wish = NetworkRequest(network="net-1", fixed_ip="10.0.1.99")
    (refusal,) = world.refusals(request("a", networks=(wish,)), request("b", networks=(wish,)))
    assert refusal["remedy"].startswith("Another entry of the request has it. ")


def test_the_quota_of_ports(world: World) -> None:
    world.report("h1")
    create(world, entry("a"), entry("b"), ports=3)
    assert refusals(create, world, entry("c"), entry("d"), ports=3) == [("PortLimitExceeded", 403)]
    create(world, entry("c"), ports=3)
    quotas = {"ports": 3}
    assert [e["code"] for e in world.refusals(request("web"), quotas=quotas)] == ["PortLimitExceeded"]
    assert world.accept(request("web", networks=(NetworkRequest(port="a"),)), quotas=quotas).created
    uuid = world.boot("db", networks=())
    assert len(attach(world, "b", "db", ports=3).new) == 1 and world.port("b") == (uuid, "h1")
    assert refusals(create, world, entry("d"), ports=3) == [("PortLimitExceeded", 403)]


def test_what_is_changed(world: World) -> None:
    world.report("h1")
    port_id = world.make_port(fixed_ips=at("10.0.1.200"))
    changed = update(world, name="back", tags=("x",), mac_address=MAC).changes[port_id]
    assert changed["name"] == ("front", "back") and mac(world, "back") == MAC
    wanted = ({"ip_address": "10.0.1.200"}, {"ip_address": "10.0.1.201"})
    assert update(world, port_id, fixed_ips=wanted).changes == {
        port_id: {"fixed_ips": (["10.0.1.200"], ["10.0.1.200", "10.0.1.201"])}
    }
    assert update(world, "back", fixed_ips=wanted, name="back", tags=("x",)).changes == {}
    update(world, "back", fixed_ips=wanted[1:])
    assert world.addresses() == ["10.0.1.201"]
    world.make_port("other", fixed_ips=at("10.0.1.202"), mac_address="52:54:00:00:00:09")
    before = world.everything()
    for fields, code in (
        ({"name": "other"}, "PortExists"),
        ({"mac_address": "52:54:00:00:00:09"}, "MacAddressInUse"),
        ({"fixed_ips": ({"ip_address": "10.0.1.202"},)}, "FixedIpAlreadyInUse"),
    ):
        assert refusals(update, world, "back", **fields) == [(code, 409)]
    assert refusals(update, world, "nothing", name="x") == [("PortNotFound", 404)]
    assert refusals(update, world, "back", project="red", name="x") == [("PortNotFound", 404)]
    assert world.everything() == before
    world.boot("web", networks=(NetworkRequest(port="back"),))
    assert refusals(update, world, "back", mac_address="52:54:00:00:00:0a") == [("PortInUse", 409)]
    assert refusals(update, world, "back", fixed_ips=wanted) == [("PortInUse", 409)]
    update(world, "back", name="front", tags=())
    assert world.addresses() == ["10.0.1.201", "10.0.1.202"]


def test_what_is_deleted(world: World) -> None:
    world.report("h1")
    world.make_port(fixed_ips=at("10.0.1.10"))
    uuid = world.boot("web", networks=(FRONT, "net-1"))
    (made_by_boot,) = world.rows(tables.ports, tables.ports.c.name.is_(None))
    assert refusals(delete, world, "front") == [("PortInUse", 409)]
    assert refusals(delete, world, made_by_boot.id) == [("PortInUse", 409)]
    assert refusals(delete, world, "nothing") == [("PortNotFound", 404)]
    assert delete(world, "nothing", missing_ok=True).not_found == ["nothing"]
    world.delete(uuids=[uuid])
    world.removed("h1", [uuid])
    assert world.finish()[0] == ["web"]
    assert refusals(delete, world, "front", project="red") == [("PortNotFound", 404)]
    world.make_port(project="red")
    with pytest.raises(errors.InvalidInput, match="2 projects have a port front"):
        delete(world, "front")
    delete(world, "front", project="default")
    assert world.addresses(), "that of red"
    delete(world, "front")
    assert world.addresses() == []


# --- given to instances -------------------------------------------------------------------------------------------------


def test_a_boot_gets_a_port_and_leaves_it(world: World) -> None:
    world.report("h1")
    port_id = world.make_port(mac_address=MAC, fixed_ips=at("10.0.1.200"))
    uuid = world.boot("web", networks=("net-1", NetworkRequest(port="front", tag="nic")))
    assert world.port() == (uuid, "h1") and world.addresses(uuid) == ["10.0.1.10", "10.0.1.200"]
    assert world.accept(request("web", networks=("net-1", NetworkRequest(port="front", tag="nic")))).unchanged == [uuid]
    world.delete(uuids=[uuid])
    world.removed("h1", [uuid])
    assert world.finish()[0] == ["web"]
    assert world.port() == (None, None) and world.addresses() == ["10.0.1.200"] and mac(world) == MAC
    assert world.addresses(world.boot("web", networks=(NetworkRequest(port=port_id),))) == ["10.0.1.200"]


def test_what_cannot_be_given(world: World) -> None:
    world.report("h1")
    world.make_port()
    red = world.make_port("back", project="red")
    path = "instances[0].networks[0].port"
    assert booting(world, NetworkRequest(port="nothing")) == [(path, "PortNotFound", 400)]
    assert booting(world, NetworkRequest(port="back")) == [(path, "PortNotFound", 400)]
    assert booting(world, NetworkRequest(port=red)) == [(path, "PortNotUsable", 400)]
    twice = world.refusals(request("a", networks=(FRONT,)), request("b", networks=(FRONT,)))
    assert [(e["path"], e["code"]) for e in twice] == [("instances[1].networks[0].port", "PortInUse")]
    uuid = world.boot("web", networks=(FRONT,))
    assert booting(world, FRONT, name="other") == [(path, "PortInUse", 409)]
    db = world.boot("db")
    (its_own,) = [r.id for r in world.rows(tables.ports) if r.instance_uuid == db]
    assert booting(world, NetworkRequest(port=its_own), name="other") == [(path, "PortInUse", 409)]
    world.networks = {k: n for k, n in world.networks.items() if n.id != network(1).id}
    assert booting(world, NetworkRequest(port="front"), name="other") == [(path, "PortInUse", 409)]
    world.delete(uuids=[uuid])
    world.removed("h1", [uuid])
    world.finish()
    assert booting(world, FRONT, name="other") == [(path, "NetworkNotFound", 400)]


def test_two_ports_do_not_get_one_name(world: World) -> None:
    create(world, entry("front"), entry("back"))
    changes = [PortChange("ports[%d]" % n, port, name="same") for n, port in enumerate(("front", "back"))]
    with world.ledger.write() as tx:
        assert refusals(flow.update, tx.for_run(world.context("p")), changes, {}, None) == [("PortExists", 409)]


@pytest.mark.parametrize("code", ["LibvirtError", "NetworkError"])  # rescheduled; aborted
def test_a_build_that_fails(world: World, code: str) -> None:
    for host in ("h1", "h2"):
        world.report(host)
    world.make_port(mac_address=MAC)
    uuid = world.boot("web", "spawning", networks=(FRONT, "net-1"))
    host = world.state(uuid)[2]
    outcome = world.fail(str(host), uuid, getattr(errors, code)(reason="x"))
    assert world.port() == (None, None) and world.count(tables.ports) == 1
    if outcome == "error":
        assert code == "NetworkError"
        again = world.accept(request("web", networks=(FRONT, "net-1")), run="b")
        assert again.resumed + again.created and world.count(tables.ports) >= 1
        return
    placed = world.schedule().placed[uuid]
    assert placed.host != host
    world.build(placed.host)
    assert world.port() == (uuid, placed.host) and mac(world) == MAC and world.count(tables.ports) == 2


def test_a_boot_that_found_no_host_is_replaced_by_another_with_the_port(world: World) -> None:
    world.make_port()
    first = world.boot("web", "accepted", networks=(FRONT,))
    assert world.port() == (first, None)
    world.schedule()
    assert world.state(first)[0] == states.ERROR and world.port() == (None, None)
    world.report("h1")
    accepted = world.accept(request("web", networks=(FRONT, "net-1")), run="b")
    assert accepted.replaced == ["web"] and world.port() == (accepted.created[0], None)


def test_what_if_reckons_with_the_network_of_the_port(world: World) -> None:
    world.know(OTHER)
    world.report("h1")
    world.make_port(network_name="net-2")
    found = _whatif(world, FRONT)
    assert [n["id"] for n in found["network_definitions"]] == [OTHER.id]
    world.boot("web", networks=(FRONT,))
    assert _whatif(world, FRONT)["network_definitions"] == [], "the instance of the request may have it"
    with pytest.raises(errors.InvalidRequest, match=r"instances\[3\].networks\[0\].port: Port id nothing"):
        _whatif(world, NetworkRequest(port="nothing"))


def _whatif(world: World, wish: NetworkRequest) -> dict[str, t.Any]:
    problems = Problems()
    with world.ledger.read() as tx:
        spec = whatif._stored(tx, request("web", networks=(wish,)), "instances[3]", problems, world.networks)
    problems.raise_if_any()
    return spec


def test_a_port_that_another_got_meanwhile(world: World) -> None:
    for host in ("h1", "h2"):
        world.report(host)
    world.make_port()
    uuid = world.boot("web", "spawning", networks=(FRONT,))
    world.fail(str(world.state(uuid)[2]), uuid, errors.LibvirtError(reason="x"))
    other = world.boot("other", networks=(FRONT,), run="b")
    placed = world.schedule().placed[uuid]
    found, failed = world.begin(builds.NETWORKING, placed.host)
    assert not found and failed[uuid].error.code == "PortInUse"
    assert world.fail(placed.host, uuid, failed[uuid].error, preparing=failed[uuid].preparing) == "error"
    assert world.port() == (other, world.state(other)[2])


def test_a_host_that_could_not_be_cleaned_keeps_the_port_until_it_is(world: World) -> None:
    """No other host builds the instance, as its port is not free; another port could not take its place."""
    for host in ("h1", "h2"):
        world.report(host)
    world.make_port()
    uuid = world.boot("web", "spawning", networks=(FRONT, "net-1"))
    host = str(world.state(uuid)[2])
    how = {"cleaned": False, "cleanup_reason": "the domain is still there"}
    assert world.fail(host, uuid, errors.LibvirtError(reason="x"), **how) == "error"
    assert world.port() == (uuid, host) and len(world.addresses()) == 2
    assert booting(world, FRONT, name="other") == [("instances[0].networks[0].port", "PortInUse", 409)]
    with world.ledger.write() as tx:
        cleanups.done(tx.for_run(world.context()), {(host, uuid)})
    assert world.port() == (None, None) and len(world.addresses()) == 1


def test_a_forced_delete(world: World) -> None:
    world.report("h1")
    world.make_port()
    uuid = world.boot("web", networks=(FRONT,))
    world.delete(uuids=[uuid])
    assert world.finish(force=True)[0] == ["web"]
    assert world.port() == (uuid, "h1"), "its guest may still use it"
    assert refusals(delete, world, "front") == [("PortInUse", 409)]
    with world.ledger.write() as tx:
        cleanups.done(tx.for_run(world.context()), {("h1", uuid)})
    assert world.port() == (None, None)


def test_attached_and_detached(world: World) -> None:
    world.know(OTHER)
    world.report("h1")
    uuid = world.boot("web")
    port_id = world.make_port(network_name="net-2", mac_address=MAC)
    begun = attach(world)
    assert [i.port.id for i in begun.interfaces] == [port_id] == sorted(begun.new)
    assert begun.interfaces[0].network == OTHER and world.port() == (uuid, "h1")
    assert not attach(world).new, "it is there"
    other = world.boot("other")
    assert refusals(attach, world, instance="other") == [("PortInUse", 409)]
    assert refusals(attach, world, port="nothing") == [("PortNotFound", 404)]
    world.make_port("back", project="red")
    (red,) = [r.id for r in world.rows(tables.ports) if r.name == "back"]
    assert refusals(attach, world, port=red) == [("PortNotUsable", 400)]
    named = NamedInterface("interfaces[0]", "web", port_id="front")
    with world.ledger.write() as tx:
        interfaces.begin_detach(tx.for_run(world.context("v")), [named], world.networks, None, ["h1"])
    assert refusals(attach, world, instance="other") == [("PortInUse", 409)], "its guest has not lost it"
    with world.ledger.write() as tx:
        interfaces.free_addresses(tx.for_run(world.context("v")), [port_id], "h1")
    assert world.port() == (None, None) and mac(world) == MAC and "10.0.2.10" in world.addresses()
    attach(world, instance="other")
    assert world.port() == (other, "h1")


def test_the_audit_unbinds_a_port_of_a_deleted_instance(world: World) -> None:
    world.report("h1")
    world.make_port()
    uuid = world.boot("web", networks=(FRONT,))
    world.delete(uuids=[uuid])
    world.removed("h1", [uuid])
    world.finish()
    with world.ledger.write() as tx:  # as a ledger that was restored has it
        changed = tables.ports.update().where(tables.ports.c.name == "front")
        tx.execute(changed.values(instance_uuid=uuid, host="h1"))
    evidence = Evidence()
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context("x"))
        planned = recovery_audit.plan(tx, evidence)
        recovery_audit.repair(tx, planned, evidence)
    assert [f.kind for f in planned] == ["port"] and world.port() == (None, None) and world.addresses() == ["10.0.1.10"]


def test_views(world: World) -> None:
    world.report("h1")
    world.make_port(mac_address=MAC, tags=("x",))
    world.make_port("back", project="red")
    uuid = world.boot("web", networks=(FRONT, "net-1"))
    with world.ledger.read() as tx:
        every, named = project_ports.views(tx), project_ports.views(tx, ["front", "nothing"])
        of_red = project_ports.views(tx, None, "red")
    every.sort(key=lambda view: str(view["name"]))
    assert [v["name"] for v in every] == [None, "back", "front"] and [v["name"] for v in of_red] == ["back"]
    (front,) = named
    assert (front["mac_address"], front["instance"], front["instance_uuid"], front["host"]) == (MAC, "web", uuid, "h1")
    assert front["tags"] == ["x"] and front["preserve_on_delete"] and front["project"] == "default"
    assert not every[0]["preserve_on_delete"] and every[0]["project"] == "default"
    assert world.state(uuid)[0] == states.ACTIVE and replace(FRONT, port=front["id"]).port == front["id"]
