# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of instances whose root is a volume, as the tasks of the playbook run them on a real ledger."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import instance_operation
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.images import image_views
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables, volume_tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of, limit_run, run_stage
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import (
    BootWorld,
    device,
    from_image,
    volume_request,
)

FULL = errors.VolumeBackendAPIException(data="the volume group is full")


class Playbook:
    """The playbook snapshot in one run: its plays on the controller, on the compute host ``h1`` and on storage hosts."""

    def __init__(self, world: BootWorld, operation: str = "snapshot", **options: t.Any):
        self.world = world
        self.hosts = ["h1", "s1", "s2"]
        self.limit: list[str] | None = None
        self.modules: list[tuple[str, t.Any]] = []  # with the arguments that hosts' modules got
        self.answers: dict[
            str, dict[str, t.Any]
        ] = {}  # state -> what the module domain_quiesce answers, more than that it is done
        self.ports = WorldPorts(world, "z", self.module)
        self.options = {"operation": operation, "snapshot_name": "snap", "names": ["web"], **options}

    def stage(self, phase: str, host: str = "localhost", check_mode: bool = False) -> dict[str, t.Any]:
        variables = {
            "inventory_hostname": host,
            "hostvars": {name: {"ansible_host": "192.0.2.1"} for name in ("localhost", *self.hosts)},
            "groups": {
                "all": self.hosts,
                "bootflow_compute": [h for h in self.hosts if h.startswith("h")],
                "bootflow_storage": [h for h in self.hosts if h.startswith("s")],
            },
            "bootflow_image_stores": [{"name": "nfs", "path": "/net/images", "kind": "shared"}],
        }
        limit_run(self.ports, self.limit)
        return run_stage(action_of(instance_operation, self.ports, variables, check_mode, phase=phase, **self.options))

    def module(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.modules.append((name, arguments))
        state = arguments["state"]
        answer = {"changed": True, "error": None, "power_state": 1, "quiesced": True}
        answer.update({"token": "word"} if state == "frozen" else {})
        answer.update(self.answers.get(state, {}))
        return {"outcomes": {d["uuid"]: answer for d in arguments["domains"]}}

    def storage(self, hosts: t.Iterable[str], fail: t.Any = None) -> None:
        for host in hosts:
            work = self.world.work_of(host, "z")
            self.world.worked(host, {w.backend: self.world.storage[host].do(w, fail) for w in work}, "z")

    def run(self, fail: t.Any = None) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
        """What settle() and the last task return."""
        begun = self.stage("begin")
        for host in begun["freezing"]:
            self.stage("freeze", host)
        self.storage(begun["storage"], fail)
        for host in begun["compute"]:
            self.stage("work", host)
        settled = self.stage("settle")
        self.storage(settled["cleaning"])
        return settled, self.stage("finish")

    def snapshots(self) -> list[t.Any]:
        return self.world.rows(volume_tables.volume_snapshots, volume_tables.volume_snapshots.c.deleted == "")

    def images(self) -> list[tuple[str, str]]:
        return [(v["name"], v["status"]) for v in self.world.ledger.inspect(image_views.image_views, None, None, None)]


@pytest.fixture
def world(bworld: BootWorld) -> BootWorld:
    bworld.report("h1", memory=9)
    bworld.store("s1")
    bworld.make("data", size=3)
    bworld.store("s2")
    bworld.boot_of(volume_request("web", from_image(5), device("volume", "data")))
    return bworld


def test_the_host_of_the_guest_is_not_asked(world: BootWorld) -> None:
    play = Playbook(world)
    settled, finished = play.run()
    assert settled["cleaning"] == [] and settled["changed"] is False
    assert play.modules == []
    (instance,) = finished["instances"]
    assert (instance["error"], instance["vm_state"], instance["image"]["name"]) == (None, "active", "snap")
    assert play.images() == [("snap", "active")] and {r.status for r in play.snapshots()} == {"available"}
    assert "image snap %s" % instance["image"]["id"] in "\n".join(play.ports.shown)


def test_the_snapshots_of_a_failed_one_are_removed_in_the_same_run(world: BootWorld) -> None:
    play = Playbook(world)
    begun = play.stage("begin")
    bad = next(r.id for r in play.snapshots() if "vdb" in r.name)
    play.storage(begun["storage"], {bad: FULL})
    play.stage("work", "h1")
    settled = play.stage("settle")
    assert settled["cleaning"] and set(settled["cleaning"]) <= {"s1", "s2"}
    play.storage(settled["cleaning"])
    assert world.pending_cleanups() == set() and play.snapshots() == []
    finished = play.stage("finish")
    assert finished["failed"] and "the volume group is full" in finished["failed_items"][0]["error"]["message"]
    assert play.images() == []


def test_check_mode_writes_nothing_and_says_what_would_be_made(world: BootWorld) -> None:
    play = Playbook(world)
    before = world.everything()
    begun = play.stage("begin", check_mode=True)
    assert begun["changed"] and begun["storage"] == []
    assert "image snap, snapshots of 2 volumes" in begun["diff"]["after"]
    play.stage("work", "h1", check_mode=True)
    finished = play.stage("finish", check_mode=True)
    assert finished["changed"] and finished["instances"][0]["note"] == "image snap"
    assert world.everything() == before


@pytest.mark.parametrize(
    ("hosts", "limit", "code"),
    [(["h1"], None, "DriverNotInitialized"), (["h1", "s1", "s2"], ["localhost", "h1"], "InvalidInput")],
)
def test_storage_hosts_that_plays_do_not_reach(
    world: BootWorld, hosts: list[str], limit: list[str] | None, code: str
) -> None:
    play = Playbook(world)
    play.hosts, play.limit = hosts, limit
    before = world.everything()
    with pytest.raises(errors.BootflowError) as caught:
        play.stage("begin")
    assert caught.value.code == code and world.everything() == before


def test_a_backup_is_refused(world: BootWorld) -> None:
    play = Playbook(world, "create_backup", backup_name="b", backup_type="daily", backup_rotation=1)
    with pytest.raises(errors.InvalidInput, match="not supported for volume-backed instances"):
        play.stage("begin")


def test_a_finish_without_its_settle_says_what_was_left_out(world: BootWorld) -> None:
    play = Playbook(world)
    begun = play.stage("begin")
    play.storage(begun["storage"])
    play.stage("work", "h1")
    with pytest.raises(errors.InvalidInput, match="settle"):
        play.stage("finish")
    play.stage("settle")
    assert play.stage("finish")["instances"][0]["error"] is None


# --- file systems that stand still --------------------------------------------------------------------------------------


def with_agent(world: BootWorld, **properties: str) -> None:
    """The image of the instance says that its guests have an agent."""
    with world.ledger.write() as tx:
        spec = tx.execute(tables.request_specs.select()).one().spec
        image = {**spec["image"], "properties": {"hw_qemu_guest_agent": "yes", **properties}}
        tx.execute(tables.request_specs.update().values(spec={**spec, "image": image}))


REQUIRED = {"os_require_quiesce": "yes"}


@pytest.mark.parametrize(("properties", "quiesce"), [({}, "try"), (REQUIRED, "require")])
def test_file_systems_stand_still_while_storage_hosts_work(
    world: BootWorld, properties: dict[str, str], quiesce: str
) -> None:
    with_agent(world, **properties)
    play = Playbook(world)
    begun = play.stage("begin")
    assert begun["freezing"] == ["h1"]
    play.stage("freeze", "h1")
    (name, arguments) = play.modules.pop()
    uuid = begun["uuids"][0]
    assert (name, arguments["state"], arguments["domains"]) == (
        "domain_quiesce",
        "frozen",
        [{"uuid": uuid, "quiesce": quiesce}],
    )
    play.storage(begun["storage"])
    play.stage("work", "h1")
    (name, arguments) = play.modules.pop()
    assert (name, arguments["state"], arguments["domains"]) == (
        "domain_quiesce",
        "thawed",
        [{"uuid": uuid, "token": "word"}],
    )
    play.stage("settle")
    assert play.stage("finish")["instances"][0]["error"] is None


UNSUPPORTED = errors.InstanceQuiesceNotSupported(instance_id="web", reason="no answer")
STUCK = errors.LibvirtError(reason="the file systems of guest web stand still")


@pytest.mark.parametrize(
    ("properties", "answers", "error"),
    [
        ({}, {"frozen": {"quiesced": False, "token": ""}}, None),
        ({}, {"thawed": {"quiesced": False}}, None),
        (REQUIRED, {"thawed": {"quiesced": False}}, "went on after 60 s"),
        (REQUIRED, {"frozen": {"error": UNSUPPORTED.as_dict()}}, "no answer"),
        ({}, {"thawed": {"error": STUCK.as_dict()}}, "stand still"),
    ],
    ids=["the agent cannot", "too late", "too late, required", "the agent cannot, required", "they do not go on"],
)
def test_agents_that_fail(
    world: BootWorld, properties: dict[str, str], answers: dict[str, t.Any], error: str | None
) -> None:
    with_agent(world, **properties)
    play = Playbook(world)
    play.answers = answers
    _settled, finished = play.run()
    if error is None:
        assert finished["instances"][0]["error"] is None and play.images() == [("snap", "active")]
        return
    assert error in finished["failed_items"][0]["error"]["message"]
    assert play.images() == [] and play.snapshots() == [] and world.pending_cleanups() == set()


def test_a_host_that_was_not_asked_to_have_them_stand_still(world: BootWorld) -> None:
    with_agent(world)
    play = Playbook(world)
    begun = play.stage("begin")
    play.storage(begun["storage"])
    play.stage("work", "h1")
    settled = play.stage("settle")
    assert settled["cleaning"]
    play.storage(settled["cleaning"])
    assert "stand still" in play.stage("finish")["failed_items"][0]["error"]["message"]


def test_an_instance_that_is_off_has_nothing_that_stands_still(world: BootWorld) -> None:
    with_agent(world, **REQUIRED)
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(vm_state="stopped"))
    play = Playbook(world)
    assert play.stage("begin")["freezing"] == []
