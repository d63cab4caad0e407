# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that lack a network: boots, moves and what-if leave them out and say why, and nothing is attached there. With a ledger, without hosts."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.entries import (
    NamedInterface,
    WantedInterface,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import NetworkRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network import Network
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.placement import MAKE_NETWORKS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import whatif
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import interfaces
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import cold
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import fleet, hypervisors, nodes
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.statements import counted
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import node
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, network, request

SERVERS = dataclasses.replace(network(2), type="bridge", source="br0")
DATA = dataclasses.replace(network(3), type="bridge", source="br7")
LAN = dataclasses.replace(network(4), type="network", source="lan-here")
MANAGED = dataclasses.replace(network(5), type="network", source="bf-managed", manage=True)


def there(*bridges: str, **networks: bool) -> dict[str, t.Any]:
    """The fact of a host. :arg networks: libvirt's, and whether they are active"""
    return {
        "bridge": [{"name": name, "active": True} for name in bridges],
        "network": [{"name": n.replace("_", "-"), "active": a, "autostart": a} for n, a in networks.items()],
    }


@pytest.fixture(autouse=True)
def _catalogue(world: World) -> None:
    world.know(SERVERS, DATA, LAN, MANAGED)


def place_of(world: World, uuid: str) -> str | None:
    return t.cast("str | None", world.row(uuid).host)


def fault(world: World, uuid: str) -> dict[str, t.Any]:
    (found,) = world.rows(tables.instance_faults, tables.instance_faults.c.instance_uuid == uuid)
    return t.cast("dict[str, t.Any]", dict(found._mapping))


def test_the_host_with_the_bridge_is_chosen_at_once(world: World) -> None:
    for host in ("h1", "h2", "h3"):
        node(world, host, networks=there("br0", *(["br7"] if host == "h2" else []), lan_here=host != "h1"))
    created = world.accept(
        request("a", networks=("net-3",)),
        request("b", networks=("net-2", "net-3", "net-4")),
        request("c", networks=("net-5",)),
    ).created
    result = world.schedule(explain=True)
    assert [place_of(world, u) for u in created[:2]] == ["h2", "h2"] and not result.failed
    decision = result.placed[created[0]].decision
    assert decision is not None
    reasons = {h["host"]: (h["rejected_by"] or {}).get("reason") for h in decision["hosts"]}
    missing = "Linux bridge br7 does not exist (network net-3)"
    assert reasons == {"h1": missing, "h2": None, "h3": missing}
    assert [a.host for a in result.placed[created[0]].alternates] == [], "no host is tried that cannot build it"


def test_no_host_has_it(world: World) -> None:
    for host in ("h1", "h2"):
        node(world, host, networks=there("br0", lan_here=False))
    (uuid,) = world.accept(request("web", networks=("net-3",))).created
    before = world.used("h1"), world.used("h2")
    result = world.schedule(explain_failures=True)
    assert result.failed == [uuid] and world.row(uuid).vm_state == states.ERROR
    said = fault(world, uuid)
    assert said["error_code"] == "NoValidHost" and "NetworkFilter rejected 2 hosts" in said["message"]
    assert "Linux bridge br7 does not exist (network net-3)" in said["message"]
    assert said["remedy"] == MAKE_NETWORKS
    assert (world.used("h1"), world.used("h2")) == before and place_of(world, uuid) is None
    (late,) = world.accept(request("late", networks=("net-4",))).created
    world.schedule(explain_failures=True)
    assert "libvirt network lan-here is not active (network net-4)" in fault(world, late)["message"]


