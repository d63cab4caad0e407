# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines of instances of a boot, by the results of its tasks."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.plugin_utils.screen.instance_lines import (
    DONE,
    FAILED,
    PROBLEM,
    InstanceLines,
    Line,
)

TIMES = {"networking": 0.1, "block_device_mapping": 1.44, "spawning": 0.8}


def item(number: int, **fields: t.Any) -> dict[str, t.Any]:
    return {"uuid": "u%d" % number, "name": "web-%d" % number, **fields}


def failed(number: int, outcome: str) -> dict[str, t.Any]:
    return item(number, stage="spawning", outcome=outcome, error={"code": "LibvirtError", "message": "no KVM"})


def begun(*hosts: str) -> InstanceLines:
    lines = InstanceLines()
    lines.accept(100.0)
    lines.schedule([item(number, host=host) for number, host in enumerate(hosts, 1)])
    return lines


def test_a_line_has_the_stages_of_an_instance() -> None:
    lines = begun("kvm1")
    assert lines.growing() == {"u1": "web-1: scheduled on kvm1"}
    assert lines.build("kvm1", [item(1, stages=TIMES)], [], 103.0) == [
        Line("web-1: scheduled on kvm1, networking 0.1 s, disks 1.4 s, spawning 0.8 s, ACTIVE after 3 s", DONE)
    ]
    assert lines.growing() == {} and lines.unfinished() == []
    assert lines.report([item(1, vm_state="active", host="kvm1")], 104.0) == []


def test_a_problem_of_a_host_is_said_once_and_the_line_goes_on() -> None:
    lines = begun("kvm1", "kvm1")
    failures = [failed(1, "rescheduled"), failed(2, "rescheduled")]
    assert lines.build("kvm1", [], failures, 102.0) == [Line("kvm1: LibvirtError: no KVM", PROBLEM)]
    lines.schedule([item(1, host="kvm2")])
    (line,) = lines.build("kvm2", [item(1, stages={})], [], 104.0)
    assert line.text == (
        "web-1: scheduled on kvm1, spawning failed (LibvirtError), scheduled on kvm2, ACTIVE after 4 s"
    )
    (line,) = lines.report([item(2, vm_state="error", host=None)], 105.0)
    assert line.text.endswith("spawning failed (LibvirtError), no host, ERROR after 5 s") and line.kind == FAILED


def test_ends_of_failed_builds() -> None:
    """The error of a build that ends is in the report, with its remedy."""
    lines = begun("kvm1", "kvm1").build("kvm1", [], [failed(1, "error"), failed(2, "gone")], 101.0)
    assert [line.text.rpartition("(LibvirtError), ")[2] for line in lines] == [
        "ERROR after 1 s",
        "deleted, or of another run, after 1 s",
    ]


def test_instances_that_this_run_did_not_schedule() -> None:
    lines = begun()
    (line,) = lines.build("kvm1", [item(1, stages={})], [], 100.0)
    assert line.text == "web-1: on kvm1, ACTIVE after 0 s"
    views = [item(2, vm_state="stopped", host="kvm1"), item(3, vm_state="error", host=None)]
    assert [line.text for line in lines.report(views, 100.0)] == ["web-3: no host, ERROR after 0 s"]


def test_a_run_that_ends_early_shows_how_far_instances_came() -> None:
    lines = begun("kvm1")
    assert lines.unfinished() == [Line("web-1: scheduled on kvm1", FAILED)]
    assert lines.unfinished() == []


def test_a_second_boot_of_the_run_counts_for_itself() -> None:
    lines = begun("kvm1")
    lines.build("kvm1", [item(1, stages={})], [], 101.0)
    lines.accept(200.0)
    (line,) = lines.report([item(1, vm_state="error", host="kvm1")], 203.0)
    assert line.text == "web-1: ERROR after 3 s"


def test_names_of_others_cannot_write_to_the_terminal() -> None:
    lines = begun()
    lines.schedule([{"uuid": "u1", "name": "a\x1b[2J", "host": "h"}])
    assert lines.growing() == {"u1": "a\\x1b[2J: scheduled on h"}
