# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The last task of a boot: the instances that accept named, whatever else runs."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible import context

from ansible_collections.bootflow.compute.plugins.action import boot_report
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import (
    WorldPorts,
    action_of,
    results_of,
)
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
    nothing = {"changed": False, "unfinished": False, "instances": [], "returns_passwords": True}
    assert action_of(boot_report, ports, {}, uuids=[]).act() == nothing


def test_a_report_that_comes_early_waits_for_what_is_left(world: World) -> None:
    world.report("h1")
    accepted = world.accept(request("web", 2))
    ports = WorldPorts(world, "a")

    def early(volumes: bool = False) -> dict[str, t.Any]:
        left = {"created": accepted.created[:1], "resumed": accepted.created[1:], "unchanged": [], "updated": []}
        results_of(ports, "boot_accept").leave("accept", "localhost", {**left, "volumes": volumes})
        return action_of(boot_report, ports, {}, phase="report_if_finished").act()

    left = {"changed": False, "unfinished": True, "volumes": False}
    assert early() == left, "they wait for a host"
    world.schedule()
    assert early() == left, "they are built"
    assert {world.state(uuid)[0] for uuid in accepted.created} == {"building"} and not ports.shown
    world.build("h1")
    assert early(volumes=True) == {**left, "volumes": True}, "storage hosts work before the report"
    done = early()
    assert not done["unfinished"] and [i["vm_state"] for i in done["instances"]] == ["active", "active"]
    assert "web-1" in ports.shown[-1]


def test_passwords_are_left_in_their_folder_also_if_instances_failed(world: World, tmp_path: Path) -> None:
    world.report("h1", memory=2)
    accepted = world.accept(request("web", 2), request("late"))
    world.schedule()
    world.build("h1")
    ports, folder = WorldPorts(world, "a"), tmp_path / "passwords"
    given = {"uuids": accepted.created, "admin_password_dir": str(folder)}
    entries = {"bootflow_instances": [{"name": "web", "max_count": 2, "admin_password": "correct horse"}]}
    refused = action_of(boot_report, ports, {**entries, "bootflow_enable_instance_password": False}, **given).act()
    assert not refused["changed"] and not refused["returns_passwords"] and not folder.exists()
    result = action_of(boot_report, ports, entries, **given).act()
    assert (result["error_code"], result["changed"]) == ("BootFailed", True)
    active = {row.uuid for row in world.rows(tables.instances) if row.vm_state == "active"}
    assert len(active) == 2 and {path.name for path in folder.iterdir()} == active
    assert {path.read_text() for path in folder.iterdir()} == {"correct horse\n"}
    assert "correct horse" not in str(result) + str(ports.shown) and str(folder) in ports.shown[-1]


@pytest.mark.parametrize(
    ("played", "variables", "expected"),
    [
        (["bootflow.compute.boot"], {}, False),
        (["bootflow.compute.apply"], {}, False),
        (["bootflow.compute.boot"], {"bootflow_hook_create_instance_post": "/srv/after.yml"}, True),
        (["bootflow.compute.boot", "after.yml"], {}, True),
        (["bootflow.compute.boot", "bootflow.compute.list"], {}, True),
        (["site.yml"], {}, True),
        (["/usr/share/boot.yml"], {}, True),
        (["site.yml"], {"bootflow_enable_instance_password": "no"}, False),
        ([], {}, True),  # not by ansible-playbook
    ],
)
def test_passwords_are_returned_where_somebody_can_read_them(
    world: World, played: list[str], variables: t.Any, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "CLIARGS", {"args": played})
    result = action_of(boot_report, WorldPorts(world, "a"), variables, uuids=[]).act()
    assert result["returns_passwords"] is expected


def test_what_was_stopped_since_is_no_failure_of_a_boot(world: World) -> None:
    """A boot of the same file leaves it so, and says what starts it."""
    world.report("h1")
    accepted = world.accept(request("web", 2))
    world.schedule()
    world.build("h1")
    world.ledger.transact(lambda tx: instances.write(tx, accepted.created[:1], vm_state="stopped", power_state=4))
    ports = WorldPorts(world, "a")
    result = action_of(boot_report, ports, {}, uuids=accepted.created).act()
    assert "failed" not in result and [i["vm_state"] for i in result["instances"]] == ["stopped", "active"]
    assert (
        "web-1: already booted, and stopped now. A boot leaves existing instances as they are: run bootflow.compute.start to change that."
        in ports.shown[-1]
    )
    world.ledger.transact(lambda tx: instances.write(tx, accepted.created[:1], vm_state="error"))
    result = action_of(boot_report, ports, {}, uuids=accepted.created).act()
    assert result["failed_items"][0]["state"] == "error" and "bootflow.compute.delete" in result["remedy"]
