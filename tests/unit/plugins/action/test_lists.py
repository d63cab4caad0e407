# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What list, show, hosts, host, backup and purge print and return."""

from __future__ import annotations

import importlib
import re
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible import constants

from ansible_collections.bootflow.compute.plugins.action import (
    boot_report,
    compute_host_state,
    hypervisor_info,
    instance_info,
    ledger,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.times import duration
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import cleanups, history, nodes
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.tables import history_table, table, whole
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import NET, World, network, subnet

INVENTORY = {"groups": {"bootflow_compute": ["h1", "h2", "h3"]}}
CHANGE = {"old_state": "building", "state": "active", "old_task_state": "spawning", "new_task_state": None}
TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z$")


def run(world: World, module: t.Any, check_mode: bool = False, **options: t.Any) -> tuple[dict[str, t.Any], str]:
    ports = WorldPorts(world, "l")
    result = action_of(module, ports, INVENTORY, check_mode, **options).act()
    return result, "\n".join(ports.shown)


def transact(world: World, function: t.Any, *arguments: t.Any) -> None:
    with world.ledger.write() as tx:
        function(tx.for_run(world.context()), *arguments)


def floats_of_times(value: t.Any, path: str = "") -> list[str]:
    """Paths of moments that are not ISO 8601."""
    if isinstance(value, dict):
        found = [
            path + "." + k
            for k, v in value.items()
            if k.endswith(("_at", "_time")) and v is not None and not TIME.match(str(v))
        ]
        return found + [p for k, v in value.items() for p in floats_of_times(v, "%s.%s" % (path, k))]
    if isinstance(value, list):
        return [p for i, v in enumerate(value) for p in floats_of_times(v, "%s[%d]" % (path, i))]
    return []


def test_hosts_with_state_room_and_problems(world: World) -> None:
    world.report("h1", memory=4, availability_zone="rack-a", ram_allocation_ratio=1.5)
    world.boot()
    world.time += 300
    world.report("h2")
    transact(world, nodes.record_unreachable, "h2", "no route to host")
    transact(world, cleanups.add, cleanups.Due("h1", "0" * 36, "instance-7", "away"))
    never = (
        "the host never reported (run bootflow.compute.heartbeat to ask the host, and to see why it does not answer)"
    )
    result, shown = run(world, hypervisor_info, print_table=True)
    first, second, third = result["hypervisors"]
    assert (first["host"], first["state"], first["status"], first["availability_zone"]) == (
        "h1", "up", "enabled", "rack-a",
    )  # fmt: skip
    assert (first["memory_mb"], first["memory_mb_used"], first["memory_mb_free"]) == (4096, 1024, 4096 * 1.5 - 1024)
    assert (first["vcpus"], first["vcpus_free"], first["local_gb_free"]) == (500, 7999, 3999)
    assert (first["running_vms"], first["report_age"]) == (1, 300) and TIME.match(first["reported_at"])
    assert first["problems"] == ["leftovers have to be removed: instance-7"]
    assert (second["state"], second["problems"]) == ("down", ["no route to host"])
    assert (third["host"], third["state"], third["problems"]) == (
        "h3",
        "down",
        [never],
    )
    assert "h1 up rack-a 1 7999/500 x16 5120/4096 x1.5 3999/4000 5 min ago -" in [
        " ".join(line.split()) for line in shown.splitlines()
    ]
    assert "xN: overcommitted" in shown and " x" not in next(
        line for line in shown.splitlines() if line.startswith("h3")
    )
    assert "  h3: the host never reported" in shown
    assert [v["state_known"] for v in (first, second, third)] == [True, True, False]
    assert [line.split()[1] for line in shown.splitlines() if line[:2] in ("h1", "h2", "h3")] == [
        "up",
        "down",
        "unknown",
    ]


def test_a_machine_with_two_names_in_the_inventory_is_a_problem(world: World) -> None:
    """What it has is given out for each."""
    for host, node, uuid in (("h1", "kvm1", "u1"), ("h2", "kvm1", "u1"), ("h3", "kvm3", "u1"), ("h4", "kvm1", "")):
        world.report(host, node=node, host_uuid=uuid)
    views = {v["host"]: v["problems"] for v in run(world, hypervisor_info)[0]["hypervisors"]}
    assert "the same machine as h2" in views["h1"][0] and "the same machine as h1" in views["h2"][0]
    assert not [p for h in ("h3", "h4") for p in views[h] if "machine" in p]


def test_guests_of_another_ledger_are_a_problem_of_their_host(world: World) -> None:
    """No claim counts what they use."""
    web = {"uuid": "0" * 36, "name": "web", "power_state": 1, "memory_mb": 512, "vcpus": 2, "disk_gb": 3}
    for host, owner in (("h1", "another"), ("h2", world.ledger.id), ("h3", "")):
        facts = {"hypervisor_hostname": host, "memory_mb": 4096, "local_gb": 40, "vcpus": 4}
        transact(world, nodes.record_report, host, {**facts, "domains": [{**web, "ledger": owner}] * 2}, {})
    views = {v["host"]: v["problems"] for v in run(world, hypervisor_info)[0]["hypervisors"]}
    assert views["h1"] == [
        "guests of ledger another: 2; no claim counts their memory (1024 MiB), vCPUs (4) and disks (6 GiB)"
    ]
    assert not views["h2"] and not views["h3"]


def test_hosts_that_people_stopped_and_hosts_that_went_silent(world: World) -> None:
    for host in ("h1", "h2", "h4"):
        world.report(host)
    _result, shown = run(world, compute_host_state, hosts=["h1"], state="disabled", reason="more memory")
    assert "h1 is disabled (more memory)" in shown
    _result, shown = run(world, compute_host_state, hosts=["h1", "h2"], state="disabled", reason="more memory")
    assert "h1 is disabled (more memory), as before" in shown and "h2 is disabled" in shown
    _result, shown = run(world, compute_host_state, True, hosts=["h4"], state="forced_down")
    assert "h4 would be forced down" in shown
    run(world, compute_host_state, hosts=["h2"], state="forced_down", reason="smoke")
    world.time += 1000
    result, shown = run(world, hypervisor_info, print_table=True)
    said = {v["host"]: (v["state"], v["status"], v["problems"]) for v in result["hypervisors"]}
    old = "the last report is 16 min old, more than 15 min"
    aged = "not asked for 16 min, so its state is unknown"
    assert said["h1"][:2] == ("down", "disabled") and [p[: len(aged)] for p in said["h1"][2]] == [aged]
    assert said["h2"] == ("down", "disabled", ["forced down: smoke", old])
    assert said["h4"][:2] == ("down", "enabled") and "run bootflow.compute.heartbeat" in said["h4"][2][0]
    assert said["h4"][2][1:] == ["not among the compute hosts of the inventory"]
    states = {line.split()[0]: line.split("  ")[1:] for line in shown.splitlines() if line[:1] == "h"}
    assert [" ".join(states[host]).split()[:2] for host in ("h1", "h2", "h4")] == [
        ["unknown,", "disabled"],
        ["down,", "disabled"],
        ["unknown", "nova"],
    ]
    assert "more memory" in shown
    ports = WorldPorts(world, "w")
    action_of(compute_host_state, ports, {}, hosts=["h1", "h2"], state="enabled").act()
    assert ports.warnings == [
        "h2 stays down, because it is forced down. Run the playbook with bootflow_host_state: up to end that."
    ]
    (only,) = run(world, hypervisor_info, hosts=["h1"])[0]["hypervisors"]
    assert only["host"] == "h1"
    with pytest.raises(errors.ComputeHostNotFound, match="h9"):
        run(world, hypervisor_info, hosts=["h9"])


def test_a_list_of_instances(world: World) -> None:
    world.know(network(2, subnet(2), subnet(3, cidr="fd00::/64", pool=("fd00::10", "fd00::20"))))
    world.report("h1")
    world.boot("web", networks=("net-1", "net-2"))
    world.boot("huge", until="accepted", run="b", flavor=Flavor("huge", memory_mb=9999, vcpus=1, root_gb=1))
    world.schedule("b")
    world.time += 7200
    result, shown = run(world, instance_info, print_table=True, events=True)
    huge, web = sorted(result["instances"], key=lambda v: v["name"])
    assert [(a["network"], a["ip_address"], a["prefix"], a["version"]) for a in web["addresses"]] == [
        (NET.name, "10.0.1.10", 24, 4),
        ("net-2", "10.0.2.10", 24, 4),
        ("net-2", "fd00::10", 64, 6),
    ]
    assert [a["mac_address"] for a in web["addresses"]] == [
        p["mac_address"] for p in web["ports"] for _f in p["fixed_ips"]
    ]
    assert (web["age"], floats_of_times(result["instances"])) == (7200, [])
    row = next(line for line in shown.splitlines() if line.startswith("web "))
    for part in ("active", "RUNNING", "h1", "small", "cirros", "net-1=10.0.1.10; net-2=10.0.2.10, fd00::10", "2 h"):
        assert part in row
    assert "Faults:" in shown and "  huge: NoValidHost: " in shown and huge["fault"]["code"] == "NoValidHost"
    assert "Did you mean default?" in run(world, instance_info, print_table=True, project="Default")[1]
    shown = run(world, instance_info, print_table=True, names=["WEB", "huge"])[1]
    assert "No instance is called WEB." in shown and "Did you mean web? The list of instances has: huge, web." in shown
    result, shown = run(world, instance_info, print_table=True, host="h1,h7")
    assert [v["name"] for v in result["instances"]] == ["web"] and "No instance is on h7." in shown
    assert run(world, instance_info, print_table=True, host=["h7"])[1].strip() == "No instance is on h7."
    assert "Did you mean" not in run(world, instance_info, print_table=True, names=["web"], host="h1")[1]
    assert "Did you mean" not in run(world, instance_info, print_table=True, names=["huge"], host="h1")[1]


def test_one_instance_whole(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", description="the shop")
    for which in ({"names": ["web"]}, {"uuids": [uuid]}):
        result, shown = run(world, instance_info, details=True, print_table=True, **which)
        (web,) = result["instances"]
        assert web["flavor_details"]["memory_mb"] == 1024 and web["disks"] and web["events"]
        assert floats_of_times(web) == []
        for line in (
            "name: web",
            "description: the shop",
            "  memory_mb: 1024",
            "machine_type: pc",
            "- event: schedule",
            "vm_state: active",
        ):
            assert line in shown
    with pytest.raises(errors.InvalidInput, match="no instance is selected"):
        run(world, instance_info, details=True)


def test_backup_and_purge_print_what_they_did(world: World, tmp_path: Path) -> None:
    if world.url.startswith("sqlite"):
        copy = tmp_path / "copy.db"
        assert "Would copy the ledger sqlite:///" in run(world, ledger, True, state="backup", dest=str(copy))[1]
        result, shown = run(world, ledger, state="backup", dest=str(copy))
        assert "to %s, %d bytes." % (copy, copy.stat().st_size) in shown and result["size"] == copy.stat().st_size
    assert run(world, ledger, state="purged", print_table=False)[1] == ""
    assert "Nothing is purged" in run(world, ledger, state="purged", history_retention_days=0)[1]
    assert " what is older than 20" in run(world, ledger, state="purged")[1]
    assert " what is older than 20" in run(world, ledger, state="purged", history_retention_days=1)[1]


def test_durations() -> None:
    assert [duration(s) for s in (0, 119, 120, 7199, 7200, 172800)] == [
        "0 s",
        "119 s",
        "2 min",
        "119 min",
        "2 h",
        "2 d",
    ]


@pytest.mark.parametrize("callback", ["ansible.posix.json", "jsonl", "null"])
def test_tables_leave_stdout_to_a_machine_that_reads_it(world: World, monkeypatch: t.Any, callback: str) -> None:
    monkeypatch.setattr(constants, "DEFAULT_STDOUT_CALLBACK", callback)
    ports = WorldPorts(world, "l")
    action_of(instance_info, ports, INVENTORY, print_table=True).act()
    assert ports.shown == [] and len(ports.on_stderr) == 1
    assert ports.on_stderr[0].startswith("\nNo instances in the ledger %s" % world.url.partition(":")[0])


ACTIONS = sorted(p for p in Path(boot_report.__file__).parent.glob("*.py") if "tables.show(" in p.read_text())


@pytest.mark.parametrize("action", ACTIONS, ids=lambda p: p.stem)
def test_what_prints_a_table_has_a_setting_for_it(action: Path) -> None:
    arguments = importlib.import_module("%s.%s" % (boot_report.__package__, action.stem)).ActionModule.ARGUMENTS
    of_setting = getattr(arguments["print_table"], "variable", "") == "bootflow_print_table"
    assert of_setting is not action.stem.endswith("_info")


def test_playbooks_hand_the_setting_to_info_modules() -> None:
    """They print only when asked to."""
    given = [
        task[module]["print_table"]
        for playbook in (Path(__file__).parents[4] / "playbooks").glob("*.yml")
        for play in yaml.safe_load(playbook.read_text())
        for task in play.get("tasks", ())
        for module in task
        if module.startswith("bootflow.compute.") and module.endswith("_info")
    ]
    assert len(given) == 14 and set(given) == {"{{ bootflow_print_table | default(true) }}"}


def test_instances_for_later_jobs(world: World) -> None:
    world.report("h1", memory=4)
    uuid = world.boot("web")
    assert "ansible_stats" not in run(world, instance_info)[0]
    told = run(world, instance_info, set_stats=True)[0]["ansible_stats"]
    assert told["per_host"] is False and set(told["data"]) == {"bootflow_guests"}
    (guest,) = told["data"]["bootflow_guests"]
    assert (guest["name"], guest["uuid"], guest["host"], guest["vm_state"]) == ("web", uuid, "h1", "active")
    assert guest["addresses"][0]["ip_address"] == "10.0.1.10" and set(guest) == {
        "name", "uuid", "project", "host", "vm_state", "addresses"
    }  # fmt: skip


def test_what_happened_to_an_instance(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", until="spawning")
    world.time += 5
    world.fail("h1", uuid, errors.RemoteError(reason="first line\nsecond line"))
    transact(world, lambda tx: history.notify_each(tx, {uuid: CHANGE}, "compute.instance.update"))
    result, shown = run(world, instance_info, names=["web"], history=True, print_table=True)
    (found,) = result["instances"]
    assert floats_of_times(found) == [] and (found["name"], found["deleted_at"]) == ("web", None)
    assert [a["action"] for a in found["actions"]] == ["create"] and found["actions"][0]["request_id"] == "req-a"
    assert {"schedule", "spawning"} <= {e["event"] for e in found["events"]}
    assert [(f["code"], f["status"], f["host"]) for f in found["faults"]] == [("RemoteError", 400, "h1")]
    told = {n["event_type"]: n["payload"] for n in found["notifications"]}
    assert told["compute.instance.create.error"]["host"] == "h1" and told["compute.instance.update"] == CHANGE
    lines = [line.split(None, 3) for line in shown.splitlines() if line.startswith("20")]
    assert [line[0] for line in lines] == sorted(line[0] for line in lines), "by time"
    assert {line[1] for line in lines} == {"action", "event", "fault", "notification"}
    assert shown.count("first line") == 1 and "second line" not in shown
    assert shown.count("see fault RemoteError") == 2, "the event and the notification"
    assert "building -> active, spawning -> None" in shown and "at work" in shown and "by ann, req-a" in shown


@pytest.mark.parametrize(
    "reason", ["no space left on device\nsecond line", "x" * 300, "h1: 100 % of {{ disk }} used"], ids=len
)
def test_an_error_that_ends_a_build_is_once_in_the_table(world: World, reason: str) -> None:
    """The attempts of one instance may fail for several reasons: each is there."""
    world.report("h1")
    uuid = world.boot("web", until="spawning")
    world.fail("h1", uuid, errors.InvalidInput(reason=reason))
    result, shown = run(world, instance_info, names=["web"], history=True, print_table=True)
    (found,) = result["instances"]
    assert found["faults"] and any(n["payload"].get("fault") for n in found["notifications"])
    assert shown.count(reason.partition("\n")[0]) == 1, shown
    (line,) = [line for line in shown.splitlines() if line.split()[1:2] == ["fault"]]
    assert line.split()[4] == "Error" and found["vm_state"] == "error", line


def test_errors_with_other_texts_are_all_in_the_table() -> None:
    when = {"start_time": "2026-01-01T00:00:00", "finish_time": "2026-01-01T00:00:01", "host": "h1"}
    view: dict[str, t.Any] = {
        **dict.fromkeys(("name", "uuid", "vm_state"), "x"),
        "actions": [],
        "migrations": [],
        "events": [
            {**when, "event": "resize", "result": "Error", "details": "disk full"},
            {**when, "event": "schedule", "result": "Success", "details": "no room"},
            {**when, "event": "spawning", "result": "Error", "details": None},
        ],
        "faults": [
            {"created_at": "2026-01-01T00:00:02", "code": "A", "host": "h1", "details": "", "message": "no room"},
            {"created_at": "2026-01-01T00:00:03", "code": "B", "host": "h2", "details": "", "message": ""},
        ],
        "notifications": [
            {"created_at": "2026-01-01T00:00:02", "event_type": "e", "payload": {"fault": {"message": "memory full"}}}
        ],
    }
    shown = "\n".join(history_table(view))
    assert all(text in shown for text in ("disk full", "memory full")) and shown.count("no room") == 2
    assert "see fault" not in shown


def test_what_happened_in_one_second_is_in_its_order(world: World) -> None:
    world.report("h1")
    world.boot("web")
    world.time += 0.3
    world.delete(names=["web"])
    shown = run(world, instance_info, names=["web"], history=True, print_table=True)[1]
    lines = [line.split()[:3] for line in shown.splitlines() if line.startswith("20")]
    assert len({time for time, *_rest in lines}) == 1, lines
    told = ["%s %s" % (kind, what.replace("compute.instance.", "")) for _time, kind, what in lines]
    order = ("action create", "notification create.start", "event spawning", "notification create.end", "action delete",
             "notification delete.start")  # fmt: skip
    assert [told.index(each) for each in order] == sorted(told.index(each) for each in order), told


def test_notifications_of_one_moment_stay_in_their_order(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    moments = ["resize.prep.start", "resize.prep.end", "resize.start"]
    for each in moments:
        transact(world, history.notify, [uuid], "compute.instance.%s" % each, {})
    shown = run(world, instance_info, names=["web"], history=True, print_table=True)[1]
    told = [line.split()[2].replace("compute.instance.", "") for line in shown.splitlines() if " notification " in line]
    assert told[-3:] == moments, shown


def test_what_happened_to_a_deleted_instance(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", project="p")
    world.delete(names=["web"])
    world.removed("h1", [uuid])
    world.finish()
    assert run(world, instance_info, names=["web"])[0]["instances"] == []
    result, shown = run(world, instance_info, names=["web", "wed"], project="p", history=True, print_table=True)
    assert [v["uuid"] for v in result["instances"]] == [uuid], "the last of that name"
    assert (result["failed"], result["error_code"]) == (True, "InstanceNotFound") and "wed" in result["msg"]
    assert "web" not in result["msg"].partition("\n")[0] and "delete" in shown
    for unknown in ({"names": ["wed"]}, {"uuids": ["nobody"]}, {"reservation_ids": ["r-0"]}):
        for told in ("history", "details"):
            result, shown = run(world, instance_info, print_table=True, **{**unknown, told: True})
            assert (result["error_code"], result["instances"], shown) == ("InstanceNotFound", [], "")
        assert not run(world, instance_info, **unknown)[0].get("failed"), "an empty list is one"
    assert "No instance has the UUID nobody." in run(world, instance_info, uuids=["nobody"], print_table=True)[1]
    (found,) = run(world, instance_info, uuids=[uuid, "nobody"], project="p", history=True)[0]["instances"]
    assert (found["vm_state"], [a["action"] for a in found["actions"]]) == ("deleted", ["create", "delete"])
    assert (
        found["deleted_at"] and run(world, instance_info, uuids=[uuid], project="q", history=True)[0]["instances"] == []
    )
    with pytest.raises(errors.InvalidInput, match="no instance is selected"):
        run(world, instance_info, history=True)


def test_a_list_after_reports_reads_the_ledger_itself(world: World) -> None:
    """A replica may not have them yet."""
    world.report("h1")
    world.boot("web")
    replica = {"ledger_read_url": "postgresql://replica.example/bootflow"}
    with pytest.raises(errors.InvalidInput, match="has no replica"):
        action_of(instance_info, WorldPorts(world, "l"), INVENTORY, ledger_url="sqlite:////x.db", **replica).act()
    assert [i["name"] for i in run(world, instance_info, refresh=True, **replica)[0]["instances"]] == ["web"]


def test_a_host_without_a_working_kvm_is_a_problem(world: World) -> None:
    facts = {"hypervisor_hostname": "h1", "memory_mb": 4096, "local_gb": 40, "vcpus": 4, "domains": []}
    for host, stats in (("h1", {"emulated": "a guest hangs"}), ("h2", {})):
        transact(world, nodes.record_report, host, {**facts, "hypervisor_hostname": host, "stats": stats}, {})
    views = {v["host"]: v["problems"] for v in run(world, hypervisor_info)[0]["hypervisors"]}
    assert views["h1"] == ["guests run emulated, many times slower than with KVM: a guest hangs"] and not views["h2"]


def test_what_guests_of_a_silent_host_do_is_not_known(world: World) -> None:
    world.report("h1")
    world.boot("web")
    assert "RUNNING" in run(world, instance_info, print_table=True)[1]
    transact(world, nodes.record_unreachable, "h1", "no route to host")
    shown = run(world, instance_info, print_table=True)[1]
    assert "RUNNING" not in shown and "UNKNOWN  h1 (down)" in shown and "bootflow.compute.hosts shows why" in shown


def test_a_long_last_column_is_not_underlined_whole() -> None:
    lines = table(("NAME", "DETAILS"), [("a", "x" * 390)])
    assert lines[1] == "----  -------" and table(("NAME", "ID"), [("a", "i" * 36)])[1].endswith("  " + "-" * 36)


def test_a_whole_instance_is_in_words_without_what_is_empty() -> None:
    view = {
        "name": "web",
        "power_state": 4,
        "age": 317,
        "moves": [{"seconds": 267.8, "fault": None, "to": "h2"}],
        "tags": [],
    }
    shown = "\n".join(whole(view))
    assert "power_state: SHUTDOWN" in shown and "age: 5 min" in shown and "seconds: 4 min" in shown
    assert "null" not in shown and "fault" not in shown and "tags" not in shown
