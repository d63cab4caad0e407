# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interfaces attached on a host: what people are told of those that are neither attached nor taken back, and what other runs do meanwhile."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import instance_interface
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.entries import (
    NamedInterface,
    WantedInterface,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.interface_outcomes import stays_in_ledger
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import NetworkRequest
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import interfaces
from ansible_collections.bootflow.compute.plugins.plugin_utils.devices.interfaces import item_of
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import (
    WorldPorts,
    action_of,
    limit_run,
    results_of,
    run_stage,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, network


def test_an_error_of_several_interfaces_is_told_once_of_each() -> None:
    one = errors.HypervisorUnavailable(host="h1", reason="no socket")
    before = one.as_dict()
    first, second = (stays_in_ledger(one) for _number in range(2))
    assert one.as_dict() == before
    for each in (first, second):
        assert (each.code, each.message) == (one.code, one.message)
        assert each.remedy == "The ledger has the interface: run the same command again, or detach it. " + one.remedy


class Host:
    """h1 with one guest: the addresses of its interfaces. ``meanwhile``: what others do before the host is asked the first time."""

    def __init__(self, world: World, uuid: str):
        self.world, self.uuid = world, uuid
        self.has: set[str] = set()
        self.keeps = self.dies = False
        self.meanwhile: t.Callable[[], None] = lambda: None

    def module(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if name == "virtual_network":
            return {"outcomes": {n["name"]: {"error": None} for n in arguments["networks"]}}
        self.meanwhile()
        self.meanwhile = lambda: None
        outcomes: dict[str, t.Any] = {}
        for each in arguments["interfaces"]:
            error = None
            if each.get("state", "attached") == "attached":
                self.has.add(each["mac"])
            elif self.keeps and each["mac"] in self.has:
                error = errors.DeviceDetachFailed(device=each["mac"], reason="no").as_dict()
            else:
                self.has.discard(each["mac"])
            outcomes[each["id"]] = {"changed": True, "error": error}
        if self.dies:
            self.dies = False
            raise errors.HostUnreachable(host="h1", reason="silence")
        return {"outcomes": outcomes}

    def attach(self) -> tuple[str, dict[str, t.Any]]:
        """(the port, the result of the playbook)"""
        entry = WantedInterface("interfaces[0]", self.uuid, NetworkRequest(network=network(2).id))
        with self.world.ledger.write() as tx:
            mine = tx.for_run(self.world.context("a"))
            begun = interfaces.begin_attach(mine, [entry], self.world.networks, None, ["h1"], {})
        (found,) = begun.interfaces
        items = [item_of(found, True)]
        hostvars: dict[str, dict[str, t.Any]] = {"localhost": {}, "h1": {}}
        groups = {"all": ["localhost", "h1"], "bootflow_compute": ["h1"]}
        variables = {"inventory_hostname": "h1", "groups": groups, "hostvars": hostvars}
        options = {"operation": "attach_interface", "interfaces": []}
        ports = WorldPorts(self.world, "a", self.module)
        results_of(ports, "instance_interface").leave("begin", "localhost", {"interfaces": items})

        def stage(phase: str, at: str = "localhost") -> dict[str, t.Any]:
            given = {**variables, "inventory_hostname": at}
            return run_stage(action_of(instance_interface, ports, given, phase=phase, **options))

        stage("work", "h1")
        done = stage("finish")
        if done.get("clearing"):
            stage("clear", "h1")
            done = stage("report")
        return found.port.id, done

    def detach(self) -> None:
        """Another run does all of it: the guest does not have the interface yet."""
        entry = NamedInterface("interfaces[0]", self.uuid, network="net-2")
        with self.world.ledger.write() as tx:
            other = tx.for_run(self.world.context("b"))
            (found,) = interfaces.begin_detach(other, [entry], self.world.networks, None, ["h1"]).interfaces
        with self.world.ledger.write() as tx:
            interfaces.free_addresses(tx.for_run(self.world.context("b")), [found.port.id], "h1")


@pytest.fixture
def host(world: World) -> Host:
    world.know(network(2))
    world.report("h1")
    return Host(world, world.boot("web"))


def test_a_limit_that_leaves_out_its_host_is_refused(host: Host) -> None:
    ports = WorldPorts(host.world, "a", host.module)
    limit_run(ports, ["localhost", "h2"])
    variables = {
        "hostvars": {"localhost": {}, "h1": {}},
        "groups": {"all": ["localhost", "h1"], "bootflow_compute": ["h1"]},
    }
    options = {
        "operation": "attach_interface",
        "phase": "begin",
        "interfaces": [{"instance": "web", "network": "net-2"}],
        "networks": [
            {
                "name": "net-2",
                "id": network(2).id,
                "type": "network",
                "source": "default",
                "subnets": [{"name": "v4", "cidr": "192.0.2.0/24"}],
            }
        ],
    }
    before = host.world.everything()
    with pytest.raises(errors.InvalidInput, match="the limit of this run leaves out h1"):
        action_of(instance_interface, ports, variables, **options).act()
    assert host.world.everything() == before


@pytest.mark.parametrize("kind", ["vxlan", "bridge"])
def test_underlay_addresses_of_two_ip_versions_are_refused_before_an_address_is_taken(host: Host, kind: str) -> None:
    ports = WorldPorts(host.world, "a", host.module)
    addresses = {"h1": {"bootflow_vxlan_address": "10.0.0.1"}, "h2": {"bootflow_vxlan_address": "fd00::2"}}
    variables = {
        "hostvars": {"localhost": {}, **addresses},
        "groups": {"all": ["localhost", "h1", "h2"], "bootflow_compute": ["h1", "h2"]},
    }
    fields = {"vni": 100} if kind == "vxlan" else {"source": "br0"}
    wanted = {"name": "net-2", "id": network(2).id, "type": kind, "subnets": [{"cidr": "192.0.2.0/24"}], **fields}
    options = {
        "operation": "attach_interface",
        "phase": "begin",
        "interfaces": [{"instance": "web", "network": "net-2"}],
        "networks": [wanted],
    }
    before = host.world.everything()
    if kind == "bridge":
        assert action_of(instance_interface, ports, variables, **options).act()["changed"], "no tunnel is needed"
        return
    with pytest.raises(errors.InvalidRequest, match="a VXLAN network has one IP version"):
        action_of(instance_interface, ports, variables, **options).act()
    assert host.world.everything() == before


@pytest.mark.parametrize("silent", [False, True])
def test_an_interface_that_another_run_detaches_before_the_guest_has_it(host: Host, silent: bool) -> None:
    """Its address is free by then, and another guest may get it. :arg silent: the host attaches it and does not say so"""
    host.meanwhile, host.dies = host.detach, silent
    _port, result = host.attach()
    assert host.has == set() and host.world.addresses() == ["10.0.1.10"]
    (failed,) = result["failed_items"]
    assert not result["changed"] and failed["error"]["code"] == "Conflict"
    assert "another run detached the interface 10.0.2.10 of network net-2, instance web" in failed["error"]["message"]


def test_a_guest_that_keeps_such_an_interface(host: Host) -> None:
    host.meanwhile, host.keeps = host.detach, True
    _port, result = host.attach()
    (failed,) = result["failed_items"]
    assert len(host.has) == 1 and "does not release it" in failed["error"]["message"]
    assert "bootflow_reboot_type: HARD" in failed["error"]["remedy"]


def test_an_interface_that_nobody_detaches(host: Host) -> None:
    port, result = host.attach()
    assert ([i["port_id"] for i in result["interfaces"]], len(host.has)) == ([port], 1) and result["changed"]
