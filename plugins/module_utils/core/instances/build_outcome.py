# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The outcome of a failed build: rescheduled, aborted, or ended quietly.

source: Nova's _do_build_and_run_instance, _build_and_run_instance and _build_resources
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .. import errors

RESCHEDULE = "reschedule"
ABORT = "abort"
FAILED_QUIETLY = "failed_quietly"

RESULT_FAILED = "failed"
RESULT_RESCHEDULED = "rescheduled"

# While these are prepared (ports allocated, volumes created and exported), every failure without its own line ends the build: it is not a fault of
# the host, and another host would not avoid it. The host's own work is Nova's spawn and is rescheduled.
PREPARING_NETWORKS = "networks"
PREPARING_BLOCK_DEVICES = "block_devices"

NETWORKS = "Failed to allocate the network(s) with error %s, not rescheduling."
BLOCK_DEVICES = "Failure prepping block device. %s"
CLEANUP = "Could not clean up failed build, not rescheduling."


@dataclass(frozen=True)
class Outcome:
    """``reason``: the text of the fault."""

    kind: str
    reason: str
    result: str


# The first matching line decides. Text None: the error's own.
_TABLE: tuple[tuple[tuple[type[errors.BootflowError], ...], str, str | None], ...] = (
    ((errors.InstanceNotFound, errors.UnexpectedDeletingTaskStateError, errors.InstanceBusy), FAILED_QUIETLY, None),
    ((errors.BuildAbortException,), ABORT, None),
    ((errors.RescheduledException, errors.ComputeResourcesUnavailable), RESCHEDULE, None),
    ((errors.HostLacksHardware, errors.NetworkRangeInUse), RESCHEDULE, None),
    ((errors.NetworkError,), ABORT, NETWORKS),
    ((errors.VolumeNotCreated, errors.CloudInitFailed), ABORT, None),
    ((errors.UnexpectedTaskStateError, errors.NoValidHost, errors.Forbidden, errors.InvalidInput), ABORT, None),
)


def outcome_of(error: errors.BootflowError, has_retry: bool, preparing: str | None = None) -> Outcome:
    """The outcome of a build that ended with ``error``.

    :arg has_retry: whether the build has a retry record; without one it is not rescheduled.
    :arg preparing: PREPARING_NETWORKS or PREPARING_BLOCK_DEVICES, if the error occurred there.
    """
    kind, reason = _decide(error, preparing)
    if kind == FAILED_QUIETLY:
        return Outcome(kind, reason, RESULT_FAILED)
    if kind == RESCHEDULE and has_retry:
        return Outcome(kind, reason, RESULT_RESCHEDULED)
    return Outcome(ABORT, reason, RESULT_FAILED)


def _decide(error: errors.BootflowError, preparing: str | None) -> tuple[str, str]:
    for classes, kind, text in _TABLE:
        if isinstance(error, classes):
            return kind, _text(text, error)
    if isinstance(error, errors.ImageError) and not error.retryable:
        return ABORT, error.message  # every host has the same image
    if preparing == PREPARING_NETWORKS:
        return ABORT, _text(NETWORKS, error)
    if preparing == PREPARING_BLOCK_DEVICES:
        return ABORT, _text(BLOCK_DEVICES, error)
    return RESCHEDULE, error.message


def _text(text: str | None, error: errors.BootflowError) -> str:
    if text is None:
        return error.message
    return text % error.message if "%s" in text else text


def cleanup_failed(reason: t.Any = "") -> errors.BuildAbortException:
    """The error of a build whose leftovers could not be removed: it is not rescheduled."""
    text = CLEANUP + (" %s" % reason if reason else "")
    return errors.BuildAbortException(
        message=text, remedy="Once the host answers again, run bootflow.compute.delete for this instance."
    )
