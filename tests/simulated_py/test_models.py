# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The models of hosts do not drift from the modules: what they do not know, or may not answer, ends a run with its name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import host_model
import pytest
import simulated_host
from simulated_site import Host, Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors

UUID = "f0000000-0000-4000-8000-000000000001"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host("kvm1", tmp_path)


def stopped(host: Host, words: str) -> None:
    """The run has ended, and the file of the problems says why."""
    assert host.folder is not None
    assert words in (host.folder / simulated_host.PROBLEMS).read_text()


def test_a_module_without_a_model_is_named(host: Host) -> None:
    for module in ("domain_rescue", None):
        with pytest.raises(SystemExit, match="does not know the module %s" % re.escape(repr(module))):
            host.answer(module, {})
        stopped(host, "kvm1: the simulated host does not know the module %r" % module)


def test_a_playbook_that_needs_one_fails_and_names_it(tmp_path: Path, home: Path) -> None:
    site = Site(tmp_path, home, ["kvm1"])
    site.boots(entry("web"))
    done = site.run("rescue", bootflow_names=["web"], timeout=120)
    assert done.returncode != 0, done.output
    assert "does not know the module 'domain_rescue'" in site.problems()


def test_arguments_that_the_module_would_not_take_are_named(host: Host) -> None:
    with pytest.raises(SystemExit, match="options \\['uuid'\\]"):
        host.answer("domain_console", {"uuid": UUID})
    with pytest.raises(SystemExit, match="option uuids is not a list"):
        host.answer("domain_console", {"uuids": UUID})
    stopped(host, "domain_console does not take its arguments as they are")


def test_an_answer_without_the_shape_of_its_module_is_named(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(host_model.MODULES, "domain_info", lambda _model, _arguments: {"power_states": {UUID: "on"}})
    with pytest.raises(SystemExit, match="domain_info answers what no host may: .*power_states"):
        host.answer("domain_info", {})
    stopped(host, "the model of domain_info answers what no host may")


def test_check_mode_changes_nothing(host: Host) -> None:
    wanted = {"networks": [{"name": "lan", "manage": True}]}
    planned = json.loads(host.answer("virtual_network", {**wanted, "_ansible_check_mode": True}))
    assert planned["changed"] and host.read()["model"]["networks"] == {}
    assert json.loads(host.answer("virtual_network", wanted)) == planned
    assert not json.loads(host.answer("virtual_network", wanted))["changed"]


def test_faults_happen_as_often_as_they_are_told(host: Host) -> None:
    host.fails("domain_info", errors.HypervisorUnavailable(host="kvm1", reason="gone"), times=1)
    host.is_silent("domain_console", times=2)
    first, second = (json.loads(host.answer("domain_info", {})) for _again in range(2))
    assert (first["failed"], first["error_code"], first["retryable"]) == (True, "HypervisorUnavailable", True)
    assert "failed" not in second and second["power_states"] == {}
    for _again in range(2):
        with pytest.raises(simulated_host.Unreachable):
            host.answer("domain_console", {"uuids": []})
    assert json.loads(host.answer("domain_console", {"uuids": []}))["outcomes"] == {}
    assert host.asked() == ["domain_info"] * 2 + ["domain_console"] * 3


@pytest.mark.parametrize("module", sorted(host_model.MODULES))
def test_each_model_is_of_a_module(module: str) -> None:
    spec, _rules = simulated_host.argument_spec(module)
    assert "time_limit" in spec
