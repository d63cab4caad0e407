# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The networks that a host reports: bridges of the kernel, and libvirt networks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.answers import compute
from ansible_collections.bootflow.compute.plugins.module_utils.core.answers.shapes import Misshapen
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.facts import facts
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types import bridge

NODE = {"hypervisor_hostname": "h1", "memory_mb": 1, "local_gb": 1, "vcpus": 1, "domains": []}


class Error(Exception):
    """As libvirt's error."""

    def __init__(self, code: int):
        super().__init__(code)
        self.code = code

    def get_error_code(self) -> int:
        return self.code

    def get_error_message(self) -> str:
        return "error %d" % self.code


class Network:
    """A libvirt network. :arg gone: it was removed after it was listed"""

    def __init__(self, name: str, active: int = 1, autostart: int = 1, persistent: int = 1, gone: bool = False):
        self._name, self._active, self._autostart, self._persistent, self._gone = (
            name, active, autostart, persistent, gone,
        )  # fmt: skip

    def name(self) -> str:
        return self._name

    def isPersistent(self) -> int:
        return self._persistent

    def isActive(self) -> int:
        if self._gone:
            raise Error(43)
        return self._active

    def autostart(self) -> int:
        assert self._persistent, "libvirt refuses that of another network"
        return self._autostart


@pytest.fixture(autouse=True)
def _libvirt(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = types.SimpleNamespace(
        libvirtError=Error, VIR_ERR_NO_NETWORK=43, VIR_ERR_NO_SUPPORT=3, VIR_ERR_NO_CONNECT=-1
    )
    monkeypatch.setattr(libvirt_connection, "libvirt", codes)
    monkeypatch.setattr(bridge, "bridges_of", lambda names: ["br0"])


def reported(networks: t.Callable[[int], t.Sequence[Network]]) -> dict[str, t.Any]:
    return facts.network_facts(types.SimpleNamespace(listAllNetworks=networks))


def test_libvirt_networks() -> None:
    networks = [
        Network("default"),
        Network("asleep", active=0, autostart=0),
        Network("for now", persistent=0),  # a catalogue cannot name it
        Network("transient", persistent=0),
        Network("going", gone=True),
    ]
    found = reported(lambda flags: networks)
    assert found == {
        "bridge": [{"name": "br0", "active": True}],
        "network": [
            {"name": "asleep", "active": False, "autostart": False},
            {"name": "default", "active": True, "autostart": True},
            {"name": "transient", "active": True},
        ],
        "vxlan": [],
        "vlan": [],
        "macvtap": [],
        "ovn": [],
    }
    compute.NODE({**NODE, "networks": found}, "compute_node")


def test_what_cannot_be_read_is_left_out() -> None:
    """Nothing is known of it then, and the other facts are reported. A libvirt without its driver of networks has none."""

    def refuses(code: int) -> t.Callable[[int], t.Sequence[Network]]:
        def networks(_flags: int) -> t.Sequence[Network]:
            raise Error(code)

        return networks

    assert set(reported(refuses(38))) == {"bridge", "macvtap", "ovn", "vlan", "vxlan"}
    assert reported(refuses(3))["network"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="root makes bridges")
def test_bridges_of_the_kernel() -> None:
    """In a network namespace of their own. /sys shows the bridges of another one there."""
    program = (
        "import json\n"
        "from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types import bridge\n"
        "found = [each._asdict() for each in bridge.HostBridge().networks(None, '')]\n"
        "print(json.dumps([found, bridge.bridges_of(['br-guests', 'lo', 'br9'])]))\n"
    )
    script = 'ip link add br-guests type bridge && ip link add vlan.20 type bridge && ip link add br-ü type bridge && exec "$@"'
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script, "sh", sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
    )
    found, named = json.loads(done.stdout)
    assert sorted(each["name"] for each in found) == ["br-guests", "vlan.20"] and named == ["br-guests"]
    assert all(each["active"] and each["autostart"] is None for each in found)


@pytest.mark.parametrize(
    "networks",
    [
        [],
        {"bridge": ["br0"]},
        {"bridge": [{"name": ""}]},
        {"bridge": [{"name": "b" * 256}]},
        {"bridge": [{"name": "br0\n"}]},
        {"bridge": [{"name": "br0"}, {"name": "br0"}]},
        {"network": [{"name": "lan", "active": "yes"}]},
        {"network": [{"active": True}]},
        {"b" * 256: []},
        {"type %d" % number: [] for number in range(65)},
        {"bridge": [{"name": "br%d" % number} for number in range(65537)]},
    ],
)
def test_a_host_that_answers_nonsense(networks: t.Any) -> None:
    with pytest.raises(Misshapen) as caught:
        compute.NODE({**NODE, "networks": networks}, "compute_node")
    assert caught.value.path.startswith("compute_node.networks")
