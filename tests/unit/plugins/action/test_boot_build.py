# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The builds of a round: handed to the tasks of hosts, built there, and written back, whatever happens in between."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import boot_accept, boot_build, boot_report, boot_schedule
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import power_states
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import history
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.networks import filter_marks
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.builds import build_work, handover
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import LedgerAction
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings import image_upload
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.statements import counted
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import node
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

HOSTS = ("h1", "h2", "h3")
IMAGE = {"name": "tiny", "disk_format": "qcow2", "allow_unverified": True, "url": "http://x.example/tiny.qcow2"}
STAGES = ("networking", "block_device_mapping", "spawning")
FULL = errors.DiskFull(host="h", path="/", reason="full").as_dict()


def _filtered(arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    revision = arguments["document"]["revision"]
    return {"changed": True, "superseded": False, "revision": revision, "present": [], "diff": {}}


class Boot:
    """A boot of ``count`` instances over three hosts, whose modules answer as told."""

    def __init__(self, world: World, count: int = 3, name: str = "web", **variables: t.Any):
        self.world = world
        self.modules: list[str] = []  # that ran
        self.task_states: list[str | None] = []  # of the first instance when each began
        self.watched = True
        self.has_files = True  # on the hosts
        self.answers: dict[str, t.Callable[[t.Mapping[str, t.Any]], dict[str, t.Any]]] = {}
        entry = {"name": name, "flavor": "small", "image": "tiny", "networks": ["net"], "count": count}
        everywhere = {
            "bootflow_flavors": [{"name": "small", "memory_mb": 1024, "vcpus": 1, "root_gb": 1}],
            "bootflow_images": [IMAGE],
            "bootflow_networks": [
                {"name": "net", "type": "bridge", "source": "br0", "subnets": [{"cidr": "192.0.2.0/24"}]}
            ],
            "bootflow_instances": [entry],
            "bootflow_notify_on_state_change": "vm_and_task_state",
            **variables,
        }
        hosts = dict.fromkeys(("localhost", *HOSTS), everywhere)
        groups = {"all": list(hosts), "bootflow_compute": list(HOSTS)}
        self.of = {h: {"inventory_hostname": h, "groups": groups, "hostvars": hosts, **everywhere} for h in hosts}
        for host in HOSTS:
            node(world, host, memory_mb=8192)
        self.uuids = self.task(boot_accept)["created"]

    def task(self, module: t.Any, host: str = "localhost", run: str = "a", **options: t.Any) -> dict[str, t.Any]:
        self.ports = WorldPorts(self.world, run, self.module)
        self.ports.has_files = self.has_files
        action = action_of(module, self.ports, self.of[host], **options)
        action._connection = type("Ssh", (), {"transport": "ssh"})
        return t.cast("dict[str, t.Any]", action.act())

    def module(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.modules.append(name)
        if self.watched:
            self.task_states.append(self.world.row(self.uuids[0]).task_state)
        if name in self.answers:
            return self.answers[name](arguments)
        items = next(arguments[key] for key in ("networks", "drives", "domains", "instances") if key in arguments)
        good = {"power_state": power_states.RUNNING, "error": None}
        return {"outcomes": {i.get("uuid") or i["name"]: good for i in items}, "seconds": 1.5}

    def schedule(self, number: int = 1) -> list[str]:
        return t.cast("list[str]", self.task(boot_schedule, round=number)["compute"])

    def refresh(self) -> dict[str, t.Any]:
        return self.task(boot_schedule, phase="refresh")

    def states(self) -> set[tuple[str, str | None]]:
        return {self.world.state(uuid)[:2] for uuid in self.uuids}

    def journal(self, uuid: str) -> list[tuple[str, str]]:
        with self.world.ledger.read() as tx:
            return [(e["event"], e["result"]) for e in history.events_of(tx, uuid)]


@pytest.mark.parametrize(
    ("properties", "setting", "kept"),
    [({}, {}, "pc"), ({}, {"bootflow_machine_type": "q35"}, "q35"), ({"hw_machine_type": "q35"}, {}, None)],
)
def test_an_instance_keeps_the_machine_type_of_its_boot(
    world: World, properties: dict[str, t.Any], setting: dict[str, t.Any], kept: str | None
) -> None:
    given = {"bootflow_images": [{**IMAGE, "properties": properties}], **setting}
    boot = Boot(world, **given)
    for host in boot.schedule():
        boot.task(boot_build, host)
    boot.refresh()
    assert boot.states() == {("active", None)}
    assert {world.row(uuid).machine_type for uuid in boot.uuids} == {kept}


@pytest.mark.parametrize("driver", ["noop", "nftables"])
def test_hosts_are_given_their_builds_and_the_controller_writes_what_they_did(
    world: World, monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    boot = Boot(world, bootflow_firewall_driver=driver)
    boot.answers["port_filters"] = _filtered
    hosts = boot.schedule()
    assert sorted(hosts) == sorted(HOSTS) and boot.states() == {("building", "networking")}

    def no_ledger(*_args: t.Any, **_options: bool) -> t.Any:
        raise AssertionError("the ledger is opened for a build that is done at once")

    with monkeypatch.context() as patched:
        patched.setattr(WorldPorts, "open_ledger", no_ledger)
        for host in hosts:
            assert len(boot.task(boot_build, host)["builds"]) == 1
    assert boot.states() == {("building", "networking")} and ("port_filters" in boot.modules) == (driver == "nftables")
    world.time += 10
    refreshed = boot.refresh()
    assert not refreshed["again"] and refreshed["given_back"] == refreshed["ask"] == []
    assert boot.states() == {("active", None)}
    with world.ledger.read() as tx:
        assert bool(filter_marks.due(tx)) == (driver == "noop")
    assert {world.row(u).power_state for u in boot.uuids} == {power_states.RUNNING}
    for uuid in boot.uuids:
        assert boot.journal(uuid) == [("schedule", "Success"), *((stage, "Success") for stage in STAGES)]
        mine = [n for n in world.rows(tables.notifications) if n.instance_uuid == uuid]
        updates = [n.payload for n in mine if n.event_type == "compute.instance.update"]
        assert [p["new_task_state"] for p in updates] == [None, None, *STAGES, None]
        assert [p["old_task_state"] for p in updates] == [None, "scheduling", None, *STAGES]
        assert [n.event_type for n in mine][-2:] == ["compute.instance.update", "compute.instance.create.end"]
        spans = {e.event: (e.start_time, e.finish_time) for e in world.rows(tables.instance_action_events)}
        assert all(begin <= end <= world.time for begin, end in spans.values())
    assert {a.finish_time for a in world.rows(tables.instance_actions)} == {world.time}


def test_a_host_that_was_given_no_builds_asks_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run may have taken over what the play of the round names it for."""
    boot = Boot(world, 1)
    (host,) = boot.schedule()

    def asked(*_args: t.Any, **_options: bool) -> t.Any:
        raise AssertionError("a host without builds opens the ledger, or reads the request")

    with monkeypatch.context() as patched:
        patched.setattr(WorldPorts, "open_ledger", asked)
        patched.setattr(LedgerAction, "_read_options", asked)
        for other in (h for h in HOSTS if h != host):
            assert boot.task(boot_build, other) == {"changed": False, "builds": [], "failed_builds": []}
    assert boot.modules == []
    assert len(boot.task(boot_build, host)["builds"]) == 1


def test_a_round_without_builds_gives_nothing_to_anybody(world: World) -> None:
    boot = Boot(world, 1)
    (host,) = boot.schedule()
    boot.task(boot_build, host)
    boot.refresh()
    assert boot.schedule(2) == []
    assert boot.task(boot_build, host)["builds"] == []


def test_the_statements_do_not_grow_with_hosts_and_builds(world: World) -> None:
    found = []
    for name, count in (("first", 1), ("one", 1), ("three", 3)):
        boot = Boot(world, count, name)
        with counted(world.ledger) as scheduling:
            hosts = boot.schedule()
        assert (len(hosts) > 1) == (count > 1)
        boot.watched = False
        with counted(world.ledger) as building:
            for host in hosts:
                boot.task(boot_build, host)
        assert building == []
        with counted(world.ledger) as writing:
            boot.refresh()
        found.append((len(scheduling), len(writing)))
        world.time += 1
    assert found[1] == found[2]  # the first round of a new ledger has one more


def test_outcomes_are_written_while_other_hosts_still_build(world: World) -> None:
    boot = Boot(world)
    first, *others = boot.schedule()
    folder = boot.ports.folder()
    boot.task(boot_build, first)
    assert boot.states() == {("building", "networking")}
    for host in others:
        old = os.stat(folder / handover.WRITTEN).st_mtime - handover.WRITTEN_EVERY
        os.utime(folder / handover.WRITTEN, (old, old))
        boot.task(boot_build, host)
    assert boot.states() == {("active", None)} and not list(folder.glob("*.ended"))


@pytest.fixture
def deleted_meanwhile(world: World) -> tuple[Boot, str]:
    """A boot of two, of which the first was deleted while its host built it, and that host."""
    boot = Boot(world, 2)
    hosts = boot.schedule()
    world.delete("d", uuids=boot.uuids[:1])
    host = world.row(boot.uuids[0]).host
    world.removed(host, boot.uuids[:1], "d")
    world.finish("d")
    for each in hosts:
        boot.task(boot_build, each)
    return boot, host


def test_a_build_that_is_deleted_meanwhile_is_removed_from_its_host(
    world: World, deleted_meanwhile: tuple[Boot, str]
) -> None:
    boot, host = deleted_meanwhile
    refreshed = boot.refresh()
    assert refreshed["ask"] == [host], "its report cleans it up"
    assert world.cleanups() == {(boot.uuids[0], host)}
    assert world.state(boot.uuids[1])[0] == "active"


def test_a_build_that_is_deleted_meanwhile_is_removed_before_an_early_report(
    world: World, deleted_meanwhile: tuple[Boot, str]
) -> None:
    boot, host = deleted_meanwhile
    early = boot.task(boot_report, uuids=boot.uuids[1:], phase="report_if_finished")
    assert early["unfinished"]
    assert [boot.refresh()["ask"] for _turn in range(2)] == [[host], []], "the host is named once"
    assert world.state(boot.uuids[1])[0] == "active"


def test_what_waits_is_told_to_the_ledger_stage_by_stage(world: World) -> None:
    """The image is not on the host: fetching it takes its time, and nobody is to see the instance in networking meanwhile."""
    boot = Boot(world, 1)
    (host,) = boot.schedule()
    calls: list[bool] = []

    def disks(arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        calls.append(arguments.get("fetch", True))
        pending = [] if calls[-1] else ["image"]
        return {"outcomes": {i["uuid"]: {"error": None, "pending": pending} for i in arguments["instances"]}}

    boot.answers["instance_disks"] = disks
    (build,) = boot.task(boot_build, host)["builds"]
    assert calls == [False, True]
    assert boot.modules.count("virtual_network") == 2 and boot.modules[-1] == "domain"
    assert boot.task_states == ["networking"] * 2 + ["block_device_mapping"] * (len(boot.modules) - 2)
    boot.refresh()
    assert world.state(build["uuid"])[:2] == ("active", None)
    assert boot.journal(build["uuid"]) == [("schedule", "Success"), *((stage, "Success") for stage in STAGES)]


def test_an_image_that_is_not_on_the_host_is_not_looked_for_twice(world: World) -> None:
    """The look at the host at the beginning tells which builds lack theirs; the others are made meanwhile."""
    boot = Boot(world, 1)
    (host,) = boot.schedule()
    boot.has_files = False
    calls: list[bool] = []

    def disks(arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        calls.append(arguments.get("fetch", True))
        assert all(i["made_at"] > 0 for i in arguments["instances"]), "no cleanup that was due before removes them"
        return {"outcomes": {i["uuid"]: {"error": None, "pending": []} for i in arguments["instances"]}}

    boot.answers["instance_disks"] = disks
    (build,) = boot.task(boot_build, host)["builds"]
    assert calls == [True] and boot.modules.count("virtual_network") == 1
    assert boot.task_states == ["block_device_mapping"] * len(boot.modules)
    boot.refresh()
    assert world.state(build["uuid"])[:2] == ("active", None)
    assert boot.journal(build["uuid"]) == [("schedule", "Success"), *((stage, "Success") for stage in STAGES)]


@pytest.mark.parametrize(
    ("size", "state"), [(image_upload.SMALL, "networking"), (image_upload.SMALL + 1, "block_device_mapping")]
)
def test_a_small_file_of_the_controller_is_copied_without_a_stage_of_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, size: int, state: str
) -> None:
    """It is there before anybody could look at the instance; the ledger is not opened for it."""
    (tmp_path / "tiny").touch()
    os.truncate(tmp_path / "tiny", size)
    image = {"name": "tiny", "disk_format": "raw", "allow_unverified": True, "path": str(tmp_path / "tiny")}
    boot = Boot(world, 1, bootflow_images=[image])
    (host,) = boot.schedule()
    boot.has_files = False
    copied: list[str] = []
    monkeypatch.setattr(image_upload, "upload", lambda _action, its: copied.append(its.path) or "/tmp/copy")
    monkeypatch.setattr(image_upload, "remove_uploads", lambda _action: copied.append("removed"))
    opened: list[bool] = []
    monkeypatch.setattr(WorldPorts, "open_ledger", _noted(WorldPorts.open_ledger, opened))
    (build,) = boot.task(boot_build, host)["builds"]
    assert bool(opened) == (state != "networking")
    assert copied == [image["path"], "removed"] and boot.task_states == [state] * len(boot.modules)
    boot.refresh()
    assert world.state(build["uuid"])[:2] == ("active", None)
    assert boot.journal(build["uuid"]) == [("schedule", "Success"), *((stage, "Success") for stage in STAGES)]


def test_copies_of_images_that_the_module_removed_need_no_session(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "tiny").touch()
    image = {"name": "tiny", "disk_format": "raw", "allow_unverified": True, "path": str(tmp_path / "tiny")}
    boot = Boot(world, 1, bootflow_images=[image])
    (host,) = boot.schedule()
    boot.has_files = False
    told: list[t.Any] = []
    monkeypatch.setattr(image_upload, "upload", lambda _action, _its: "/tmp/copy")
    monkeypatch.setattr(image_upload, "remove_uploads", lambda _action: None)
    monkeypatch.setattr(build_work, "forget_uploads", lambda _action: told.append("removed"))
    whole = WorldPorts.run_module

    def run_module(ports: WorldPorts, name: str, arguments: t.Mapping[str, t.Any], *more: t.Any) -> dict[str, t.Any]:
        told.append((arguments["uploads"], arguments["remove_uploads"]))
        return {**whole(ports, name, arguments, *more), "uploads_removed": arguments["remove_uploads"]}

    monkeypatch.setattr(WorldPorts, "run_module", run_module)
    assert boot.task(boot_build, host)["builds"]
    ((uploads, remove), removed) = told
    assert (list(uploads.values()), remove, removed) == (["/tmp/copy"], True, "removed")


def _noted(function: t.Callable[..., t.Any], calls: list[bool]) -> t.Callable[..., t.Any]:
    def noted(*arguments: t.Any, **named: t.Any) -> t.Any:
        calls.append(True)
        return function(*arguments, **named)

    return noted


def test_a_guest_that_is_waited_for_is_seen_spawning(world: World) -> None:
    boot = Boot(world, 1, bootflow_wait_console="login:")
    (host,) = boot.schedule()
    assert boot.task(boot_build, host)["builds"]
    assert (boot.modules[0], boot.modules[-1]) == ("virtual_network", "domain")
    assert (boot.task_states[0], boot.task_states[1], boot.task_states[-1]) == STAGES
    boot.refresh()
    assert boot.states() == {("active", None)}


@pytest.mark.parametrize(
    "module, stage", [("virtual_network", 0), ("instance_disks", 1), ("config_drive", 2), ("domain", 2)]
)
def test_a_part_that_fails_is_journalled_as_its_stage(world: World, module: str, stage: int) -> None:
    boot = Boot(world, 1, bootflow_force_config_drive=True)
    (host,) = boot.schedule()

    def fail(arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        items = next(arguments[key] for key in ("networks", "drives", "domains", "instances") if key in arguments)
        return {"outcomes": {i.get("uuid") or i["name"]: {"error": FULL} for i in items}}

    boot.answers[module] = fail
    result = boot.task(boot_build, host)
    assert [(f["outcome"], f["error"]["code"]) for f in result["failed_builds"]] == [("rescheduled", "DiskFull")]
    assert boot.modules[-1] == "instance_cleanup" and result["builds"] == []
    passed = [(name, "Success") for name in STAGES[:stage]]
    assert boot.journal(boot.uuids[0]) == [("schedule", "Success"), *passed, (STAGES[stage], "Error")]
    assert world.state(boot.uuids[0]) == ("building", "scheduling", None)
    assert boot.refresh()["again"]
    boot.answers.clear()
    (other,) = boot.schedule(2)
    assert other != host and boot.task(boot_build, other)["builds"]
    assert boot.states() == {("active", None)}, "after the first round a task writes at once"


def test_one_failed_build_leaves_its_neighbours(world: World) -> None:
    boot = Boot(world, 2, bootflow_hosts=["h1"])
    (host,) = boot.schedule()
    good, bad = boot.uuids
    outcomes = {good: {"power_state": 1, "error": None}, bad: {"error": FULL}}
    boot.answers["domain"] = lambda _arguments: {"outcomes": outcomes}
    result = boot.task(boot_build, host)
    assert [b["uuid"] for b in result["builds"]] == [good]
    assert [b["uuid"] for b in result["failed_builds"]] == [bad]
    assert world.state(good) == ("active", None, "h1") and world.state(bad)[0] == "building"


def test_a_host_whose_task_never_ran(world: World) -> None:
    """Its builds are given back, and what it was given is void: another round's builds are not those."""
    boot = Boot(world, 1)
    (host,) = boot.schedule()
    refreshed = boot.refresh()
    assert refreshed["given_back"] == boot.uuids and refreshed["again"]
    assert boot.schedule(2) != [host]
    before = len(boot.modules)
    assert boot.task(boot_build, host)["builds"] == [] and len(boot.modules) == before


def test_outcomes_of_the_last_round_are_written_by_the_report(world: World) -> None:
    boot = Boot(world, 2)
    for host in boot.schedule():
        boot.task(boot_build, host)
    result = boot.task(boot_report, uuids=boot.uuids)
    assert not result.get("failed") and {i["vm_state"] for i in result["instances"]} == {"active"}


def test_a_task_without_the_controllers_goes_to_the_ledger(world: World) -> None:
    """As where somebody runs the module in a playbook of his own, or a run goes on after another died."""
    boot = Boot(world, 1)
    (host,) = boot.schedule()
    world.time += 10_000
    assert boot.task(boot_accept, run="b")["resumed"] == boot.uuids
    (build,) = boot.task(boot_build, host, run="b")["builds"]
    assert world.state(build["uuid"]) == ("active", None, host)
    boot.task(boot_build, host)  # of the run that is dead: it was given the build, and has lost it
    boot.task(boot_schedule, phase="refresh")
    assert world.state(build["uuid"]) == ("active", None, host) and world.cleanups() == set()


def test_a_domain_that_got_another_name(world: World) -> None:
    boot = Boot(world, 1)
    (host,) = boot.schedule()
    named = {"power_state": 1, "error": None, "name": "web-taken"}
    boot.answers["domain"] = lambda _arguments: {"outcomes": {boot.uuids[0]: named}}
    boot.task(boot_build, host)
    boot.refresh()
    assert world.row(boot.uuids[0]).domain_name == "web-taken"