def test_hosts_that_told_nothing_are_not_left_out(world: World) -> None:
    """They reported before an upgrade, or could not read their networks."""
    node(world, "h1")
    node(world, "h2", networks={"network": []})
    node(world, "h3", networks=there())
    (uuid,) = world.accept(request("web", networks=("net-3",))).created
    selection = world.schedule(explain=True).placed[uuid]
    assert {selection.host, *(a.host for a in selection.alternates)} == {"h1", "h2"}
    with world.ledger.read() as tx:
        known = {h.host: h.networks for h in fleet.read(tx, ["h1", "h2", "h3"], needs=fleet.Needs(networks=True)).hosts}
        assert known == {"h1": None, "h2": {"network": {}}, "h3": {"bridge": {}, "network": {}}}
        mine = tx.for_run(world.context())
        shown = {v["host"]: v["networks"] for v in hypervisors.views(mine, ["h1", "h3"], 1e9)}
        assert shown == {"h1": None, "h3": {"bridge": {}, "network": {}}}


def test_the_last_report_counts(world: World) -> None:
    node(world, "h1", networks=there())
    node(world, "h1", networks=there("br7"))
    (uuid,) = world.accept(request("web", networks=("net-3",))).created
    world.schedule()
    assert place_of(world, uuid) == "h1"


def test_what_cannot_be_read_in_the_ledger_is_not_known(world: World) -> None:
    node(world, "h1", networks=there())
    for spoilt in ({"networks": {"bridge": 7}}, {"networks": None}, {}):
        with world.ledger.write() as tx:
            tx.execute(tables.node_profiles.update().values(profile=spoilt))
        with world.ledger.read() as tx:
            (host,) = fleet.read(tx, ["h1"], needs=fleet.Needs(networks=True)).hosts
            assert host.networks is None
            assert set(nodes.reported_networks(tx, ["h1"]).values()) == {None}


def test_hosts_with_the_same_networks_share_what_is_stored(world: World) -> None:
    for number in range(5):
        node(world, "h%d" % number, networks=there("br0"))
    assert len({r.networks_profile_id for r in world.rows(tables.compute_nodes)}) == 1


def test_a_request_without_such_networks_costs_no_statement(world: World) -> None:
    for host in ("h1", "h2"):
        node(world, host, networks=there("br7"))
    seen: dict[str, int] = {}
    for net in ("net-5", "net-3"):
        world.accept(request(net, networks=(net,)))
        with counted(world.ledger) as statements:
            world.schedule()
        seen[net] = len([s for s in statements if "networks_profile_id" in s[0]])
    assert seen == {"net-5": 0, "net-3": 1}


def test_a_forced_host(world: World) -> None:
    for host in ("h1", "h2"):
        node(world, host, networks=there(*(["br7"] if host == "h2" else [])))
    asked = request("web", networks=("net-3",))
    good, bad = world.accept(
        dataclasses.replace(asked, name="good", forced_host="h2"),
        dataclasses.replace(asked, name="bad", forced_host="h1"),
    ).created
    result = world.schedule(explain_failures=True)
    assert list(result.placed) == [good] and result.failed == [bad]
    assert "NetworkFilter rejected h1 (Linux bridge br7 does not exist (network net-3))" in fault(world, bad)["message"]


def ask(world: World, net: str) -> whatif.Answer:
    by_id = {n.id: n for n in world.networks.values()}
    with world.ledger.read() as tx:
        options = world.options(explain=True)
        (answer,) = whatif.ask(tx, [request("more", networks=(net,))], world.fleet, options, networks=by_id)
    return answer


def test_whatif(world: World) -> None:
    node(world, "h1", networks=there())
    node(world, "h2", networks=there("br7"))
    assert {h["host"] for h in ask(world, "net-3").by_host} == {"h2"}
    assert {h["host"] for h in ask(world, "net-5").by_host} == {"h1", "h2"}
    none = ask(world, "net-2")
    assert (
        none.total == 0 and none.stopped_by is not None and none.stopped_by["reason"] == "rejected by: NetworkFilter 2"
    )


# --- moves --------------------------------------------------------------------------------------------------------------


HOSTS = {"h1": "qcow2", "h2": "qcow2", "h3": "qcow2"}


