# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reverts, all three phases on a real ledger, with hosts whose modules answer as the real ones do."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.stored_images import ID, STORES, store_image
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

from .test_instance_operation import Fleet, vm_states

GIB = 1024**3
REFUSED = errors.GuestHasSnapshots(instance_uuid="u", host="h1", domain="web", what="snapshots")


class Reverting(Fleet):
    """A host that reverts. ``steps``: what it was asked, in order. ``fails``: step -> the error of each instance there"""

    def __init__(self, world: World):
        super().__init__(world)
        self.steps: list[str] = []
        self.arguments: dict[str, t.Any] = {}
        self.fails: dict[str, errors.BootflowError] = {}
        self.power = states.RUNNING
        self.image_size = GIB
        self.after_exchange: errors.BootflowError | None = None
        self.by_another: dict[str, t.Callable[[], None]] = {}  # step -> what another run does then
        self.hostvars["localhost"]["bootflow_image_stores"] = STORES
        for host in ("h1", "h2"):
            self.hostvars[host].update({"bootflow_images": [], "bootflow_image_stores": STORES})

    def answer(self, host: str, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if name not in ("instance_disks", "instance_disks_revert", "domain_power"):
            return super().answer(host, name, arguments)
        step = arguments.get("state") or "made"
        self.steps.append(step)
        self.arguments[step] = arguments
        self.by_another.get(step, lambda: None)()
        if host in self.away:
            return {"unreachable": True, "msg": "no route"}
        error = self.fails.get(step)
        items = arguments.get("instances") or arguments.get("domains")
        outcomes: dict[str, t.Any] = {i["uuid"]: self.outcome(step, error) for i in items}
        if name != "instance_disks":
            return {"outcomes": outcomes}
        size = {"changed": True, "virtual_size": self.image_size, "path": "/x", "error": None}
        image_outcomes = {i["id"]: size for i in arguments["images"]}
        return {"outcomes": outcomes, "image_outcomes": image_outcomes, "missing_images": []}

    def outcome(self, step: str, error: errors.BootflowError | None) -> dict[str, t.Any]:
        if error is not None:
            return {"changed": False, "error": error.as_dict()}
        if step == "shutdown":
            self.power = states.SHUTDOWN
        if step == "running":
            self.power = states.RUNNING
        made: dict[str, t.Any] = {"changed": True, "error": None}
        if step == "made":
            return {**made, "disks": [], "pending": []}
        if step == "reverted":
            made["reverted"] = True
            made["error"] = self.after_exchange.as_dict() if self.after_exchange else None
        return made if step == "undone" else {**made, "power_state": self.power, "forced": False}


@pytest.fixture
def fleet(world: World) -> Reverting:
    """web, with a snapshot."""
    world.report("h1", memory=1)
    world.accept(request("web"))
    for host in sorted({p.host for p in world.schedule().placed.values()}):
        world.build(host)
    (row,) = world.rows(tables.instances)
    store_image(world, name="web-snap", instance_uuid=row.uuid, size=None)
    return Reverting(world)


def play(fleet: Reverting, **options: t.Any) -> dict[str, t.Any]:
    return fleet.play("revert", names=["web"], **{"revert_image": "%(name)s-snap", **options})


WHOLE = ["checked", "made", "shutdown", "reverted", "running"]


def test_a_guest_that_runs_is_off_for_the_exchange_only(fleet: Reverting) -> None:
    before = fleet.world.rows(tables.request_specs)
    done = play(fleet)
    assert done["changed"] and not done.get("failed") and fleet.steps == WHOLE
    assert [(i["vm_state"], i["power_state"], i["image"]["id"]) for i in done["instances"]] == [("active", 1, ID)]
    assert fleet.world.rows(tables.request_specs) == before and vm_states(fleet.world)["web"] == ("active", None)
    (made,) = fleet.arguments["made"]["instances"]
    assert made["replacement"] and [d["image_id"] for d in made["disks"]] == [ID]
    assert fleet.arguments["made"]["images"][0]["url"].endswith("/net/images/" + ID)
    assert all(d["leaves"] for d in fleet.arguments["shutdown"]["domains"]), "disks of others are refused"
    assert "image web-snap" in fleet.shown[-1]
    actions = [(a.action, a.message) for a in fleet.world.rows(tables.instance_actions)]
    assert actions[-1] == ("revert", None)


def test_a_guest_that_was_off_stays_off(fleet: Reverting) -> None:
    fleet.play("stop", names=["web"])
    fleet.steps.clear()
    done = play(fleet)
    assert fleet.steps == WHOLE[:-1] and vm_states(fleet.world)["web"] == ("stopped", None)
    assert done["instances"][0]["power_state"] == states.SHUTDOWN


@pytest.mark.parametrize(("power", "result"), [(states.RUNNING, "active"), (states.SHUTDOWN, "stopped")])
def test_an_instance_in_error_is_then_what_its_guest_was(fleet: Reverting, power: int, result: str) -> None:
    with fleet.world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(vm_state="error"))
    fleet.power = power
    assert not play(fleet).get("failed") and vm_states(fleet.world)["web"] == (result, None)
    assert ("running" in fleet.steps) == (power == states.RUNNING)


