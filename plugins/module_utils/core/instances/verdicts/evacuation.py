# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fate of an instance in an evacuation. One stage of a host: ``build``, on the destination.

Where the guest may run on the destination the instance stays there in error: no other host may start it.
source: Nova's ComputeManager.rebuild_instance with recreate
"""

from __future__ import annotations

import typing as t

from ... import errors
from .. import states
from .answer import Answer, is_silence


class Ending(t.NamedTuple):
    """The end of an evacuation."""

    power_state: int = states.NOSTATE
    error: errors.BootflowError | None = None
    cleaned: bool = True  # after an error: the destination has nothing of the instance
    may_run: bool = False  # after an error: it is unknown whether the guest runs there


def failure(problem: errors.BootflowError, host: str, cleaned: bool, starting: bool) -> dict[str, t.Any]:
    """Return the answer of a destination that failed.

    :arg cleaned: it has nothing of the instance. :arg starting: it had begun to start the guest
    """
    may_run = starting and not cleaned
    error = may_run_on(host, problem) if may_run else problem
    return {"cleaned": cleaned, "may_run": may_run, "error": error.as_dict()}


def ending(host: str, built: Answer) -> Ending:
    """Return what came of an instance. :arg built: the answer of ``host``, the destination"""
    if is_silence(built):  # it is unknown what the host has of it
        return Ending(error=may_run_on(host, errors.from_dict(built["error"])), cleaned=False, may_run=True)
    if built.get("error") and "power_state" not in built:
        error = errors.from_dict(built["error"])
        return Ending(error=error, cleaned=bool(built.get("cleaned")), may_run=bool(built.get("may_run", True)))
    return Ending(int(built["power_state"]))


def may_run_on(host: str, problem: errors.BootflowError) -> errors.BootflowError:
    """Return ``problem`` with the remedy for an instance that is in error on ``host``, where its guest may run."""
    error = errors.from_dict(problem.as_dict())
    error.remedy = (
        "The guest may run on %s. When that host answers, run bootflow.compute.reboot with bootflow_reboot_type: HARD, or bootflow.compute.rebuild;"
        " if it is lost, force it down and evacuate the instance from there." % host
    )
    return error


def vm_state(before: str) -> str:
    """Return the vm_state of an instance that was built. :arg before: the one that it had"""
    return states.STOPPED if before == states.STOPPED else states.ACTIVE
