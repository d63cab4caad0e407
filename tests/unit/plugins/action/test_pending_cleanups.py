# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that reports again is rid first of what was left there while it did not answer."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.action import compute_report
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

FACTS = {"hypervisor_hostname": "h1", "memory_mb": 8192, "local_gb": 4000, "vcpus": 500, "domains": []}


def test_what_a_delete_by_force_left_is_released_by_the_next_report(world: World) -> None:
    world.report("h1", memory=8)
    stubborn, gone = world.accept(request("web", 2)).created
    world.schedule()
    world.build("h1")
    world.delete(uuids=[stubborn, gone])
    world.finish(force=True)
    assert world.cleanups() == world.claims() == {(stubborn, "h1"), (gone, "h1")}
    bad = {stubborn}

    def modules(name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if name == "compute_node_info":
            return {"compute_node": FACTS}
        assert name == "instance_cleanup"
        error = errors.RemoteError(reason="busy").as_dict()
        return {
            "outcomes": {
                i["uuid"]: {"changed": True, "error": error if i["uuid"] in bad else None}
                for i in arguments["instances"]
            }
        }

    ports = WorldPorts(world, "r", modules=modules)
    variables = {"inventory_hostname": "h1", "hostvars": {"h1": {}}}
    assert action_of(compute_report, ports, variables).act()["cleaned"] == [gone]
    assert world.cleanups() == world.claims() == {(stubborn, "h1")} and stubborn in ports.warnings[-1]
    bad.clear()
    assert action_of(compute_report, ports, variables).act()["cleaned"] == [stubborn]
    assert not world.cleanups() and not world.claims() and not world.addresses()
