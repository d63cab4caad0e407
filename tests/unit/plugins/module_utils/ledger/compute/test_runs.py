# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import os
import subprocess
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import runs
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import this_run
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, at, request

NOW = 1000.0
ME = this_run.identify(os.getpid(), "here", "ann")


@dataclasses.dataclass
class Row:
    """A row of the table runs."""

    controller: str = "here"
    boot_id: str = ME.boot_id
    pid_namespace: str = ME.pid_namespace
    pid: int = os.getpid()
    pid_started: int = ME.pid_started
    lease_until: float = NOW + 1
    started_at: float = NOW


@pytest.mark.parametrize(
    ("row", "dead"),
    [
        (None, True),
        (Row(), False),
        (Row(lease_until=NOW), True),  # the lease is out
        (Row(pid_started=ME.pid_started - 1), True),  # another process has its number now
        (Row(pid=2**22 + 1), True),  # no such process
        (Row(controller="there", boot_id="other"), False),  # another machine: its lease says
        (Row(controller="there", boot_id="other", lease_until=NOW - 1), True),
        (Row(boot_id="before"), True),  # this machine, before it was restarted
        (
            Row(pid_namespace="pid:[1]", pid=2**22 + 1),
            False,
        ),  # a container on this machine: its numbers mean nothing here
        (Row(boot_id=""), False),  # it could not tell
    ],
)
def test_whether_a_run_is_dead(row: t.Any, dead: bool) -> None:
    assert runs.is_dead(row, ME, NOW) is dead


def test_a_process_that_ends() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        started = this_run.process_started(process.pid)
        assert started is not None and started >= ME.pid_started
        row = Row(pid=process.pid, pid_started=started)
        assert not runs.is_dead(row, ME, NOW)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, but still in the table of processes
        assert runs.is_dead(row, ME, NOW)
    assert this_run.process_started(process.pid) is None


def test_a_clock_that_is_set_forward_ends_no_lease_of_a_process_that_runs() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        started = this_run.process_started(process.pid)
        assert started is not None
        row = Row(pid=process.pid, pid_started=started, lease_until=NOW + 600)
        assert not runs.is_dead(row, ME, NOW + 3600), "by the machine's own count not a second has passed"
        assert runs.is_dead(dataclasses.replace(row, boot_id="other", controller="there"), ME, NOW + 3600)
        process.kill()
        process.wait()
        assert runs.is_dead(row, ME, NOW + 3600)
    here = Row(started_at=NOW - this_run.seconds_since_start(ME.pid_started), lease_until=NOW)
    assert runs.is_dead(here, ME, NOW + 1), "a process that stood still so long"


def test_what_a_run_has_is_not_given_back_after_a_jump_of_the_clock(world: World) -> None:
    other = dataclasses.replace(ME, id="other")
    with subprocess.Popen(["sleep", "60"]) as process, world.ledger.write() as tx:
        live = this_run.identify(process.pid, "here", "ann")
        runs.renew(at(tx, NOW, live))
        assert runs.out_of_lease(at(tx, NOW + 7200, other), [live.id, "unknown"]) == {"unknown"}
        process.kill()
        process.wait()
        assert runs.out_of_lease(at(tx, NOW + 7200, other), [live.id, "unknown"]) == {"unknown", live.id}


def test_the_identity_is_the_processes(world: World) -> None:
    assert this_run.identify(os.getpid(), "here", "bob").id == ME.id
    assert this_run.identify(os.getppid(), "here", "ann").id != ME.id
    long = this_run.identify(os.getpid(), "c" * 255, "ann")
    assert len("req-" + long.id) <= 64
    with world.ledger.write() as tx:
        runs.renew(at(tx, NOW, long))


def test_renewing(world: World) -> None:
    run = world.context("a").run
    with world.ledger.write() as tx:
        runs.renew(at(tx, NOW, run))
        runs.renew(at(tx, NOW + 100, run, lease_seconds=50))
    (row,) = world.rows(tables.runs)
    assert (row.id, row.started_at, row.lease_until, row.actor) == ("run-a", NOW, NOW + 150, "ann")


def test_the_dead_among_runs(world: World) -> None:
    me, other = world.context("a").run, world.context("b").run
    with world.ledger.write() as tx:
        runs.renew(at(tx, 0, me))
        runs.renew(at(tx, NOW, other))
        ids = [me.id, other.id, "unknown", None]
        assert runs.dead_among(at(tx, NOW, me), ids) == {"unknown"}
        assert runs.dead_among(at(tx, NOW + this_run.LEASE_SECONDS, me), ids) == {"unknown", other.id}
        assert runs.dead_among(at(tx, NOW, me), []) == set()
        error = runs.locked_error(tx, "web", other.id)
    assert error.message == (
        "Instance web is being worked on by run run-b (of ann on controller-b, since 1970-01-01T00:16:40Z)"
        " until 1970-01-01T00:26:40Z."
    )


def test_a_live_run_that_renews_keeps_its_builds(world: World) -> None:

    uuid = world.boot("web", "accepted", run="a")
    for _minute in range(4):
        world.time += 300
        with world.ledger.write() as tx:
            runs.renew(tx.for_run(world.context("a")))
        assert world.refusals(request("web"), run="b")[0]["code"] == "InstanceBusy"
    world.time += 601
    assert world.accept(request("web"), run="b").resumed == [uuid]
