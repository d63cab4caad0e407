# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that reports again is rid first of what was left there while it did not answer."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.action import compute_report
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import cleanups
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings import host_reports
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


def test_what_a_host_keeps_is_seen_there_still(world: World) -> None:
    """A ledger that was restored has the guest elsewhere. The host's cleanup is of a move that had made nothing: the guest is older."""
    world.report("h1", memory=8)
    uuid = world.boot("web")
    world.report("h2", memory=8)
    with world.ledger.write() as tx:
        due = cleanups.Due("h2", uuid, "web", "its move failed", made_for="run:1@5")
        cleanups.add(tx.for_run(world.context()), due)
    facts = {**FACTS, "hypervisor_hostname": "h2", "instance_folders": [uuid]}
    facts["domains"] = [{"uuid": uuid, "name": "web", "power_state": 1, "ledger": world.ledger.id}]

    def modules(name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if name == "compute_node_info":
            return {"compute_node": facts}
        kept = {"changed": False, "kept": True, "error": None}
        return {"outcomes": {i["uuid"]: kept for i in arguments["instances"]}}

    world.time += 60
    ports = WorldPorts(world, "r", modules=modules)
    done = action_of(compute_report, ports, {"inventory_hostname": "h2", "hostvars": {"h2": {}}}).act()
    assert done["cleaned"] == [] and not world.cleanups()
    assert [(row.host, row.instance_uuid) for row in world.rows(tables.sightings)] == [("h2", uuid)]


def test_what_a_host_was_cleaned_of_is_not_in_its_report() -> None:
    found = {"compute_node": {"domains": [{"uuid": "a"}], "instance_folders": ["a", "b"]}, "cleaned": ["a"]}
    assert host_reports.instances_in(found) == {"b"}
