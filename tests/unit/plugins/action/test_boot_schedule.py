# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A boot and its plan where the host that the scheduler prefers lacks something that another host has."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import boot_accept, boot_schedule, boot_spawn
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import power_states
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import node
from ansible_collections.bootflow.compute.tests.unit.worlds.world import STAGES, World

VARIABLES: dict[str, t.Any] = {
    "bootflow_flavors": [{"name": "small", "memory_mb": 1024, "vcpus": 1, "root_gb": 1}],
    "bootflow_images": [
        {
            "name": "efi",
            "disk_format": "qcow2",
            "allow_unverified": True,
            "url": "http://x.example/efi.qcow2",
            "properties": {"hw_firmware_type": "uefi"},
        }
    ],
    "bootflow_networks": [
        {"name": "net", "type": "bridge", "source": "br0", "subnets": [{"cidr": "192.0.2.0/24", "gateway_ip": None}]}
    ],
}


class Boot:
    """One entry and these hosts; h1 has the most memory and no firmware."""

    def __init__(self, world: World, *with_uefi: str, count: int = 1, **variables: t.Any):
        self.world = world
        hosts = ("h1", "h2", "h3")
        entry = {"name": "web", "flavor": "small", "image": "efi", "networks": ["net"], "count": count}
        everywhere = {**VARIABLES, **variables, "bootflow_instances": [entry]}
        inventory = dict.fromkeys(("localhost", *hosts), everywhere)
        groups = {"all": list(inventory), "bootflow_compute": list(hosts)}
        self.of = {
            h: {"inventory_hostname": h, "groups": groups, "hostvars": inventory, **everywhere} for h in inventory
        }
        for number, host in enumerate(hosts):
            node(world, host, memory_mb=8192 - 1024 * number, uefi=host in with_uefi)

    def __call__(self, module: t.Any, host: str = "localhost", **how: t.Any) -> tuple[dict[str, t.Any], list[str]]:
        ports = WorldPorts(self.world, "a", self._run_module)
        result = action_of(module, ports, self.of[host], **how).act()
        return result, ports.shown

    def _run_module(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        items = next(arguments[key] for key in ("drives", "domains", "instances") if key in arguments)
        return {"outcomes": {i["uuid"]: {"power_state": power_states.RUNNING} for i in items}}


def test_a_plan_goes_on_with_the_host_that_has_the_firmware(world: World) -> None:
    """The error says that another host may: the plan is that of the boot, which tries it."""
    boot = Boot(world, "h3", count=2)
    before = world.everything()
    result, shown = boot(boot_schedule, check_mode=True)
    assert world.everything() == before
    assert [(p["host"], p["error"]) for p in result["plan"]] == [("h3", None)] * 2
    assert all("firmware='efi'" in p["xml"] or 'firmware="efi"' in p["xml"] for p in result["plan"])
    assert any("rescheduled: HostLacksHardware: Host h2 has no UEFI firmware" in line for line in shown)
    assert any("addresses: 192.0.2." in line for line in shown)


def test_a_plan_that_no_host_can_run_says_so(world: World) -> None:
    result, _shown = Boot(world, count=1)(boot_schedule, check_mode=True)
    (plan,) = result["plan"]
    assert result["failed"] and (plan["host"], plan["xml"]) == (None, None)
    assert plan["error"]["code"] in ("MaxRetriesExceeded", "NoValidHost")


def test_a_build_goes_on_to_the_host_that_has_the_firmware(world: World) -> None:
    boot = Boot(world, "h2")
    boot(boot_accept)
    (uuid,) = [r.uuid for r in world.rows(tables.instances)]
    for _round in range(2):
        for host in boot(boot_schedule)[0]["hosts"]:
            for stage in STAGES[:2]:
                begun, _failed = world.begin(stage, host)
                world.done(stage, [b.uuid for b in begun])
            boot(boot_spawn, host)
    assert world.state(uuid) == ("active", None, "h2")
    assert [f.error_code for f in world.rows(tables.instance_faults)] == ["HostLacksHardware"]


@pytest.mark.parametrize(
    "variables, run_limit, placed",
    [
        ({}, None, "h1"),
        ({}, ["localhost", "h2", "h3"], "h2"),
        ({"bootflow_hosts": ["h3"]}, None, "h3"),
        ({"bootflow_hosts": "slow"}, None, "h3"),
        ({"bootflow_hosts": ["h1", "h3"]}, ["localhost", "h3"], "h3"),
    ],
)
def test_instances_are_placed_on_hosts_that_the_run_is_limited_to(
    world: World, variables: dict[str, t.Any], run_limit: list[str] | None, placed: str
) -> None:
    """S15: plays of a run with a limit reach no other host, and a build there would wait for ever."""
    boot = Boot(world, "h1", "h2", "h3", **variables)
    for of_host in boot.of.values():
        of_host["groups"]["slow"] = ["h3"]
    localhost = boot.of["localhost"]["hostvars"]["localhost"]
    boot.of["localhost"]["hostvars"]["localhost"] = {**localhost, "bootflow_ledger_opened": {"run_limit": run_limit}}
    plan = boot(boot_schedule, check_mode=True)[0]["plan"]
    boot(boot_accept)
    result = boot(boot_schedule)[0]
    assert [p["host"] for p in plan] == result["hosts"] == [placed]
    assert run_limit is None or set(plan[0]["alternates"]) <= set(run_limit)


def test_hosts_that_are_named_and_are_not_there_are_refused(world: World) -> None:
    with pytest.raises(errors.InvalidRequest) as refused:
        Boot(world, bootflow_hosts=["h2", "h9"])(boot_accept)
    assert [e["path"] for e in refused.value.errors] == ["bootflow_hosts"]
    assert "names h9" in refused.value.errors[0]["message"]
