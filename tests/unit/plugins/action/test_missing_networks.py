# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a person reads at the end of a boot whose host lacks the network: the host's own check of networks, from the request to the report."""

from __future__ import annotations

import contextlib
import json
import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import boot_accept, boot_build, boot_report, boot_schedule
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import power_states
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import (
    connection as libvirt_connection,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import network_batch, taps
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types import bridge
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types import (
    network as libvirt_network,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.program import read_arguments
from ansible_collections.bootflow.compute.plugins.modules import virtual_network
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import node
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

HOST = "kvm1"
VARIABLES: dict[str, t.Any] = {
    "bootflow_flavors": [{"name": "small", "memory_mb": 1024, "vcpus": 1, "root_gb": 1}],
    "bootflow_images": [
        {"name": "tiny", "disk_format": "qcow2", "allow_unverified": True, "url": "http://x.example/tiny.qcow2"}
    ],
    "bootflow_instances": [{"name": "web", "flavor": "small", "image": "tiny", "networks": ["lan"]}],
}


class NoNetwork(Exception):
    """As libvirt's error."""

    def get_error_code(self) -> int:
        return 43

    def get_error_domain(self) -> int:
        return 19


class Hypervisor:
    """libvirt on the host. :arg inactive: the networks that it has"""

    def __init__(self, *inactive: str):
        self.inactive = inactive

    def networkLookupByName(self, name: str) -> t.Any:
        if name not in self.inactive:
            raise NoNetwork
        return types.SimpleNamespace(isActive=lambda: False)


def words_of_a_boot(
    world: World, monkeypatch: pytest.MonkeyPatch, network: t.Mapping[str, t.Any], there: Hypervisor
) -> str:
    """What the boot says at its end."""
    codes = types.SimpleNamespace(
        libvirtError=NoNetwork, VIR_ERR_NO_NETWORK=43, VIR_FROM_REMOTE=13, VIR_FROM_RPC=7, VIR_ERR_NO_CONNECT=-1
    )
    for module in (libvirt_connection, libvirt_network, taps):
        monkeypatch.setattr(module, "libvirt", codes)
    for module in (bridge, libvirt_network):
        monkeypatch.setattr(module, "host_name", lambda: HOST)
    monkeypatch.setattr(network_batch, "connect", lambda *_address: contextlib.nullcontext(there))

    def run_module(name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if name == "virtual_network":
            spec = virtual_network.argument_spec()  # which has a part of the options of instance_build
            own = json.loads(json.dumps({option: value for option, value in arguments.items() if option in spec}))
            return network_batch.ensure_networks(read_arguments(spec, own, set()), False)
        items = next(arguments[key] for key in ("drives", "domains", "instances") if key in arguments)
        return {"outcomes": {i["uuid"]: {"power_state": power_states.RUNNING} for i in items}}

    node(world, HOST, memory_mb=8192)
    inventory = dict.fromkeys(("localhost", HOST), {**VARIABLES, "bootflow_networks": [network]})
    groups = {"all": list(inventory), "bootflow_compute": [HOST]}

    def task(module: t.Any, host: str = "localhost", **options: t.Any) -> dict[str, t.Any]:
        variables = {"inventory_hostname": host, "groups": groups, "hostvars": inventory, **inventory[host]}
        ports = WorldPorts(world, "a", run_module)
        return t.cast("dict[str, t.Any]", action_of(module, ports, variables, **options).act())

    created = task(boot_accept)["created"]
    for number in (1, 2):
        for host in task(boot_schedule, round=number)["compute"]:
            task(boot_build, host)
    return str(task(boot_report, uuids=created)["msg"])


def test_a_missing_bridge(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    network = {"name": "lan", "type": "bridge", "source": "bf-no-such-br", "subnets": [{"cidr": "192.0.2.0/24"}]}
    words = words_of_a_boot(world, monkeypatch, network, Hypervisor())
    assert "Linux bridge bf-no-such-br does not exist on kvm1" in words
    remedy = (
        "Create bridge bf-no-such-br in the network configuration of the host, or correct the source of network lan."
    )
    assert remedy in words


@pytest.mark.parametrize(
    ("there", "message", "remedy"),
    [
        (
            Hypervisor(),
            "libvirt network lan-here does not exist on kvm1",
            "Define it there, correct the source of network lan, or set manage: true for it.",
        ),
        (
            Hypervisor("lan-here"),
            "libvirt network lan-here is not active on kvm1",
            "Start it (virsh net-start lan-here), or set manage: true for network lan.",
        ),
    ],
)
def test_a_missing_libvirt_network(
    world: World, monkeypatch: pytest.MonkeyPatch, there: Hypervisor, message: str, remedy: str
) -> None:
    network = {"name": "lan", "source": "lan-here", "subnets": [{"cidr": "192.0.2.0/24"}]}
    words = words_of_a_boot(world, monkeypatch, network, there)
    assert message in words and remedy in words
