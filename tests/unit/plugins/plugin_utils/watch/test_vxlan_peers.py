# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VXLAN networks of a host that reports: they are joined with the hosts of the inventory, if they are not already."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.plugin_utils.watch import vxlan_peers

HAD = {"name": "vxbr100", "vni": 100, "mtu": 1430, "address": "10.0.0.1", "peers": ["10.0.0.2"]}


class Action:
    """An action of the host h1."""

    def __init__(self, answer: t.Any, **addresses: str):
        self.answer = answer
        self.addresses = addresses
        self.asked: list[tuple[str, t.Mapping[str, t.Any]]] = []
        self.warnings: list[str] = []
        self.ports = types.SimpleNamespace(display=types.SimpleNamespace(warning=self.warnings.append))
        hostvars = {h: {"bootflow_vxlan_address": a} if a else {} for h, a in addresses.items()}
        self.task_vars = {"inventory_hostname": "h1", "hostvars": hostvars}

    def variable(self, name: str, default: t.Any = None) -> t.Any:
        return self.task_vars["hostvars"]["h1"].get(name, default)

    def compute_hosts(self) -> list[str]:
        return list(self.addresses)

    def run_module(self, name: str, arguments: t.Mapping[str, t.Any]) -> t.Any:
        self.asked.append((name, arguments))
        if isinstance(self.answer, Exception):
            raise self.answer
        return {"outcomes": {"vxbr100": self.answer}}


def refresh(action: Action, *networks: t.Mapping[str, t.Any]) -> list[str]:
    return vxlan_peers.refresh(t.cast(t.Any, action), "h1", networks)


def test_a_new_host_is_joined() -> None:
    action = Action({"changed": True, "error": None}, h1="10.0.0.1", h2="10.0.0.2", h3="10.0.0.3", h4="")
    assert refresh(action, HAD) == ["vxbr100"]
    ((name, arguments),) = action.asked
    assert name == "virtual_network" and arguments["refresh_vxlan"] is True and "networks" not in arguments
    assert (arguments["vxlan_address"], arguments["vxlan_peers"]) == ("10.0.0.1", ["10.0.0.2", "10.0.0.3"])
    assert action.warnings == []


@pytest.mark.parametrize(
    ("networks", "addresses"),
    [
        ((HAD,), {"h1": "10.0.0.1", "h2": "10.0.0.2"}),
        (
            ({**HAD, "address": "fd00::1", "peers": ["fd00::2"]},),
            {"h1": "FD00::1", "h2": "fd00:0::2"},
        ),
        ((), {"h1": "10.0.0.1", "h2": "10.0.0.9"}),
    ],
)
def test_a_host_is_not_asked_for_nothing(networks: t.Any, addresses: dict[str, str]) -> None:
    action = Action(AssertionError(), **addresses)
    assert refresh(action, *networks) == [] and action.asked == [] and action.warnings == []


def test_a_host_that_lost_its_address_keeps_its_networks_and_is_named() -> None:
    action = Action(AssertionError(), h1="", h2="10.0.0.9")
    assert refresh(action, HAD) == [] and action.asked == []
    (warning,) = action.warnings
    assert warning.startswith("h1 has VXLAN networks (vxbr100) and no bootflow_vxlan_address: other hosts forget it")


@pytest.mark.parametrize("whole", [True, False])
def test_a_host_that_cannot_says_so_and_its_report_stands(whole: bool) -> None:
    problem = errors.NetworkError(message="two versions", remedy="Write one.")
    answer = problem if whole else {"changed": False, "error": problem.as_dict()}
    action = Action(answer, h1="10.0.0.1", h2="fd00::2")
    assert refresh(action, HAD) == []
    (warning,) = action.warnings
    assert "bridge vxbr100 of h1 does not follow the inventory" in warning and "two versions" in warning