#: step that fails -> the steps that follow it, and the vm_state
FAILURES = {
    "checked": ([], "active"),
    "made": (["undone"], "active"),
    "shutdown": (["undone"], "active"),
    "reverted": (["running", "undone"], "active"),
    "running": ([], "stopped"),
}


@pytest.mark.parametrize("step", FAILURES)
def test_a_failure_anywhere(fleet: Reverting, step: str) -> None:
    fleet.fails[step] = errors.DiskFull(host="h1", path="/x", reason="full")
    done = play(fleet)
    assert [i["error"]["code"] for i in done["failed_items"]] == ["DiskFull"]
    follow, vm_state = FAILURES[step]
    assert fleet.steps == WHOLE[: WHOLE.index(step) + 1] + follow
    assert vm_states(fleet.world)["web"] == (vm_state, None)
    (fault,) = fleet.world.rows(tables.instance_faults)
    assert "full" in fault.message
    fleet.fails.clear()
    if vm_state == "active":
        assert not play(fleet).get("failed")


def test_what_the_disk_was_could_not_be_removed(fleet: Reverting) -> None:
    """The instance went back all the same, and its guest runs."""
    fleet.after_exchange = errors.CommandFailed(message="not wiped")
    done = play(fleet)
    assert done["failed_items"][0]["error"]["message"] == "not wiped" and fleet.steps == WHOLE
    assert vm_states(fleet.world)["web"] == ("active", None)


def test_a_host_that_gives_no_answer(fleet: Reverting) -> None:
    (row,) = fleet.world.rows(tables.instances)
    fleet.by_another["reverted"] = lambda: fleet.away.add(str(row.host))
    done = play(fleet)
    assert done["failed_items"][0]["error"]["code"] == "HostUnreachable"
    assert vm_states(fleet.world)["web"][1] is None


def test_an_image_that_is_larger_than_the_disk(fleet: Reverting) -> None:
    fleet.image_size = 5000 * GIB
    done = play(fleet)
    assert done["failed_items"][0]["error"]["code"] == "FlavorDiskSmallerThanImage"
    assert fleet.steps == ["checked", "made", "undone"]


def test_what_another_run_has_taken_over_is_left_alone(fleet: Reverting) -> None:
    def take_over() -> None:
        with fleet.world.ledger.write() as tx:
            tx.execute(tables.instances.update().values(run_id="another"))

    fleet.by_another["made"] = take_over
    done = play(fleet)
    assert done["failed_items"] and fleet.steps == ["checked", "made"], "the other run has its disks"


def test_check_mode_asks_the_host_and_touches_nothing(fleet: Reverting) -> None:
    fleet.check_mode = True
    before = fleet.world.everything()
    assert play(fleet)["changed"] and fleet.steps == ["checked"] and fleet.world.everything() == before
    assert "Would revert" in fleet.shown[-1]
    fleet.fails["checked"] = REFUSED
    done = play(fleet)
    assert done["failed_items"][0]["error"]["code"] == "GuestHasSnapshots" and fleet.world.everything() == before


def test_an_image_that_nothing_reads_is_refused(fleet: Reverting) -> None:
    with pytest.raises(errors.InvalidInput, match="bootflow_revert_image is not set"):
        play(fleet, revert_image="")
    with pytest.raises(errors.LedgerImageNotFound):
        play(fleet, revert_image="none")
    assert fleet.steps == [] and vm_states(fleet.world)["web"] == ("active", None)
