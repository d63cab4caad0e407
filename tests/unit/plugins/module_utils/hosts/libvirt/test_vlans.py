# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VLAN networks on a host, up to the devices: tests/lab/vlan_devices.py makes those on a kernel that has VLANs."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    BootflowError,
    HostLacksNetwork,
    InvalidInput,
    NetworkError,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.bridges import made_bridges, tunnels, vlans
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types import vlan
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types.network_type import (
    FoundNetwork,
    NetworkSpec,
    Uplinks,
)

UPLINKS = Uplinks(physical_interfaces={"physnet1": "lo", "dark": "eth-none"})
SPEC = NetworkSpec("office", "vlan", "vlbr100", vlan=100, physical_network="physnet1", uplinks=UPLINKS)
HOST = vlan.HostVlan()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_bridges, "FOLDER", str(tmp_path))


def refused(kind: type[BootflowError], **changes: t.Any) -> str:
    with pytest.raises(kind) as caught:
        HOST.ensure(None, dataclasses.replace(SPEC, **changes), True)
    assert caught.value.remedy
    return caught.value.message


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"vlan": None}, "network office has no physical_network, or no VLAN between 1 and 4094"),
        ({"vlan": 4095}, "network office has no physical_network, or no VLAN between 1 and 4094"),
        ({"physical_network": ""}, "network office has no physical_network"),
        ({"source": "longer than any"}, "is not the name of a network interface"),
        ({"source": "vlan100"}, "'vlan100' is the name of a VLAN device"),
        ({"source": "eth0.100"}, "'eth0.100' is the name of a VLAN device"),
        ({"uplinks": Uplinks(physical_interfaces={"physnet1": "longer than any"})}, "is not the name of a network"),
        ({"uplinks": Uplinks(physical_interfaces={"a": "eth0", "b": "eth0"})}, "two physical networks have"),
    ],
)
def test_a_wrong_request(changes: dict[str, t.Any], text: str) -> None:
    assert text in refused(InvalidInput, **changes)
    assert made_bridges.recorded(vlans.Vlan) == []


def test_a_host_that_is_not_in_the_physical_network() -> None:
    text = "physical network lab is not in bootflow_physical_interface_mappings on "
    assert refused(HostLacksNetwork, physical_network="lab").startswith(text)
    text = "the interface of physical network dark is missing or down on "
    assert refused(HostLacksNetwork, physical_network="dark").startswith(text)
    assert HOST.networks(None, UPLINKS) == [FoundNetwork("physnet1"), FoundNetwork("dark", False)]
    assert HOST.networks(None, Uplinks()) == [] and HOST.report(None) == []


def test_the_mtu_is_at_most_that_of_the_interface() -> None:
    assert "network office has MTU 65537, and lo on " in refused(NetworkError, mtu=65537)


def test_files_of_each_kind_are_of_that_kind() -> None:
    made = vlans.Vlan(bridge="vlbr100", mtu=1500, interface="eth0", vlan=100)
    tunnel = tunnels.Tunnel(bridge="vxbr100", mtu=1430, vni=100, address="192.0.2.1", peers=("192.0.2.2",))
    for each in (made, tunnel):
        made_bridges.record(each, True)
    Path(made_bridges.FOLDER, "vlbr7").write_text(json.dumps({**dataclasses.asdict(made), "vlan": 4095}))
    Path(made_bridges.FOLDER, "vlbr8").write_text(json.dumps(dataclasses.asdict(made)))
    assert made_bridges.recorded(vlans.Vlan) == [made] and made_bridges.recorded(tunnels.Tunnel) == [tunnel]


@pytest.mark.parametrize(
    ("interface", "number", "device"),
    [("eth0", 100, "eth0.100"), ("enp0s31f6np0", 100, "vlan100"), ("enp0s31f6n", 4094, "enp0s31f6n.4094")],
)
def test_the_device_has_a_name_that_the_kernel_takes(interface: str, number: int, device: str) -> None:
    assert vlans.Vlan(bridge="b", mtu=1500, interface=interface, vlan=number).device == device
