# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a create of a volume took to be rescheduled, and what never is. source: Cinder's manager flow (Queens)"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .. import errors
from . import states

RESCHEDULE = "reschedule"
ERROR = "error"

REASON_LENGTH = 128  # characters of a reason that a row keeps

# The volume exists by then, or no other backend would find the thing either. Of image errors every kind, also those that are
# none of Cinder's list (ImageNotFound, InvalidDiskFormat): any backend copies the same image. Not a download that failed:
# nothing is made before it is there, and another host may reach it (Cinder tries it elsewhere as well).
NO_RESCHEDULE: tuple[type[errors.BootflowError], ...] = (
    errors.ImageCopyFailure,
    errors.VolumeNotFound,
    errors.SnapshotNotFound,
    errors.VolumeTypeNotFound,
    errors.ImageNotFound,
    errors.ImageError,  # ImageUnacceptable, ImageTooBig and what else Cinder wraps into ImageCopyFailure
)
RESCHEDULE_YET: tuple[type[errors.BootflowError], ...] = (errors.ImageDownloadFailed,)


@dataclass(frozen=True)
class VolumeOutcome:
    """``values`` are for the row."""

    kind: str
    values: t.Mapping[str, t.Any]
    reason: str


def outcome_of(
    error: errors.BootflowError,
    retry: t.Mapping[str, t.Any] | None,
    allow_reschedule: bool = True,
    copying: bool = False,
    now: float | None = None,
) -> VolumeOutcome:
    """What becomes of a volume whose creation on a backend ``error`` ended.

    :arg retry: its retry record; without one nothing is rescheduled.
    :arg allow_reschedule: False where it was sent to its source's backend without being scheduled.
    :arg copying: it happened while the image was copied into it: then it is an ImageCopyFailure, whatever it was.
    :arg now: epoch seconds, the new scheduled_at of one that is rescheduled.
    """
    reason = clean_reason(error.message)
    final = copying or (isinstance(error, NO_RESCHEDULE) and not isinstance(error, RESCHEDULE_YET))
    if allow_reschedule and retry and not final:
        values = {"host": None, "scheduled_at": now, "status": states.CREATING}
        return VolumeOutcome(RESCHEDULE, values, reason)
    return VolumeOutcome(ERROR, {"status": states.ERROR}, reason)


def as_copy_failure(error: errors.BootflowError) -> errors.BootflowError:
    """What went wrong while an image was copied, as ImageCopyFailure; what says that the image is bad stays what it is."""
    if isinstance(error, (errors.ImageCopyFailure, errors.ImageError)) and not isinstance(error, RESCHEDULE_YET):
        return error
    return errors.ImageCopyFailure(reason=error.message, remedy=error.remedy or None)


def clean_reason(reason: t.Any) -> str:
    """As much of a reason as a row keeps."""
    if reason is None:
        return "Unknown reason"
    text = str(reason)
    return text if len(text) <= REASON_LENGTH else text[:REASON_LENGTH] + "..."
