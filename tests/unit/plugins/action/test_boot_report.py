# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The last task of a boot: the instances that accept named, whatever else runs."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.action import boot_report
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request


def test_what_became_of_the_instances_named(world: World) -> None:
    world.report("h1", memory=2)
    accepted = world.accept(request("web", 2), request("late"))
    world.accept(request("other"), run="b")
    world.schedule()
    world.build("h1")
    ports = WorldPorts(world, "a")
    result = action_of(boot_report, ports, {}, uuids=accepted.created).act()
    assert [i["name"] for i in result["instances"]] == ["web-1", "web-2", "late"], "as the request has them"
    assert (result["error_code"], [i["name"] for i in result["failed_items"]]) == ("BootFailed", ["late"])
    assert all(name in ports.shown[-1] for name in ("web-1", "web-2", "late")) and "other" not in ports.shown[-1]
    again = action_of(boot_report, ports, {}, uuids=accepted.created[:2], print_table=False).act()
    assert "failed" not in again and len(ports.shown) == 1
    assert action_of(boot_report, ports, {}).act() == {"changed": False, "unfinished": False, "instances": []}


def test_a_report_that_comes_early_waits_for_what_is_left(world: World) -> None:
    world.report("h1")
    accepted = world.accept(request("web", 2))
    ports = WorldPorts(world, "a")

    def early(**options: bool) -> dict[str, t.Any]:
        return action_of(boot_report, ports, {}, uuids=accepted.created, phase="report_if_finished", **options).act()

    left = {"changed": False, "unfinished": True, "hosts_to_clean": []}
    assert early() == left, "they wait for a host"
    world.schedule()
    assert early() == left, "they are built"
    assert {world.state(uuid)[0] for uuid in accepted.created} == {"building"} and not ports.shown
    world.build("h1")
    assert early(volumes=True) == left, "storage hosts work before the report"
    done = early()
    assert not done["unfinished"] and [i["vm_state"] for i in done["instances"]] == ["active", "active"]
    assert "web-1" in ports.shown[-1]
