# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a failed creation of a volume is rescheduled. source: Cinder's manager flow (Queens)"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .. import errors
from . import states

RESCHEDULE = "reschedule"
ERROR = "error"

REASON_LENGTH = 128  # characters of a reason stored in a row

# Either the volume exists by then, or no other backend would succeed. All image errors, also those missing in Cinder's list
# (ImageNotFound, InvalidDiskFormat): every backend copies the same image. A failed download is not included: the volume is
# created after it, and another host may reach the image (Cinder tries it elsewhere as well).
NO_RESCHEDULE: tuple[type[errors.BootflowError], ...] = (
    errors.ImageCopyFailure,
    errors.VolumeNotFound,
    errors.SnapshotNotFound,
    errors.VolumeTypeNotFound,
    errors.ImageNotFound,
    errors.ImageError,  # ImageUnacceptable, ImageTooBig and others that Cinder wraps into ImageCopyFailure
)
RESCHEDULE_YET: tuple[type[errors.BootflowError], ...] = (errors.ImageDownloadFailed,)


@dataclass(frozen=True)
class VolumeOutcome:
    """``values``: columns of the row."""

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
    """The outcome of a creation that failed on a backend with ``error``.

    :arg retry: the retry record; without one the volume is not rescheduled.
    :arg allow_reschedule: False if the volume went to its source's backend without being scheduled.
    :arg copying: the error occurred while the image was copied: it becomes an ImageCopyFailure.
    :arg now: epoch seconds, the new scheduled_at of a rescheduled volume.
    """
    reason = clean_reason(error.message)
    final = copying or (isinstance(error, NO_RESCHEDULE) and not isinstance(error, RESCHEDULE_YET))
    if allow_reschedule and retry and not final:
        values = {"host": None, "scheduled_at": now, "status": states.CREATING}
        return VolumeOutcome(RESCHEDULE, values, reason)
    return VolumeOutcome(ERROR, {"status": states.ERROR}, reason)


def as_copy_failure(error: errors.BootflowError) -> errors.BootflowError:
    """An error during the copy of an image, as ImageCopyFailure; an error of the image itself stays as it is."""
    if isinstance(error, (errors.ImageCopyFailure, errors.ImageError)) and not isinstance(error, RESCHEDULE_YET):
        return error
    return errors.ImageCopyFailure(reason=error.message, remedy=error.remedy or None)


def clean_reason(reason: t.Any) -> str:
    """A reason, cut to the length that a row stores."""
    if reason is None:
        return "Unknown reason"
    text = str(reason)
    return text if len(text) <= REASON_LENGTH else text[:REASON_LENGTH] + "..."
