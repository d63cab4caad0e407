# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An evacuation without the file that booted the guests: those with user data stay and say what to give; the others go."""

from __future__ import annotations

import hashlib
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.drive_files import unpack_files
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import InjectedFile
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

from .test_evacuate import Evacuating, force_down
from .test_instance_operation import vm_states
from .test_rebuild import row_of

SECRET = "#cloud-config\npassword: hunter2\n"
FILE = InjectedFile("/etc/secret", "aHVudGVyMg==")


def fleet_of(world: World) -> Evacuating:
    """h1 with app (user data), db (a file), pet (user data, but no config drive) and web (nothing of it); h2 and h3 are empty."""
    world.report("h1", memory=8)
    entries = (
        ("app", {"user_data": SECRET}),
        ("db", {"injected_files": (FILE,)}),
        ("pet", {"user_data": SECRET}),
        ("web", {}),
    )
    for name, fields in entries:
        world.accept(request(name, **fields))
    world.schedule()
    world.build("h1")
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().where(tables.instances.c.display_name == "pet").values(config_drive=False))
    for host in ("h2", "h3"):
        world.report(host, memory=8)
    force_down(world)
    return Evacuating(world)


@pytest.fixture
def fleet(world: World) -> Evacuating:
    return fleet_of(world)


def places(fleet: Evacuating) -> dict[str, bool]:
    """name -> whether it is where it was"""
    return {n: row_of(fleet.world, n).host == "h1" for n in ("app", "db", "pet", "web")}


def test_those_without_user_data_go(fleet: Evacuating) -> None:
    done = fleet.evacuate(hosts=["h1"])
    assert done["failed"] and done["changed"]
    assert places(fleet) == {"app": True, "db": True, "pet": False, "web": False}
    assert set(vm_states(fleet.world).values()) == {(states.ACTIVE, None)}
    stay = {i["name"]: i["error"] for i in done["failed_items"]}
    assert {n: e["code"] for n, e in stay.items()} == dict.fromkeys(("app", "db"), "GuestDataRequired")
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    assert "app of project" in stay["app"]["message"] and digest[:12] in stay["app"]["message"]
    assert "injected_files" in stay["db"]["message"] and "/etc/secret" in stay["db"]["message"]
    assert all("-e @FILE" in e["remedy"] and "bootflow_instances" in e["remedy"] for e in stay.values())
    assert digest not in str(done) and "hunter2" not in str(fleet.world.everything())


def test_with_the_file_the_rest_goes(fleet: Evacuating) -> None:
    fleet.evacuate(hosts=["h1"])
    contents = {"path": FILE.path, "contents": FILE.contents}
    fleet.variables["bootflow_instances"] = [
        {"name": "app", "user_data": SECRET},
        {"name": "db", "injected_files": [contents]},
    ]
    done = fleet.evacuate(hosts=["h1"])
    assert "failed" not in done and not any(places(fleet).values())
    assert "hunter2" in str(unpack_files(fleet.drives[row_of(fleet.world, "app").uuid]["files"]))


def test_without_the_file_for_good(fleet: Evacuating) -> None:
    """An entry without user data makes the guest without it."""
    projects = {n: row_of(fleet.world, n).project for n in ("app", "db")}
    fleet.variables["bootflow_instances"] = [{"name": n, "project": p} for n, p in projects.items()]
    done = fleet.evacuate(hosts=["h1"])
    assert "failed" not in done and not any(places(fleet).values())


@pytest.mark.parametrize("which", [{"names": ["app", "web"]}, {"names": ["app"], "hosts": ["h1"]}])
def test_named_instances_go_all_or_none(fleet: Evacuating, which: dict[str, t.Any]) -> None:
    before = fleet.world.everything()
    with pytest.raises(errors.GuestDataRequired, match="app"):
        fleet.evacuate(**which)
    assert fleet.world.everything() == before


def test_where_none_can_go_nothing_is_touched(fleet: Evacuating) -> None:
    fleet.evacuate(hosts=["h1"])
    before = fleet.world.everything()
    with pytest.raises(errors.GuestDataRequired) as refused:
        fleet.evacuate(hosts=["h1"])
    assert "app" in refused.value.message and "db" in refused.value.message
    assert fleet.world.everything() == before
