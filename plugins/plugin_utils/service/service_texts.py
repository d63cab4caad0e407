# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines about a rolling service for the person at the terminal."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.amounts import counted
from ...module_utils.core.service.host_life import BEGUN, DONE, DRAIN, REPORT, RETURN, TASKS
from ...module_utils.core.service.order import HostInService
from .steps import Steps

#: state of a host -> what is done now
WORDS = {
    DRAIN: "its instances leave",
    TASKS: "the tasks run",
    REPORT: "wait for its report",
    RETURN: "is in use again, what left comes back",
}


def host_line(host: str, state: str) -> str:
    """Return what is printed when the step of ``state`` begins."""
    return "%s: %s" % (host, WORDS[state])


def batch_lines(
    number: int,
    batch: t.Sequence[HostInService],
    moves: t.Sequence[t.Mapping[str, t.Any]],
    problem: errors.ServiceNotPossible | None,
) -> list[str]:
    """Return the lines of a batch in the plan. :arg moves: [{name, source, host}] of the instances that would leave"""
    lines = []
    for host in batch:
        begun = ", was begun and goes on: %s" % WORDS[host.state] if host.state in BEGUN else ""
        lines.append("%d. %s (zone %s)%s" % (number, host.name, host.zone, begun))
        leaving = [m for m in moves if m["source"] == host.name]
        lines += ["   ~ %s would go to %s" % (m["name"], m["host"]) for m in leaving]
        if not leaving and host.state not in BEGUN and problem is None:
            lines.append("   no instance is on it")
    if problem is not None:
        lines.append("   ! %s" % problem.message)
    return lines


def end_lines(name: str, hosts: t.Sequence[HostInService], steps: Steps, over: bool) -> list[str]:
    """Return the lines after the last host. :arg over: whether the window is over, and hosts are left"""
    done = sum(h.state == DONE for h in hosts)
    lines = ["service %s: %d of %s done." % (name, done, counted(len(hosts), "hosts"))]
    lines += [
        "! %s did not come back to %s: %s" % (counted(len(names), "instances"), host, ", ".join(names))
        for host, names in sorted(steps.stranded.items())
    ]
    if over:
        lines.append(
            "The window has no room for another host. Rerun the playbook in the next window; it continues with the next host."
        )
    return lines
