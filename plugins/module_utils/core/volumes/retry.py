# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Retry of the failed creation of a volume elsewhere, and its retry record: {num_attempts, backends, exc, exc_reason}.

Functions of the record return a new one and leave the given one unchanged; None means that the volume is not retried.
source: Cinder's FilterScheduler and manager flow (Queens)
"""

from __future__ import annotations

import typing as t

from .. import errors

Record = t.Dict[str, t.Any]

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


def is_rescheduled(error: errors.BootflowError, retry: t.Mapping[str, t.Any] | None, copying: bool = False) -> bool:
    """Whether a creation that failed on a backend with ``error`` is tried on another one.

    :arg retry: the retry record; without one it is not.
    :arg copying: the error occurred while the image was copied, see as_copy_failure().
    """
    final = copying or (isinstance(error, NO_RESCHEDULE) and not isinstance(error, RESCHEDULE_YET))
    return bool(retry) and not final


def as_copy_failure(error: errors.BootflowError) -> errors.BootflowError:
    """An error during the copy of an image, as ImageCopyFailure; an error of the image itself stays as it is."""
    if isinstance(error, (errors.ImageCopyFailure, errors.ImageError)) and not isinstance(error, RESCHEDULE_YET):
        return error
    return errors.ImageCopyFailure(reason=error.message, remedy=error.remedy or None)


def populate_retry(record: t.Mapping[str, t.Any] | None, max_attempts: int, volume_id: str) -> Record | None:
    """The record for the attempt that begins; None if there is only one.

    :raises InvalidParameterValue: max_attempts below 1, or not an integer. :raises InvalidInput: not a retry record.
    :raises NoValidBackend: the attempts are used up.
    """
    if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or max_attempts < 1:
        raise errors.InvalidParameterValue(
            err="Invalid value for 'scheduler_max_attempts', must be >=1",
            remedy="Set bootflow_volume_max_attempts to 1 or more.",
        )
    if max_attempts == 1:
        return None
    new = _copy(record)
    new["num_attempts"] += 1
    new.pop("exc", None)
    last = new.pop("exc_reason", None)
    if new["num_attempts"] > max_attempts:
        raise errors.NoValidBackend(
            reason="Exceeded max scheduling attempts %d for volume %s" % (max_attempts, volume_id),
            remedy="The last one failed on %s%s."
            % (", ".join(new["backends"][-1:]) or "no backend", ": %s" % last if last else ""),
            max_attempts=max_attempts,
            volume_id=volume_id,
            backends=list(new["backends"]),
        )
    return new


def record_backend(record: t.Mapping[str, t.Any] | None, backend: str) -> Record | None:
    """The record with the chosen backend."""
    if record is None:
        return None
    new = _copy(record)
    new["backends"].append(backend)
    return new


def record_failure(record: t.Mapping[str, t.Any] | None, error: errors.BootflowError) -> Record | None:
    """The record with the reason of the failed attempt."""
    if record is None:
        return None
    new = _copy(record)
    new["exc"] = "%s: %s" % (error.code, error.message)
    new["exc_reason"] = error.message
    return new


def _copy(record: t.Mapping[str, t.Any] | None) -> Record:
    new: Record = dict(record) if isinstance(record, t.Mapping) else {}
    attempts, backends = new.get("num_attempts", 0), new.get("backends", ())
    sound = (
        isinstance(attempts, int) and isinstance(backends, (list, tuple)) and all(isinstance(b, str) for b in backends)
    )
    if (record and not new) or not sound:
        raise errors.InvalidInput(
            reason="the value is not a retry record", remedy="Use {num_attempts: 1, backends: [host@backend#pool]}."
        )
    new.update(num_attempts=int(attempts), backends=list(backends))
    return new