def migrate(world: World, uuid: str) -> cold.Begun:
    wanted = cold.Wanted(Selection(uuids=[uuid]), tuple(HOSTS), HOSTS)
    with world.ledger.write() as tx:
        return cold.begin(tx.for_run(world.context("m")), wanted, world.fleet, world.options(explain_failures=True))


def attach(world: World, *wanted: Network, run: str = "i") -> interfaces.Begun:
    entries = [
        WantedInterface("interfaces[%d]" % n, "web", NetworkRequest(network=each.id)) for n, each in enumerate(wanted)
    ]
    by_id = {n.id: n for n in world.networks.values()}
    with world.ledger.write() as tx:
        begun = interfaces.begin_attach(tx.for_run(world.context(run)), entries, by_id, None, list(HOSTS), {})
        interfaces.finish(tx.for_run(world.context(run)), interfaces.ATTACH, {f.row.uuid: () for f in begun.interfaces})
    return begun


def detach(world: World, net: str) -> None:
    entry = NamedInterface("interfaces[0]", "web", network=net)
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context("j"))
        begun = interfaces.begin_detach(tx, [entry], world.networks, None, list(HOSTS))
        uuid = begun.interfaces[0].row.uuid
        interfaces.finish(tx, interfaces.DETACH, {uuid: ()})
        assert interfaces.free_addresses(tx, [f.port.id for f in begun.interfaces], str(begun.interfaces[0].row.host))


def test_a_move_goes_where_the_networks_of_all_interfaces_are(world: World) -> None:
    """Of an interface that was attached later, too; not of one that was detached."""
    node(world, "h1", networks=there("br0", "br7"))
    uuid = world.boot("web", networks=("net-2",))
    assert place_of(world, uuid) == "h1"
    attach(world, DATA)
    node(world, "h2", networks=there("br0"))
    begun = migrate(world, uuid)
    refused = begun.failed[uuid]
    assert refused.code == "NoValidHost" and refused.remedy == MAKE_NETWORKS
    assert "NetworkFilter rejected h2 (Linux bridge br7 does not exist (network net-3))" in refused.message
    assert world.row(uuid).task_state is None

    node(world, "h3", networks=there("br0", "br7"))
    with world.ledger.write() as tx:
        nodes.record_unreachable(tx, "h3", "no route")
    detach(world, "net-3")
    (moving,) = migrate(world, uuid).moving
    assert moving.move.dest_compute == "h2"


def test_nothing_is_attached_on_a_host_that_lacks_the_network(world: World) -> None:
    node(world, "h1", networks=there("br0", lan_here=False))
    world.boot("web", networks=("net-2",))
    before = len(world.rows(tables.ip_allocations)), len(world.rows(tables.ports))
    begun = attach(world, DATA, LAN, MANAGED)
    assert [f.network.name for f in begun.interfaces] == ["net-5"]
    bridge, libvirt = (r.error for r in begun.refused)
    assert (bridge.code, bridge.message) == ("HostLacksNetwork", "Linux bridge br7 does not exist on h1")
    assert bridge.remedy == (
        "Create bridge br7 in the network configuration of the host, or correct the source of network net-3."
        " Then run bootflow.compute.heartbeat, so that the host reports it."
    )
    assert libvirt.message == "libvirt network lan-here is not active on h1" and "virsh net-start" in libvirt.remedy
    assert (len(world.rows(tables.ip_allocations)), len(world.rows(tables.ports))) == (before[0] + 1, before[1] + 1)
    with pytest.raises(errors.InvalidRequest) as caught:
        attach(world, DATA, run="k")
    assert [e["code"] for e in caught.value.errors] == ["HostLacksNetwork"]
    node(world, "h1", networks=there("br0", "br7"))
    assert [f.network.name for f in attach(world, DATA, run="l").interfaces] == ["net-3"]


def test_a_host_that_told_nothing_may_get_the_interface(world: World) -> None:
    node(world, "h1")
    world.boot("web", networks=("net-2",))
    assert [f.network.name for f in attach(world, DATA).interfaces] == ["net-3"]
