# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host has of Open vSwitch and OVN, by ovs-vsctl and ovn-appctl."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import HostLacksNetwork
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types.network_type import (
    FoundNetwork,
    NetworkSpec,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types.registry import (
    HOST_NETWORK_TYPES,
    ensure_network,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.open_vswitch import bridges

VSCTL = """#!/bin/sh
case "$*" in
*"br-exists br-int") exit %(exists)d ;;
*external_ids:ovn-remote) echo '"%(remote)s"' ;;
*external_ids:ovn-bridge) echo ;;
*"interface tap1 external_ids:ovn-installed") echo '"true"' ;;
*) exit 1 ;;
esac
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., None]:
    monkeypatch.setattr(bridges, "_PLACES", str(tmp_path))

    def make(exists: int = 0, remote: str = "tcp:192.0.2.1:6642", status: str = "connected") -> None:
        texts = {
            "ovs-vsctl": VSCTL % {"exists": exists, "remote": remote},
            "ovn-appctl": "#!/bin/sh\necho %s\n" % status,
        }
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)

    return make


@pytest.mark.parametrize(
    ("answers", "networks"),
    [
        ({}, [FoundNetwork("br-int", True)]),
        ({"status": "'not connected'"}, [FoundNetwork("br-int", False)]),
        ({"exists": 2}, []),
    ],
)
def test_a_host_reports_its_integration_bridge(
    programs: t.Callable[..., None], answers: dict[str, t.Any], networks: list[FoundNetwork]
) -> None:
    programs(**answers)
    kind = HOST_NETWORK_TYPES["ovn"]
    assert kind.networks(None, t.cast(t.Any, None)) == networks
    assert kind.report(None) == [] and list(kind.purge(None, 0, (), False)) == []


def test_a_host_without_open_vswitch_has_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, "_PLACES", str(tmp_path))
    assert HOST_NETWORK_TYPES["ovn"].networks(None, t.cast(t.Any, None)) == []
    assert not bridges.is_connected() and not bridges.is_installed("tap1")
    with pytest.raises(HostLacksNetwork, match="integration bridge br-int of OVN does not exist"):
        ensure_network(None, NetworkSpec("lab", "ovn", "br-int"))


def test_a_port_is_plugged_in_when_its_flows_are_installed(programs: t.Callable[..., None]) -> None:
    programs()
    assert bridges.is_installed("tap1") and not bridges.is_installed("tap2")
    assert ensure_network(None, NetworkSpec("lab", "ovn", "br-int"))["changed"] is False
