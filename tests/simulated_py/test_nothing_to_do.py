# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run that has nothing to do says so in a few lines, whatever the number of instances and the stdout callback."""

from __future__ import annotations

import subprocess

import pytest
from simulated_site import Site, entry

LINES = 12  # with text, that a person gets at most
CALLBACKS = ("ansible.builtin.default", "bootflow.compute.concise", "bootflow.compute.flow")


def texts(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.strip()]


def test_nothing_to_do_takes_few_lines(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    file = [entry("web", count=15)]
    site.hosts["kvm1"].has_facts(memory_mb=65536, vcpus=64, local_gb=2000)
    site.boots(*file)
    asked = site.asked()
    for callback in CALLBACKS:
        monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", callback)
        booted = texts(site.boots(*file))
        assert len(booted) <= LINES, "\n".join(booted)
        assert "Nothing to do: 15 instances already match the request." in booted
        applied = texts(site.play("apply", instances=file))
        assert len(applied) <= LINES, "\n".join(applied)
        assert "nothing to do; 15 as the file has them." in applied
        planned = texts(site.play("apply", "--check", instances=file))
        assert len(planned) <= LINES and "Plan (nothing is touched):" in planned, "\n".join(planned)
    assert site.asked() == asked


def test_plays_that_are_not_needed_are_shown_with_v_only(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", "ansible.builtin.default")
    site.boots(entry("web"))
    plain, verbose = (site.play("stop", *more, names=["web"]) for more in ((), ("-v",)))
    assert "no hosts matched" not in plain and "PLAY [Work]" in plain
    assert verbose.count("skipping: no hosts matched") > 3


def test_plays_of_others_without_hosts_are_shown(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", "ansible.builtin.default")
    site.boots(entry("web"))
    own = site.folder / "own.yml"
    own.write_text(
        "- ansible.builtin.import_playbook: bootflow.compute.list\n"
        "- name: Work of others\n  hosts: nobody\n  gather_facts: false\n  tasks: []\n"
    )
    program, _playbook, *options = site.arguments("list", {})
    done = subprocess.run(
        [program, str(own), *options],
        env=site.environment(),
        cwd=site.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("no hosts matched") == 1 and "PLAY [Work of others]" in done.stdout, done.stdout
