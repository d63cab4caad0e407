# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fate of an instance in a round of a live migration.

The stages in which hosts answer: ``look`` (source), ``prepare`` (destination), ``migrate`` (source), ``settle`` (destination), ``clean`` (source).
Only the source knows whether the guest has left. If the source does not report it, the guest's host is unknown: nothing is written.
source: Nova's ComputeManager.live_migration, LiveMigrationTask
"""

from __future__ import annotations

import typing as t

from ... import errors
from .. import states
from ..live_refusals import tries_another
from .answer import Answer, guest_of
from .ending import Ending


class Tries(t.NamedTuple):
    """The hosts that a guest may be taken to."""

    named: bool  # the operator named the host: there is no other one
    attempt: int  # the number of hosts that were tried, this one included
    max_attempts: int


class Passage(t.NamedTuple):
    """Knowledge of a guest after the stage ``migrate``."""

    reached: bool = False  # the destination may have something of the instance
    refused: bool = False  # by this destination; another one may take the guest
    arrived: bool = False  # the guest is on the destination
    unknown: bool = False  # the guest's host is unknown
    error: t.Mapping[str, t.Any] | None = None


def passage(looked: Answer, prepared: Answer, migrated: Answer, tries: Tries) -> Passage:
    """Return where the guest is."""
    if looked.get("error"):
        return Passage(error=looked["error"])
    if prepared.get("error"):
        error = errors.from_dict(prepared["error"])
        return Passage(reached=True, refused=tries_another(error, *tries), error=prepared["error"])
    if migrated.get("error"):
        return Passage(reached=True, unknown=not migrated.get("stays"), error=migrated["error"])
    return Passage(reached=True, arrived=True)


def ending(
    over: bool, reached: bool, error: t.Mapping[str, t.Any] | None, power_state: int, settled: Answer, cleaned: Answer
) -> Ending:
    """Return what came of an instance whose place is known.

    :arg over: it is on its destination. :arg reached: see Passage. :arg error: why it is not there
    :arg power_state: of its guest when it arrived. :arg settled: the answer of the destination at last. :arg cleaned: the answer of the source
    """
    if over:
        domain_missing = settled.get("power_state") == states.NOSTATE
        return Ending(int(settled.get("power_state", power_state)), domain_missing=domain_missing)
    problem = errors.from_dict(error) if error else errors.RemoteError(reason="its live migration did not take place")
    at_source, domain_missing = guest_of(cleaned, problem)
    return Ending(at_source, problem, not reached or bool(settled.get("cleaned")), domain_missing)


def vm_state(before: str, failed: bool, end: Ending) -> str:
    """Return the vm_state in which the instance is left. :arg failed: it did not go to its destination"""
    return states.ERROR if failed and end.domain_missing else before


def may_try_again(end: Ending, with_volumes: bool) -> bool:
    """Whether a guest that its destination refused may go to another one. A host that may be connected to the volumes blocks them for a third host."""
    return end.error is not None and not end.domain_missing and (end.cleaned or not with_volumes)
