# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The states of a host in a rolling service, and what becomes of it by each answer."""

from __future__ import annotations

from dataclasses import dataclass

PENDING = "pending"  # nothing was done
DRAIN = "drain"  # gets no new instances, and its instances leave it
TASKS = "tasks"  # has no instance: the tasks of the user may run
REPORT = "report"  # the tasks are done, and it has not reported since
RETURN = "return"  # is in use again: what left comes back
DONE = "done"

STATES = (PENDING, DRAIN, TASKS, REPORT, RETURN, DONE)
#: States of a host that takes no instances because of the service.
OUT = (DRAIN, TASKS, REPORT)
#: States of a host that was begun and is to be finished before another one begins.
BEGUN = (*OUT, RETURN)


@dataclass(frozen=True)
class Verdict:
    """The state of a host after a step, and whether the service begins no other host."""

    state: str
    stops: bool


def verdict(state: str, well: bool) -> Verdict:
    """Return what becomes of a host whose step of ``state`` ended.

    :arg well: whether the step did all of its work. An instance that cannot come back stays where it is, and the service continues.
    :raises ValueError: a host in this state has no step.
    """
    if state not in BEGUN:
        raise ValueError(state)
    if well or state == RETURN:
        return Verdict(STATES[STATES.index(state) + 1], stops=False)
    return Verdict(state, stops=True)
