# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole runs of the playbook rebalance: the plan, the run, a host that refuses a guest, a kill in the middle, a limit."""

from __future__ import annotations

import collections
import typing as t

import pytest
from simulated_site import Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors


@pytest.fixture
def booted(site: Site) -> Site:
    """web-1 to web-6 on kvm1, whose guests would fit on the other two hosts."""
    site.variables["bootflow_max_concurrent_live_migrations"] = 4
    site.boots(entry("web", count=6), hosts=["kvm1"])
    site.play("heartbeat")
    return site


def rebalance(site: Site, *options: str, expect: int = 0, **variables: t.Any) -> str:
    given = {"bootflow_rebalance_" + name: value for name, value in variables.items()}
    done = site.run("rebalance", *options, timeout=600, **given)
    assert done.returncode == expect and "Traceback" not in done.output, done.output
    return done.output


def numbers(site: Site) -> dict[str, int]:
    """The number of instances on each host."""
    return dict(collections.Counter(str(host) for _state, host in site.places().values()))


def test_the_plan_says_each_step_and_changes_nothing(booted: Site) -> None:
    before, asked = booted.dump(), booted.asked()
    output = rebalance(booted, "--check", "--diff")
    assert "Plan of a rebalance (spread, nothing is touched):" in output
    assert "4 live migrations in 1 round, 88 GiB to copy; score 17.24, 0.00 afterwards." in output, output
    assert "N+1: the guests of 3 hosts would fit on the others, of 3 afterwards." in output
    assert output.count("web-") >= 8 and "kvm1" in output
    assert (booted.dump(), booted.asked()) == (before, asked)


def test_a_run_makes_the_fleet_even_and_the_next_one_changes_nothing(booted: Site) -> None:
    output = rebalance(booted)
    assert numbers(booted) == {"kvm1": 2, "kvm2": 2, "kvm3": 2}, output
    assert "rebalance: 4 of 4 live migrations done; score 0.00, was 17.24." in output, output
    assert {n: len(host.domains) for n, host in booted.hosts.items()} == numbers(booted)
    before = booted.places()
    again = rebalance(booted)
    assert "Nothing to do: the fleet is even" in again and "changed=0" in again
    assert booted.places() == before
    packed = rebalance(booted, policy="pack")
    assert len(numbers(booted)) == 1, packed
    assert "none can be emptied" in rebalance(booted, policy="pack")


def test_what_is_left_alone_stays_and_the_plan_says_why(booted: Site) -> None:
    booted.play("lock", names=["web-1"], locked_reason="billing")
    booted.play("stop", names=["web-2"])
    output = rebalance(booted, keep_hosts=["kvm3"], keep_instances=["web-3"], moves=2)
    assert "! web-1 stays on kvm1: it is locked by" in output
    assert "! web-2 stays on kvm1:" in output and "! web-3 stays on kvm1: it is left alone" in output
    assert "! kvm3 is left alone: it is left alone" in output
    places = {name: host for name, (_state, host) in booted.places().items()}
    assert [places["web-%d" % n] for n in (1, 2, 3)] == ["kvm1"] * 3
    assert numbers(booted) == {"kvm1": 4, "kvm2": 2}, output


def test_a_host_that_refuses_guests_fails_its_steps_alone(booted: Site) -> None:
    booted.hosts["kvm2"].items_fail("domain_migration", errors.MigrationPreCheckError(reason="an older CPU"))
    output = rebalance(booted, expect=2)
    assert "RebalanceIncomplete" in output and "an older CPU" in output, output
    assert numbers(booted) == {"kvm1": 4, "kvm3": 2}, output
    assert booted.hosts["kvm2"].domains == {} and booted.hosts["kvm2"].folders == {}
    booted.hosts["kvm2"].heal()
    output = rebalance(booted)
    assert numbers(booted)["kvm1"] == 2 and sum(numbers(booted).values()) == 6, output


@pytest.mark.long
def test_a_run_that_is_killed_is_run_again(booted: Site) -> None:
    booted.hosts["kvm1"].is_slow("domain_migration", 30.0, times=4)
    process = booted.begin("rebalance")
    booted.wait_for_module("kvm1", "domain_migration", process)
    booted.kill(process)
    booted.hosts["kvm1"].heal()
    # The playbook of the round lives on for a moment: guests that it migrates stay where they are in the first rerun.
    for _rerun in range(3):
        booted.play("audit")
        output = rebalance(booted)
        if numbers(booted)["kvm1"] == 2:
            break
    assert numbers(booted) == {"kvm1": 2, "kvm2": 2, "kvm3": 2}, output
    assert {n: len(host.domains) for n, host in booted.hosts.items()} == numbers(booted)


def test_hosts_outside_the_limit_stay_as_they_are(booted: Site) -> None:
    output = rebalance(booted, "--limit", "localhost,kvm1,kvm2")
    assert numbers(booted) == {"kvm1": 3, "kvm2": 3}, output
    assert "! kvm3 is left alone: it is not among the hosts of this run" in output


WRONG: tuple[tuple[dict[str, t.Any], str], ...] = (
    ({"bootflow_rebalance_keep_hosts": ["kvm9"]}, "Compute host kvm9 could not be found"),
    ({"bootflow_rebalance_keep_instances": ["nobody"]}, "Instance nobody could not be found"),
    ({"bootflow_rebalance_policy": "even"}, "bootflow_rebalance_policy must be one of spread, pack"),
    ({"bootflow_rebalance_moves": 0}, "bootflow_rebalance_moves must be a whole number, at least 1"),
    ({"bootflow_names": ["web-1"]}, "bootflow_names: rebalance looks at all instances"),
    ({"bootflow_weighers": ["IoOpsWeigher"]}, "no weigher in use prefers hosts with more free memory"),
)


def test_bad_requests_touch_nothing(booted: Site) -> None:
    before, asked = booted.dump(), booted.asked()
    for variables, words in WRONG:
        done = booted.run("rebalance", **variables)
        assert done.returncode == 2 and words in done.output, done.output
    new = [line for line in booted.dump() if line not in before]
    assert all(line.startswith('INSERT INTO "runs" ') for line in new), new
    assert booted.asked() == asked
