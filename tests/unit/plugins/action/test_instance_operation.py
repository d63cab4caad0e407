# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action instance_operation, all three phases on a real ledger, with hosts whose module answers as the real one does."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import instance_operation
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import history
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.stage_results import StageResults
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import (
    WorldPorts,
    action_of,
    leave_report,
    results_of,
    run_stage,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE, World, request

POWER = {
    "shutdown": states.SHUTDOWN,
    "running": states.RUNNING,
    "paused": states.POWER_PAUSED,
    "unpaused": states.RUNNING,
    "suspended": states.SHUTDOWN,
    "rebooted": states.RUNNING,
}


def filtered(arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The answer of a host that got its filters."""
    revision = arguments["document"]["revision"]
    return {"changed": True, "superseded": False, "revision": revision, "present": [], "diff": {}}


class Fleet:
    """Hosts with their guests, and the playbook operation.yml over them."""

    def __init__(self, world: World):
        self.world = world
        self.check_mode = False
        self.run = "o"
        self.hostvars: dict[str, dict[str, t.Any]] = {"localhost": {}, "h1": {}, "h2": {}}
        self.asked: list[tuple[str, str, dict[str, t.Any]]] = []
        self.away: set[str] = set()
        self.deaf: set[str] = set()
        self.gone: set[str] = set()
        self.broken = ""  # where an unexpected error occurs
        self.rewritten: list[dict[str, t.Any]] = []  # domains that were written anew and restarted
        self.starts: dict[str, dict[str, t.Any]] = {}  # uuid -> the outcome of that, where it is no good one
        self.no_network: set[str] = set()  # hosts
        self.shown: list[str] = []
        self.very_verbose: list[str] = []

    @property
    def results(self) -> StageResults:
        return results_of(WorldPorts(self.world, self.run), "instance_operation")

    def play(self, operation: str, **options: t.Any) -> dict[str, t.Any]:
        kind = {k: options[k] for k in ("reboot_type",) if k in options}
        begun = self.task("localhost", operation, "begin", **options)
        for host in begun["compute"]:
            self.task(host, operation, "work", **kind)
        done = self.task("localhost", operation, "finish", **kind)
        if not done.get("clearing"):
            return done
        for host in done["clearing"]:
            self.task(host, operation, "clear", **kind)
        return self.task("localhost", operation, "report", **kind)

    def task(self, host: str, operation: str, phase: str, **options: t.Any) -> dict[str, t.Any]:
        ports = WorldPorts(self.world, self.run, lambda name, arguments: self.answer(host, name, arguments))
        ports.display.display = lambda text, **_how: self.shown.append(text)
        ports.display.vvv = lambda text, **_how: self.very_verbose.append(text)
        hosts = {"hostvars": self.hostvars, "groups": {"bootflow_compute": ["h1", "h2"]}}
        variables = {**self.hostvars[host], **hosts, "inventory_hostname": host}
        options = {"operation": operation, "phase": phase, **options}
        return t.cast(
            "dict[str, t.Any]", run_stage(action_of(instance_operation, ports, variables, self.check_mode, **options))
        )

    def answer(self, host: str, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        good = {"changed": True, "error": None}
        if name == "virtual_network":
            bad = {"changed": False, "error": errors.NetworkError(reason="no bridge").as_dict()}
            return {"outcomes": {n["name"]: bad if host in self.no_network else good for n in arguments["networks"]}}
        if name == "port_filters":
            return filtered(arguments)
        if name == "domain":
            self.rewritten += arguments["domains"]
            running = {**good, "power_state": states.RUNNING}
            return {"outcomes": {d["uuid"]: self.starts.get(d["uuid"], running) for d in arguments["domains"]}}
        assert name == "domain_power"
        secret = "s3cret"

        def broken(_item: t.Any) -> dict[str, t.Any]:
            raise KeyError("power of %d letters" % len(secret))

        if self.broken == "controller":
            broken(None)
        if self.broken == "host":
            return {"outcomes": run_batch([(d["uuid"], d) for d in arguments["domains"]], broken)}
        if host in self.away:
            return {"unreachable": True, "msg": "no route"}
        found: dict[str, t.Any] = {}
        for domain in arguments["domains"]:
            self.asked.append((host, arguments["state"], {**arguments, **domain}))
            if domain["uuid"] in self.gone:
                found[domain["uuid"]] = {"changed": False, "error": errors.InstanceNotFound(instance_id="x").as_dict()}
            else:
                power = {"power_state": POWER[arguments["state"]], "forced": domain["uuid"] in self.deaf}
                if arguments["state"] == "rebooted":
                    power.update(forced=False, restarted=domain["uuid"] not in self.deaf)
                found[domain["uuid"]] = {**good, **power}
        return {"outcomes": found}


@pytest.fixture
def fleet(world: World) -> Fleet:
    """web-1 and web-2, one on h1 and one on h2."""
    world.report("h1", memory=1)
    world.report("h2", memory=1)
    world.accept(request("web", 2))
    for host in sorted({p.host for p in world.schedule().placed.values()}):
        world.build(host)
    return Fleet(world)


def test_hosts_of_what_seems_to_be_done_are_asked_and_check_mode_follows_what_they_say(fleet: Fleet) -> None:
    names = ["web-1", "web-2"]
    before = fleet.world.everything()
    asked = fleet.task("localhost", "start", "begin", names=names, ask=True)
    assert asked["ask"] == ["h1", "h2"] and asked["compute"] == [] and not asked["changed"]
    assert fleet.world.everything() == before, "nothing is begun"
    with pytest.raises(errors.InvalidInput, match="no instance is selected"):
        fleet.task("localhost", "start", "begin", ask=True)
    (row,) = (r for r in fleet.world.rows(tables.instances) if r.display_name == "web-1")
    domains = [{"uuid": row.uuid, "power_state": states.SHUTDOWN}]
    leave_report(
        WorldPorts(fleet.world, fleet.run), str(row.host), {"reported": True, "compute_node": {"domains": domains}}
    )
    fleet.check_mode = True
    fleet.world.time += 1
    before = fleet.world.everything()
    begun = fleet.task("localhost", "start", "begin", names=names)
    assert [i["name"] for i in begun["instances"]] == ["web-1"] and [i["name"] for i in begun["unchanged"]] == ["web-2"]
    assert fleet.world.everything() == before


@pytest.mark.parametrize("operation", ["stop", "reboot"])
def test_where_no_host_is_to_be_asked_it_begins(fleet: Fleet, operation: str) -> None:
    """A reboot is never done already."""
    begun = fleet.task("localhost", operation, "begin", names=["web-1", "web-2"], ask=True)
    assert (
        begun["ask"] == []
        and begun["compute"] == ["h1", "h2"]
        and {i["host"] for i in begun["instances"]} == {"h1", "h2"}
    )


def test_hosts_where_a_run_died_are_asked_first(fleet: Fleet) -> None:
    opening = {"open_ledger": True, "ask": True}
    assert fleet.task("localhost", "stop", "begin", names=["web-1"], **opening)["compute"]
    (host,) = {r.host for r in fleet.world.rows(tables.instances) if r.display_name == "web-1"}
    fleet.world.time += 10_000
    fleet.run = "p"
    for options in ({"names": ["web-2"]}, {}):
        begun = fleet.task("localhost", "stop", "begin", **options, **opening)
        assert begun["ask"] == [host] and begun["compute"] == [] and not begun["changed"] and not begun["diff"]
    assert fleet.task("localhost", "stop", "begin", names=["web-2"])["compute"]


def test_the_ledger_is_made_before_it_begins(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    class NewLedger(WorldPorts):
        def open_ledger(self, address: t.Any, **options: bool) -> t.Any:
            return database.open_ledger(address, **options)

    ports = NewLedger(fleet.world, "o")
    variables = {"hostvars": fleet.hostvars, "groups": {"bootflow_compute": ["h1"]}, "inventory_hostname": "localhost"}
    options = {"operation": "stop", "open_ledger": True, "ask": True, "hosts": ["h1"]}
    folder = tmp_path / "new"
    folder.mkdir()
    url = "sqlite:///%s/ledger.db" % folder

    def begin(check_mode: bool) -> t.Any:
        return run_stage(action_of(instance_operation, ports, variables, check_mode, ledger_url=url, **options))

    assert begin(check_mode=True)["changed"] and not list(folder.iterdir())
    assert ports.shown[0].lstrip().startswith("Would create the ledger %s, revision " % url)
    made = begin(check_mode=False)
    assert made["changed"] and made["instances"] == []
    assert [d["before"] for d in made["diff"]] == ["revision: None\n", ""]
    assert not begin(check_mode=False)["changed"]


def vm_states(world: World) -> dict[str, tuple[str, str | None]]:
    return {r.display_name: (r.vm_state, r.task_state) for r in world.rows(tables.instances)}


def test_stop_start_and_again(fleet: Fleet) -> None:
    stopped = fleet.play("stop", names=["web-1", "web-2"])
    assert stopped["changed"] and "failed" not in stopped
    assert sorted(host for host, _state, _arguments in fleet.asked) == ["h1", "h2"], "one task a host"
    assert vm_states(fleet.world) == dict.fromkeys(("web-1", "web-2"), (states.STOPPED, None))
    assert {(i["vm_state"], i["power_state"], i["error"]) for i in stopped["instances"]} == {("stopped", 4, None)}
    fleet.asked.clear()
    again = fleet.play("stop", names=["web-1", "web-2"])
    assert not again["changed"] and not again["instances"] and fleet.asked == []
    assert fleet.shown[-1].count("nothing to do") == 2
    assert fleet.play("start", project="default", all=True)["changed"]
    assert {state for _host, state, _arguments in fleet.asked} == {"running"}
    assert vm_states(fleet.world) == dict.fromkeys(("web-1", "web-2"), (states.ACTIVE, None))


@pytest.mark.parametrize(
    ("there", "on_host", "vm_state", "back", "asked"),
    [
        ("pause", "paused", states.PAUSED, "unpause", "unpaused"),
        ("suspend", "suspended", states.SUSPENDED, "resume", "running"),
    ],
)
def test_there_and_back(fleet: Fleet, there: str, on_host: str, vm_state: str, back: str, asked: str) -> None:
    names = ("web-1", "web-2")
    assert fleet.play(there, names=names)["changed"]
    assert [state for _host, state, _arguments in fleet.asked] == [on_host] * 2
    assert vm_states(fleet.world) == dict.fromkeys(names, (vm_state, None))
    assert not fleet.play(there, names=names)["changed"] and fleet.shown[-1].count("nothing to do") == 2
    fleet.asked.clear()
    assert fleet.play(back, names=names)["changed"]
    assert [state for _host, state, _arguments in fleet.asked] == [asked] * 2
    assert vm_states(fleet.world) == dict.fromkeys(names, (states.ACTIVE, None))


def test_check_mode_asks_the_hosts_and_writes_nothing(fleet: Fleet) -> None:
    fleet.check_mode = True
    before = fleet.world.everything()
    result = fleet.play("stop", names=["web-1", "web-2"])
    assert result["changed"] and len(fleet.asked) == 2
    assert "Would stop" in fleet.shown[-1] and fleet.world.everything() == before
    fleet.gone = {result["instances"][0]["uuid"]}
    result = fleet.play("stop", names=["web-1", "web-2"])
    assert result["changed"] and not result.get("failed") and "its domain is gone" in fleet.shown[-1]
    result = fleet.play("pause", names=["web-1", "web-2"])
    assert result["error_code"] == "OperationFailed" and [i["name"] for i in result["failed_items"]] == ["web-1"]
    assert fleet.world.everything() == before


def test_an_instance_whose_domain_is_gone_is_off(fleet: Fleet) -> None:
    """As to Nova. It is not started by a definition that nobody has."""
    rows = {r.display_name: r for r in fleet.world.rows(tables.instances)}
    fleet.gone = {rows["web-1"].uuid}
    result = fleet.play("stop", names=["web-1", "web-2"])
    assert not result.get("failed") and vm_states(fleet.world) == dict.fromkeys(("web-1", "web-2"), ("stopped", None))
    first, second = sorted(result["instances"], key=lambda i: i["name"])
    assert (first["power_state"], second["power_state"]) == (states.NOSTATE, states.SHUTDOWN)
    assert "bootflow_reboot_type: HARD" in first["note"] and first["note"] in fleet.shown[-1] and not second["note"]
    assert fleet.world.row(first["uuid"]).power_state == states.NOSTATE
    result = fleet.play("start", names=["web-1"])
    assert result["failed_items"][0]["error"]["code"] == "InstanceNotFound"
    assert fleet.world.state(first["uuid"])[:2] == ("stopped", None)


def test_where_nothing_could_begin_its_error_is_all_that_is_told(fleet: Fleet) -> None:
    """apply goes on then, and its end comes to the finish."""
    fleet.results.leave("begin", "localhost", {"failed": True})
    assert fleet.task("localhost", "stop", "finish")["instances"] == [] and fleet.shown == []


def test_one_fails_and_the_others_do_not(fleet: Fleet) -> None:
    (away,) = [r["host"] for r in fleet.task("localhost", "stop", "begin", names=["web-2"])["instances"]]
    fleet.away = {away}
    result = fleet.play("stop", names=["web-1", "web-2"])
    assert (result["failed"], result["changed"], result["error_code"], result["status"]) == (
        True, True, "OperationFailed", 503,
    )  # fmt: skip
    (item,) = result["failed_items"]
    assert (item["name"], item["host"], item["error"]["code"]) == ("web-2", away, "HostUnreachable")
    assert vm_states(fleet.world) == {"web-1": (states.STOPPED, None), "web-2": (states.ACTIVE, None)}


def test_a_host_that_returns_nothing(fleet: Fleet) -> None:
    """The result of an earlier operation of the run is not taken for its answer."""
    fleet.play("stop", names=["web-1"])
    fleet.task("localhost", "start", "begin", names=["web-1"])
    result = fleet.task("localhost", "start", "finish")
    assert "returned no result" in result["msg"]
    assert vm_states(fleet.world)["web-1"] == (states.STOPPED, None)


def test_a_guest_that_lost_its_power_is_told(fleet: Fleet) -> None:
    fleet.deaf = {i["uuid"] for i in fleet.task("localhost", "stop", "begin", names=["web-1"])["instances"]}
    result = fleet.play("stop", names=["web-1", "web-2"])
    assert {i["name"]: i["forced"] for i in result["instances"]} == {"web-1": True, "web-2": False}
    assert fleet.shown[-1].count("lost its power") == 1


def test_how_long_a_guest_has(fleet: Fleet) -> None:
    world = fleet.world
    world.report("h1", memory=9)
    for name, value in (("slow", "600"), ("odd", "soon"), ("plain", None)):
        properties = {} if value is None else {"os_shutdown_timeout": value}
        world.boot(name, image=IMAGE.__class__(**{**IMAGE.__dict__, "properties": properties}))
    fleet.hostvars["h1"]["bootflow_shutdown_timeout"] = "5"
    result = fleet.play("stop", names=["slow", "odd", "plain"])
    names = {i["uuid"]: i["name"] for i in result["instances"]}
    seconds = {names[a["uuid"]]: a["shutdown_timeout"] for _host, _state, a in fleet.asked}
    assert seconds == {"slow": 600, "odd": 5.0, "plain": 5.0}


@pytest.mark.parametrize("value", ["soon", "-1"])
def test_a_wrong_setting_fails_its_host_alone(fleet: Fleet, value: str) -> None:
    fleet.hostvars["h1"]["bootflow_shutdown_timeout"] = value
    result = fleet.play("stop", names=["web-1", "web-2"])
    (item,) = result["failed_items"]
    assert item["host"] == "h1" and "bootflow_shutdown_timeout" in result["msg"]


def test_an_unknown_operation(fleet: Fleet) -> None:
    with pytest.raises(errors.InvalidInput, match="operation explode does not exist") as caught:
        fleet.task("localhost", "explode", "begin")
    assert "stop" in caught.value.remedy


@pytest.mark.parametrize("where", ["controller", "host"])
@pytest.mark.parametrize("operation", ["stop", "start"])
def test_the_traceback_of_an_unexpected_error_is_in_the_journal(fleet: Fleet, operation: str, where: str) -> None:
    """People get a line; the frames, without values, are in the journal and at -vvv."""
    if operation == "start":
        fleet.play("stop", names=["web-1"])
    fleet.broken = where
    result = fleet.play(operation, names=["web-1"])
    (item,) = result["failed_items"]
    assert item["error"]["message"] == "KeyError: 'power of 6 letters'"
    for what in (result, fleet.hostvars, fleet.shown):
        assert ", in broken" not in str(what), "of what people and playbooks read"
    assert any(", in broken" in text for text in fleet.very_verbose)
    with fleet.world.ledger.read() as tx:
        (event,) = [e for e in history.events_of(tx, item["id"]) if e["event"] == operation and e["result"] == "Error"]
    assert event["finish_time"] and event["details"].startswith("KeyError: 'power of 6 letters'\n  File ")
    assert ", in broken" in event["details"] and "len(secret)" in event["details"] and "s3cret" not in event["details"]
    assert fleet.world.fault(item["id"]).message == "KeyError: 'power of 6 letters'"


def test_an_unexpected_error_in_check_mode_writes_nothing(fleet: Fleet) -> None:
    fleet.broken, fleet.check_mode = "host", True
    before = fleet.world.everything()
    assert fleet.play("stop", names=["web-1"])["failed"] and fleet.world.everything() == before


# --- reboot -------------------------------------------------------------------------------------------------------------


def uuid_of(fleet: Fleet, name: str) -> str:
    return next(str(r.uuid) for r in fleet.world.rows(tables.instances) if r.display_name == name)


def test_a_reboot_asks_the_guests_and_resets_the_one_that_is_deaf(fleet: Fleet) -> None:
    names = ("web-1", "web-2")
    fleet.deaf = {uuid_of(fleet, "web-2")}
    result = fleet.play("reboot", names=names)
    assert {(state, a["wait_soft_reboot_seconds"]) for _host, state, a in fleet.asked} == {("rebooted", 120.0)}
    (domain,) = fleet.rewritten
    assert domain["uuid"] == uuid_of(fleet, "web-2") and domain["restart"] is True and domain["state"] == "running"
    assert domain["uuid"] in domain["xml"] and "wait_console" not in domain
    assert {i["name"]: i["forced"] for i in result["instances"]} == {"web-1": False, "web-2": True}
    assert fleet.shown[-1].startswith("\nreboot:") and fleet.shown[-1].count("did not restart by itself") == 1
    assert vm_states(fleet.world) == dict.fromkeys(names, (states.ACTIVE, None))
    assert fleet.play("reboot", names=names)["changed"], "each time anew"


def test_a_hard_reboot_asks_nobody_and_starts_what_is_stopped(fleet: Fleet) -> None:
    fleet.play("stop", names=["web-1"])
    fleet.asked.clear()
    result = fleet.play("reboot", names=["web-1", "web-2"], reboot_type="HARD")
    assert fleet.asked == [] and len(fleet.rewritten) == 2 and all(d["restart"] for d in fleet.rewritten)
    assert {(i["vm_state"], i["power_state"], i["forced"]) for i in result["instances"]} == {("active", 1, False)}
    assert vm_states(fleet.world) == dict.fromkeys(("web-1", "web-2"), (states.ACTIVE, None))
    fleet.play("stop", names=["web-1"])
    with pytest.raises(errors.InstanceInvalidState, match="Cannot 'reboot' instance .* in vm_state stopped"):
        fleet.play("reboot", names=["web-1"])


@pytest.mark.parametrize(
    ("power_state", "vm_state"),
    [
        (states.SHUTDOWN, states.ERROR),
        (states.RUNNING, states.ACTIVE),
        (states.NOSTATE, states.ERROR),  # the domain is gone
        (None, states.ACTIVE),  # the host does not know
    ],
)
def test_a_reboot_that_fails_is_what_became_of_the_guest(fleet: Fleet, power_state: int | None, vm_state: str) -> None:
    uuid = uuid_of(fleet, "web-1")
    failed = errors.LibvirtError(reason="no such machine type").as_dict()
    known = {} if power_state is None else {"power_state": power_state}
    fleet.starts = {uuid: {"changed": True, "error": failed, **known}}
    result = fleet.play("reboot", names=["web-1", "web-2"], reboot_type="HARD")
    assert [i["name"] for i in result["failed_items"]] == ["web-1"]
    assert {i["name"]: i["vm_state"] for i in result["instances"]} == {"web-1": vm_state, "web-2": states.ACTIVE}
    assert vm_states(fleet.world)["web-1"] == (vm_state, None)
    fleet.starts.clear()
    assert "failed" not in fleet.play("reboot", names=["web-1"], reboot_type="HARD")
    assert vm_states(fleet.world)["web-1"] == (states.ACTIVE, None)


def test_a_guest_whose_network_is_not_there_is_not_reset(fleet: Fleet) -> None:
    (host,) = [i["host"] for i in fleet.play("pause", names=["web-1"])["instances"]]
    fleet.no_network = {host}
    result = fleet.play("reboot", names=["web-1"], reboot_type="HARD")
    assert "no bridge" in result["msg"] and fleet.rewritten == []
    assert vm_states(fleet.world)["web-1"] == (states.PAUSED, None), "nothing was done with it"


def test_what_restarted_by_itself_has_when_the_others_cannot_be_reset(fleet: Fleet) -> None:
    fleet.world.report("h1", memory=9)  # the other is full
    one, two = fleet.world.boot("one"), fleet.world.boot("two")
    fleet.deaf = {two}
    answer = fleet.answer
    fleet.answer = lambda host, name, arguments: (  # type: ignore[method-assign]
        answer(host, name, arguments)
        if name == "domain_power"
        else {"failed": True, "unreachable": True, "msg": "no route"}
    )
    result = fleet.play("reboot", uuids=[one, two])
    assert [i["id"] for i in result["failed_items"]] == [two]


def test_a_reboot_in_check_mode(fleet: Fleet) -> None:
    fleet.check_mode = True
    before = fleet.world.everything()
    for reboot_type in ("SOFT", "HARD", "soft", "Hard"):
        result = fleet.play("reboot", names=["web-1"], reboot_type=reboot_type)
        assert result["changed"] and "Would reboot" in fleet.shown[-1]
    assert len(fleet.rewritten) == 2 and fleet.world.everything() == before


def test_a_setting_that_all_hosts_have_and_does_not_fit_fails_before_anything_is_written(fleet: Fleet) -> None:
    everything = fleet.world.everything()
    fleet.hostvars["localhost"]["bootflow_shutdown_timeout"] = "abc"  # as -e gives it to all
    with pytest.raises(errors.InvalidRequest) as e:
        fleet.task("localhost", "stop", "begin", names=["web-1"])
    assert [error["path"] for error in e.value.errors] == ["bootflow_shutdown_timeout"]
    assert fleet.world.everything() == everything
    fleet.hostvars["localhost"]["bootflow_shutdown_timeout"] = "{{ seconds_of_this_host }}"  # only hosts have it
    assert fleet.task("localhost", "stop", "begin", names=["web-1"])["changed"]


def test_the_table_has_the_power_state_that_is_known(fleet: Fleet) -> None:
    """Not NOSTATE where the host says nothing of a guest; check mode tells both vm_states, as the power_state is that of the first."""
    fleet.away = {"h1", "h2"}
    fleet.play("stop", names=["web-1"])
    assert fleet.shown[-1].split()[-3:] == ["active", "RUNNING", "HostUnreachable"]
    fleet.away = set()
    fleet.check_mode = True
    fleet.play("pause", names=["web-1"])
    assert "active -> paused" in fleet.shown[-1]
    fleet.check_mode = False
    fleet.play("pause", names=["web-1"])
    assert "active -> paused" not in fleet.shown[-1]
    fleet.play("pause", names=["web-1"])
    assert fleet.shown[-1].split()[-5:] == ["paused", "PAUSED", "nothing", "to", "do"]
    (host,) = {r.host for r in fleet.world.rows(tables.instances) if r.display_name == "web-1"}
    gone = errors.HostUnreachable(host=host, reason="no route")
    leave_report(WorldPorts(fleet.world, fleet.run), host, {"reported": False, "error": gone.as_dict()})
    fleet.play("pause", names=["web-1"])
    assert fleet.shown[-1].rstrip().endswith("its host did not answer"), "nobody knows what its guest does"


@pytest.mark.parametrize("operation", ["rebuild", "stop"])
def test_a_limit_that_leaves_out_a_host_is_refused_before_anything_begins(fleet: Fleet, operation: str) -> None:
    """Ansible would skip the tasks there: a rebuild would be in error with its guest as it was."""
    fleet.results.leave("begin", "localhost", {"ask": ["h1"], "run_limit": ["localhost", "h1"]})
    rows = {r.host: r.display_name for r in fleet.world.rows(tables.instances)}
    before = fleet.world.everything()
    with pytest.raises(errors.InvalidInput, match="the limit of this run leaves out h2") as caught:
        fleet.task("localhost", operation, "begin", names=["web-1", "web-2"])
    assert "Add these hosts to the limit" in caught.value.remedy and fleet.world.everything() == before
    assert fleet.task("localhost", operation, "begin", names=[rows["h1"]])["compute"] == ["h1"]
