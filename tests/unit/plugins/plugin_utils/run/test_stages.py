# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine of stages, with an action of two hosts."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import instance_live_migrate
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.verdicts.answer import is_silence
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import history
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.stages import Failed, Result, Stages
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

ITEMS = [{"uuid": "u1", "name": "one", "host": "h1"}, {"uuid": "u2", "name": "two", "host": "h2"}]


class Looking(Stages):
    called, event = "look at", "look"
    answered_by = {"look": "host"}

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        return {"begin": lambda: {"instances": ITEMS}}

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        return {"look": lambda host: {"outcomes": {i["uuid"]: {"seen": host} for i in self.items_on(host, "host")}}}


class Rehearsing(Looking):
    rehearses_on_hosts = True


class Playbook:
    def __init__(self, world: World, stages: type[Stages] = Looking):
        self.world, self.stages, self.check_mode = world, stages, False
        self.ports = WorldPorts(world, "o")
        self.hostvars: dict[str, dict[str, t.Any]] = {h: {} for h in ("localhost", "h1", "h2")}

    def of(self, stage: str, host: str = "localhost") -> Stages:
        variables = {"hostvars": self.hostvars, "groups": {"all": ["h1", "h2"]}, "inventory_hostname": host}
        action = action_of(instance_live_migrate, self.ports, variables, self.check_mode)
        action.options["phase"] = stage
        return self.stages(action, "look_at")

    def run(self, stage: str, host: str = "localhost") -> Result:
        return self.of(stage, host).run()

    def change(self, stage: str, host: str, **changed: t.Any) -> None:
        """Change the result that a stage left."""
        results = self.of("finish").results
        results.leave(stage, host, {**(results.read(stage, host) or {}), **changed})


@pytest.fixture
def playbook(world: World) -> Playbook:
    found = Playbook(world)
    found.run("begin")
    return found


def test_hosts_answer_for_their_instances(playbook: Playbook) -> None:
    done = playbook.run("look", "h1")
    assert done == {"changed": True}, "what later stages read is no result of the task"
    left = playbook.of("finish").result("look", "h1")
    assert left == {"phase": "look", "attempt": 1, "outcomes": {"u1": {"seen": "h1"}}}
    answers = playbook.of("finish").answers("look")
    assert answers["u1"] == {"seen": "h1"}
    assert is_silence(answers["u2"]) and answers["u2"]["error"]["code"] == "HostUnreachable"
    assert "h2" in answers["u2"]["error"]["message"]


@pytest.mark.parametrize("changed", [{"phase": "other"}, {"attempt": 2}, {"outcomes": {}}, {"outcomes": None}])
def test_the_result_of_another_stage_or_round_is_no_answer(playbook: Playbook, changed: dict[str, t.Any]) -> None:
    playbook.run("look", "h1")
    playbook.change("look", "h1", **changed)
    assert is_silence(playbook.of("finish").answers("look")["u1"])


def test_the_round_is_that_of_the_beginning(playbook: Playbook) -> None:
    playbook.run("look", "h1")
    playbook.change("begin", "localhost", attempt=2)
    assert is_silence(playbook.of("finish").answers("look")["u1"])
    playbook.run("look", "h1")
    assert not is_silence(playbook.of("finish").answers("look")["u1"])


@pytest.mark.parametrize(("stages", "skips"), [(Looking, True), (Rehearsing, False)])
def test_hosts_in_check_mode(world: World, stages: type[Stages], skips: bool) -> None:
    playbook = Playbook(world, stages)
    playbook.run("begin")
    playbook.check_mode = True
    assert playbook.run("look", "h1").get("skipped", False) is skips


def failing(error: Exception) -> t.Callable[[], tuple[dict[str, t.Any], Failed]]:
    def work() -> tuple[dict[str, t.Any], Failed]:
        raise error

    return work


