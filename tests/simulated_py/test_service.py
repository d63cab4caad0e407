# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rolling service of hosts: order, failures, a kill in the middle, what comes back."""

from __future__ import annotations

import json
import typing as t

import pytest
from simulated_site import Site, entry


@pytest.fixture
def booted(site: Site) -> Site:
    """web-1 and web-2 on kvm1, and a file of tasks that notes the hosts on which it runs."""
    site.boots(entry("web", count=2), hosts=["kvm1"])
    tasks(site)
    return site


def tasks(site: Site, *more: dict[str, t.Any]) -> None:
    note = {
        "name": "Note the host",
        "ansible.builtin.lineinfile": {
            "path": str(site.folder / "noted"),
            "line": "{{ inventory_hostname }} {{ ansible_date_time | default('') }}{{ now(fmt='%H%M%S%f') }}",
            "create": True,
            "mode": "0600",
        },
        "delegate_to": "localhost",
        "connection": "local",
        "vars": {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"},
    }
    (site.folder / "tasks.yml").write_text(json.dumps([note, *more]))


def serviced(site: Site) -> list[str]:
    """The hosts on which the tasks ran, in this order."""
    path = site.folder / "noted"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def service(site: Site, *options: str, expect: int = 0, **variables: t.Any) -> str:
    given = {"service_tasks": str(site.folder / "tasks.yml"), "drain_live": False, **variables}
    done = site.run("service", *options, timeout=600, **{"bootflow_" + name: value for name, value in given.items()})
    assert done.returncode == expect and "Traceback" not in done.output, done.output
    return done.output


def states(site: Site) -> dict[str, str]:
    return {r["host"]: r["state"] for r in site.query("SELECT host, state FROM service_hosts")}


def disabled(site: Site) -> dict[str, str]:
    query = "SELECT host, service_disabled_reason AS reason FROM compute_nodes WHERE service_disabled"
    return {r["host"]: r["reason"] for r in site.query(query)}


def test_three_hosts_one_after_the_other(booted: Site) -> None:
    before = booted.places()
    output = service(booted)
    assert serviced(booted) == ["kvm1", "kvm2", "kvm3"]
    assert states(booted) == dict.fromkeys(booted.hosts, "done") and disabled(booted) == {}
    assert booted.places() == before, output
    assert "3 of 3 hosts done" in output
    again = service(booted)
    assert "changed=0" in again and len(serviced(booted)) == 3
    service(booted, service_restart=True, service_hosts=["kvm2"])
    assert serviced(booted)[3:] == ["kvm2"]


def test_the_plan_names_what_leaves_each_host_and_changes_nothing(booted: Site) -> None:
    booted.of_hosts["kvm1"] = {"bootflow_availability_zone": "east"}
    booted.play("heartbeat")
    before, asked = booted.dump(), booted.asked()
    output = service(booted, "--check", "--diff", service_at_once=2)
    lines = output.splitlines()
    assert "1. kvm1 (zone east)" in lines and "1. kvm2 (zone nova)" in lines and "2. kvm3 (zone nova)" in lines, output
    for name in ("web-1", "web-2"):
        assert "   ~ %s would go to kvm3" % name in lines, "kvm2 is out, too:\n" + output
    assert "+kvm3 done" in lines
    assert (booted.dump(), booted.asked()) == (before, asked) and serviced(booted) == []


@pytest.mark.long
def test_tasks_that_fail_stop_the_service_until_they_do_not(booted: Site) -> None:
    tasks(booted, {"name": "Update", "ansible.builtin.fail": {"msg": "no network"}})
    output = service(booted, expect=2, service_hosts=["kvm1", "kvm2"])
    assert "ServiceTasksFailed" in output and "no network" in output and "rerun the playbook" in output
    assert states(booted) == {"kvm1": "tasks", "kvm2": "pending"} and disabled(booted) == {"kvm1": "service default"}
    assert booted.hosts["kvm1"].domains == {}
    tasks(booted)
    service(booted, service_hosts=["kvm1", "kvm2"], service_return=False)
    assert serviced(booted) == ["kvm1", "kvm1", "kvm2"] and disabled(booted) == {}
    assert "kvm2" not in {host for _state, host in booted.places().values()}, "they stay where they went"


def test_a_host_that_does_not_come_back_stays_disabled(booted: Site) -> None:
    booted.play("heartbeat")
    booted.hosts["kvm2"].is_silent()
    chosen: dict[str, t.Any] = {"service_hosts": ["kvm2", "kvm3"], "service_report_timeout": 6}
    output = service(booted, expect=2, **chosen)
    assert "HostNotBack" in output and "did not report within 6 s" in output
    assert states(booted) == {"kvm2": "report", "kvm3": "pending"} and disabled(booted) == {"kvm2": "service default"}
    booted.hosts["kvm2"].heal()
    service(booted, **{**chosen, "service_report_timeout": 60})
    assert serviced(booted) == ["kvm2", "kvm3"] and disabled(booted) == {}


@pytest.mark.long
def test_a_service_that_is_killed_goes_on_where_it_was(booted: Site) -> None:
    wait = {
        "name": "Wait",
        "ansible.builtin.wait_for": {"path": str(booted.folder / "go"), "timeout": 100},
        "delegate_to": "localhost",
        "connection": "local",
        "vars": {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"},
        "when": "inventory_hostname == 'kvm1'",
    }
    tasks(booted, wait)
    chosen: dict[str, t.Any] = {"service_hosts": ["kvm1", "kvm2"], "service_tasks": str(booted.folder / "tasks.yml")}
    process = booted.begin("service", drain_live=False, **chosen)
    booted.wait_until(lambda: "kvm1" in serviced(booted), seconds=120)
    busy = service(booted, expect=2, service_name="another", service_hosts=["kvm3"])
    assert "ServiceBusy" in busy
    booted.kill(process)
    assert states(booted)["kvm1"] == "tasks" and disabled(booted) == {"kvm1": "service default"}
    (booted.folder / "go").touch()
    output = service(booted, **chosen)
    assert "was begun and goes on" in output
    assert serviced(booted) == ["kvm1", "kvm1", "kvm2"] and disabled(booted) == {}
    assert {host for _state, host in booted.places().values()} == {"kvm1"}


def test_a_window_without_room_for_another_host(booted: Site) -> None:
    booted.play("heartbeat")
    output = service(booted, expect=2, service_window=60, service_host_time=61)
    assert "ServiceWindowTooShort" in output and states(booted) == {} and serviced(booted) == []
    chosen: dict[str, t.Any] = {"service_hosts": ["kvm2", "kvm3"], "service_window": 62, "service_host_time": 60}
    output = service(booted, **chosen)
    assert "The window has no room for another host" in output
    assert serviced(booted) == ["kvm2"] and states(booted) == {"kvm2": "done", "kvm3": "pending"}


def test_instances_that_would_fit_nowhere_stop_a_service_before_it_begins(booted: Site) -> None:
    booted.play("heartbeat")
    booted.play("host", host=["kvm2", "kvm3"], host_state="disabled", host_reason="power")
    asked = booted.asked()
    for options in (("--check",), ()):
        output = service(booted, *options, expect=2)
        assert "ServiceNotPossible" in output and "web-1 of kvm1 fits nowhere" in output, output
    assert booted.asked() == asked and set(disabled(booted)) == {"kvm2", "kvm3"}
    service(booted, service_hosts=["kvm2"])
    assert disabled(booted) == {"kvm2": "power", "kvm3": "power"}, "people disabled them"
