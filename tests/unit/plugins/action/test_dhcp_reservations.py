# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A managed network that was removed by hand and defined again lacks the reservations of its guests: a boot and the audit restore them."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.bootflow.compute.plugins.action import audit, boot_build
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import LibvirtError
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network import Network
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import reservations
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of, run_stage
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, network, subnet

FACTS = {"hypervisor_hostname": "h1", "memory_mb": 8192, "local_gb": 40, "vcpus": 8}


def managed(number: int) -> Network:
    served = replace(subnet(number), enable_dhcp=True)
    return replace(network(number, served), manage=True, source="bf-%d" % number)


ENTRY = {"instances": [{"name": "web"}]}


class Host:
    """h1: its network bf-2 and the reservations there, MAC address -> address."""

    def __init__(self, world: World):
        self.world = world
        world.know(managed(2), managed(3))
        world.report("h1", memory=8)
        self.reserved: dict[str, str] = {}
        self.called: list[dict[str, t.Any]] = []  # arguments of virtual_network
        self.refuses = ""  # an address
        self.silent = False
        self.registered: dict[str, dict[str, t.Any]] = {"localhost": {}, "h1": {}}
        self.shown = ""

    def module(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if name == "compute_node_info":
            assert arguments["list_reservations"]
            domains = [{"uuid": u, "name": "d", "power_state": 1, "ours": True} for u in self.guests()]
            there = [{"mac": m, "address": a, "complete": True, "used": True} for m, a in self.reserved.items()]
            networks = [{"name": "bf-2", "ours": True, "reservations": there}]
            return {"compute_node": {**FACTS, "domains": domains}, "dhcp": {"networks": networks, "error": None}}
        if name != "virtual_network":
            items = next(arguments[key] for key in ("drives", "domains", "instances") if key in arguments)
            return {"outcomes": {i["uuid"]: {"power_state": 1} for i in items}}
        self.called.append(dict(arguments))
        if self.silent:
            raise LibvirtError(reason="gone")
        outcomes: dict[str, t.Any] = {}
        for each in arguments.get("reservations", ()):
            outcomes[each["mac"]] = {"error": None}
            if each["address"] == self.refuses:
                outcomes[each["mac"]] = {"error": {"code": "NetworkError", "message": "it is another's"}}
            else:
                self.reserved[each["mac"]] = each["address"]
        made = {n["name"]: {"defined": n["name"] == "net-2"} for n in arguments.get("networks", ())}
        return {"outcomes": made, "reservations": outcomes}

    def guests(self) -> list[str]:
        return [r.uuid for r in self.world.rows(tables.instances) if r.deleted == "" and r.launched_at]

    def task(self, module: t.Any, host: str, check_mode: bool = False, **options: t.Any) -> dict[str, t.Any]:
        groups = {"all": ["localhost", "h1"], "bootflow_compute": ["h1"]}
        variables = {"inventory_hostname": host, "groups": groups, "hostvars": self.registered, **self.registered[host]}
        ports = WorldPorts(self.world, "b", self.module)
        result = run_stage(action_of(module, ports, variables, check_mode, **options))
        self.shown = "\n".join(ports.shown + ports.warnings)
        return t.cast("dict[str, t.Any]", result)

    def audit(self, check_mode: bool = False) -> tuple[list[dict[str, t.Any]], dict[str, t.Any]]:
        """Its findings, and what the phase clean returned."""
        self.world.time += 1
        self.called.clear()
        self.task(audit, "localhost", check_mode)
        self.task(audit, "h1", check_mode, phase="inspect")
        repaired = self.task(audit, "localhost", check_mode, phase="repair")
        shown = self.shown
        cleaned = self.task(audit, "h1", check_mode, phase="clean") if repaired["compute"] else {}
        self.shown = shown + self.shown
        return [f for f in repaired["findings"] if f["kind"] == "missing_reservation"], cleaned

    def needed(self) -> dict[str, dict[str, str]]:
        """UUID -> its reservation in bf-2."""
        with self.world.ledger.read() as tx:
            guests = reservations.of_hosts(tx, ["h1"]).get("h1", {})
        return {u: each for u, its in guests.items() for each in its if each["network"] == "bf-2"}


def test_a_boot_that_defines_a_network_restores_the_reservations_of_its_guests(world: World) -> None:
    host = Host(world)
    web = world.boot("web", networks=("net-1", "net-2", "net-3"))
    world.boot("db", networks=("net-2",))
    world.delete("d", names=["db"])  # begun: its guest is going
    world.boot("new", "scheduled", run="b", networks=("net-2", "net-3"))
    (wanted,) = host.needed().values()
    assert list(host.needed()) == [web] and wanted["address"] == "10.0.2.10" and wanted["name"] == "web"
    assert host.task(boot_build, "h1", **ENTRY)["builds"]
    made, restored = host.called
    assert sorted(n["name"] for n in made["networks"]) == ["net-2", "net-3"] and "reservations" not in made
    assert restored["reservations"] == [
        wanted
    ]  # of the network that was defined, and not of the build: it makes its own

    host.refuses = wanted["address"]
    world.boot("newer", "scheduled", run="b", networks=("net-2",))
    result = host.task(boot_build, "h1", **ENTRY)
    assert len(result["builds"]) == 1 and not result["failed_builds"]
    assert "DHCP does not reserve %s on h1: it is another's" % wanted["address"] in host.shown

    host.called.clear()
    world.boot("newest", "scheduled", run="b", networks=("net-3",))  # it was there: no question is asked
    assert host.task(boot_build, "h1", **ENTRY)["builds"] and len(host.called) == 1


def test_the_audit_restores_reservations(world: World) -> None:
    host = Host(world)
    uuids = [world.boot(name, networks=("net-2",)) for name in ("web", "db")]
    (web, db) = (host.needed()[u] for u in uuids)
    host.reserved = {web["mac"]: web["address"]}
    (found,), cleaned = host.audit(check_mode=True)
    assert (found["host"], found["instance"], found["to"], found["action"]) == (
        "h1",
        uuids[1],
        db["address"],
        "reserve",
    )
    assert "Would do" in host.shown and not host.called and cleaned == {} and db["mac"] not in host.reserved

    findings, cleaned = host.audit()
    assert findings == [found] and cleaned["changed"] and cleaned["reserved"] == [db["address"]]
    assert [c["reservations"] for c in host.called] == [[db]] and host.reserved[db["mac"]] == db["address"]
    assert host.audit() == ([], {})

    del host.reserved[web["mac"]]
    host.refuses = web["address"]
    _findings, cleaned = host.audit()
    assert cleaned["reserved"] == [] and not cleaned["changed"]
    assert "DHCP does not reserve %s on h1: it is another's" % web["address"] in host.shown
    host.silent = True
    _findings, cleaned = host.audit()
    assert cleaned["reserved"] == [] and "%s on h1: libvirt: gone" % web["address"] in host.shown