def test_instances_fail_and_the_play_does_not(playbook: Playbook) -> None:
    stages = playbook.of("look", "h1")
    known = errors.LibvirtError(reason="x")
    assert stages.guarded(["u1"], failing(known)) == {"u1": {"error": known.as_dict()}}
    done = stages.guarded(["u1", "u2"], lambda: ({"u1": {"a": 1}, "u2": {"b": 2}}, {"u2": known}))
    assert done == {"u1": {"a": 1}, "u2": {"b": 2, "error": known.as_dict()}}
    assert stages.guarded([], failing(known)) == {}, "there is no work without instances"


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize("event", ["look", ""])
def test_the_traceback_of_an_unexpected_error_is_in_the_journal(world: World, event: str, check_mode: bool) -> None:
    world.report("h1")
    uuid = world.boot()
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context("o"))
        history.start_actions(tx, [uuid], "look", "req", "default", "ann")
        history.start_events_on(tx, {uuid: "h1"}, "look")
    playbook = Playbook(world)
    playbook.check_mode = check_mode
    stages = playbook.of("look", "h1")
    stages.event = event
    done = stages.guarded([uuid], failing(ZeroDivisionError("x")))
    assert done[uuid]["error"]["code"] == "RemoteError" and "ZeroDivisionError" in done[uuid]["error"]["message"]
    details = [str(e.details) for e in world.rows(tables.instance_action_events) if e.event == "look"]
    assert ["raise error" in each for each in details] == [bool(event) and not check_mode]


def test_the_table(playbook: Playbook) -> None:
    stages = playbook.of("finish")
    stages.table(("INSTANCE",), [("one",)], ["below"])
    stages.table(("INSTANCE",), [])
    assert [text.split() for text in playbook.ports.shown] == [
        ["look", "at:", "INSTANCE", "--------", "one", "below"],
        "look at: no instance is selected.".split(),
    ]
    playbook.ports.shown.clear()
    stages.options["print_table"] = False
    stages.table(("INSTANCE",), [("one",)])
    stages.options["print_table"] = True
    playbook.change("begin", "localhost", failed=True)
    stages = playbook.of("finish")
    stages.table(("INSTANCE",), [])
    assert playbook.ports.shown == [], "nobody wants it, or the error was told"
    playbook.check_mode = True
    playbook.of("finish").table(("INSTANCE",), [("one",)])
    assert playbook.ports.shown[0].strip().startswith("Would look at (nothing is touched):")


def test_the_last_result(playbook: Playbook) -> None:
    stages, error = playbook.of("finish"), errors.LibvirtError(reason="x").as_dict()
    good, bad = {**ITEMS[0], "error": None}, {**ITEMS[1], "error": error}
    assert stages.finish([good]) == {"changed": True, "instances": [good]}
    done = stages.finish([good, bad], [good])
    assert done["failed"] and done["changed"] and done["instances"] == [good]
    assert [(i["name"], i["host"], i["error"]["code"]) for i in done["failed_items"]] == [("two", "h2", "LibvirtError")]
    assert not stages.finish([bad])["changed"] and not stages.finish([good], changed=False)["changed"]


def test_a_token_is_of_the_run_and_of_one_operation(playbook: Playbook) -> None:
    first, second = playbook.of("look"), playbook.of("look")
    assert first.token("u1") == second.token("u1") != first.token("u2")
    second.called = "other"
    assert first.token("u1") != second.token("u1")


def test_a_stage_whose_task_was_left_out_is_named(world: World) -> None:
    """As with --start-at-task: nothing is known of the run."""
    playbook = Playbook(world)
    for stage, host in (("look", "h1"), ("finish", "localhost")):
        with pytest.raises(
            errors.InvalidInput, match="The stage begin of look_at has no result in this run"
        ) as missing:
            playbook.of(stage, host).items()
        assert "--start-at-task" in missing.value.remedy
    playbook.run("begin")
    with pytest.raises(errors.InvalidInput, match="The stage switch of look_at"):
        playbook.of("finish").result("switch")
    assert playbook.of("finish").result("look", "h2") == {}, "a host may be silent"


def test_what_fails_at_its_beginning_leaves_nothing_of_an_earlier_operation(playbook: Playbook) -> None:
    playbook.run("look", "h1")
    stages = playbook.of("begin")

    def refuse() -> Result:
        raise errors.Conflict(message="x")

    with pytest.raises(errors.Conflict):
        stages.results.begin("begin", refuse)
    after = playbook.of("finish")
    assert after.begin_failed() and after.items() == {} and after.result("look", "h1") == {}
    assert after.result("switch") == {}, "the playbook continued without it"


def test_a_run_does_not_see_the_results_of_another_one(playbook: Playbook) -> None:
    other = Playbook(playbook.world)
    other.ports.of_run = "other"
    with pytest.raises(errors.InvalidInput):
        other.of("finish").items()
    assert playbook.ports.folder().stat().st_mode & 0o777 == 0o700
