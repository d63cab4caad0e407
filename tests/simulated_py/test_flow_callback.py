# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole playbooks with the stdout callback flow, and their output."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import typing as t

import pytest
from simulated_site import Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors

STAGES = "networking N s, disks N s, spawning N s"
RULE = "--------"


@pytest.fixture
def flow(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", "bootflow.compute.flow")
    site.hosts["kvm1"].has_facts(memory_mb=65536)  # the one with the most memory is the first
    return site


def lines_of(output: str) -> list[str]:
    """The lines without seconds, and of the table of instances the first five columns."""
    lines = re.sub(r"\b\d+(\.\d)? s\b", "N s", output).splitlines()
    return [re.sub(r"^(INSTANCE|-{8}|web-\d  )(.*)", lambda m: " ".join(m.group().split()[:5]), line) for line in lines]


def test_a_boot_prints_a_line_for_each_instance_and_the_table_last(flow: Site) -> None:
    flow.hosts["kvm1"].items_fail("domain", errors.LibvirtError(reason="no KVM today"))
    lines = lines_of(flow.boots(entry("web", count=3)))
    assert lines[0].startswith("Created the ledger ")
    assert lines[1:3] == [
        "Report the facts of the host: kvm1, kvm2, kvm3",
        "Build the instances of the host: kvm1, kvm2, kvm3",
    ]
    assert sorted(lines[3:6]) == [  # as hosts answer
        "kvm1: LibvirtError: libvirt: no KVM today",
        "web-2: scheduled on kvm2, %s, ACTIVE after N s" % STAGES,
        "web-3: scheduled on kvm3, %s, ACTIVE after N s" % STAGES,
    ]
    assert lines[6:] == [
        "Build the instances of the host: kvm2",
        "web-1: scheduled on kvm1, spawning failed (LibvirtError), scheduled on kvm2, %s, ACTIVE after N s" % STAGES,
        "INSTANCE VM_STATE TASK_STATE POWER HOST",
        "-------- -------- ---------- ------- ----",
        "web-1 active - RUNNING kvm2",
        "web-2 active - RUNNING kvm2",
        "web-3 active - RUNNING kvm3",
    ]


def test_a_boot_that_changes_nothing_prints_three_lines(flow: Site) -> None:
    flow.boots(entry("web", count=3))
    asked = flow.asked()
    assert flow.boots(entry("web", count=3)).splitlines() == [
        "Nothing to do: 3 instances already match the request.",
        "active: web-1, web-2, web-3",
        "on kvm1: 1, kvm2: 1, kvm3: 1",
    ]
    assert flow.asked() == asked


def test_an_error_is_printed_once_with_its_remedy_and_the_table_after_it(flow: Site) -> None:
    for host in flow.hosts.values():
        host.items_fail("instance_disks", errors.ImageUnacceptable(image_id="debian", reason="it has a backing file"))
    lines = lines_of(flow.boots(entry("web", count=2), expect=2))
    text = "\n".join(lines)
    assert text.count("it has a backing file") == 1 and text.count("Remedy: ") == 1, text
    assert sum("disks failed (ImageUnacceptable), ERROR after N s" in line for line in lines) == 2, text
    error = next(number for number, line in enumerate(lines) if line.startswith("fatal: [localhost]: BootFailed: "))
    assert [line.split()[0] for line in lines[-4:]] == ["INSTANCE", RULE, "web-1", "web-2"], text
    assert error < len(lines) - 4 and "[localhost]" not in "\n".join(lines[error + 1 :])


def test_an_instance_without_a_host_has_its_line_too(flow: Site) -> None:
    lines = lines_of(flow.boots(entry("web", flavor="huge"), entry("db"), expect=2))
    assert "web: no host, ERROR after N s" in lines
    (built,) = [line for line in lines if line.startswith("db: ")]
    assert built == "db: scheduled on kvm1, %s, ACTIVE after N s" % STAGES
    assert [line.split()[0] for line in lines[-2:]] == ["web", "db"]


def test_a_delete(flow: Site) -> None:
    flow.boots(entry("web", count=2))
    assert flow.play("delete", names=["web-1", "web-2"]).splitlines() == [
        "Remove domains, disks and config drives, disconnect volumes: kvm1, kvm2",
        "Deleted: web-1, web-2",
    ]


def test_a_host_that_is_silent_is_a_problem_as_it_happens(flow: Site) -> None:
    flow.boots(entry("web"))
    flow.hosts["kvm1"].is_silent()
    lines = lines_of(flow.boots(entry("db", count=4), hosts=["kvm1", "kvm2"]))
    assert sum(line.startswith("kvm1: HostUnreachable: ") for line in lines) == 1
    assert sum("networking failed (HostUnreachable), scheduled on kvm2, " in line for line in lines) > 1


def on_terminal(site: Site, **environment: str) -> str:
    """What a boot of one instance writes to a terminal."""
    ours, theirs = pty.openpty()
    given: dict[str, t.Any] = {"bootflow_instances": [entry("web")]}
    variables = {**site.environment(**environment), "TERM": "xterm"}
    if "ANSIBLE_NOCOLOR" not in environment:
        del variables["ANSIBLE_NOCOLOR"]
    process = subprocess.Popen(
        site.arguments("boot", given), stdin=theirs, stdout=theirs, stderr=theirs, env=variables, cwd=site.folder
    )
    os.close(theirs)
    text = b""
    while True:
        try:
            text += os.read(ours, 65536)
        except OSError:  # all of its processes have ended
            break
    os.close(ours)
    assert process.wait(60) == 0, text.decode()
    return text.decode().replace("\r\n", "\n")


def test_on_a_terminal_the_line_of_an_instance_grows(flow: Site) -> None:
    output = on_terminal(flow)
    written_again = output.index("\nweb: scheduled on kvm1\n")
    erased = output.index("\x1b[1F\x1b[J", written_again)
    assert erased < output.index("ACTIVE after"), output
    after_the_last = output.rpartition("\x1b[J")[2]
    assert "ACTIVE after" in after_the_last and "INSTANCE  VM_STATE" in after_the_last


def test_without_color_a_terminal_gets_plain_lines(flow: Site) -> None:
    output = on_terminal(flow, ANSIBLE_NOCOLOR="1")
    assert "\x1b" not in output and output.count("web: scheduled on kvm1") == 1
