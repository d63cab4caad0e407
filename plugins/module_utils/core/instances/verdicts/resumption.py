# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fate of an instance whose guest is started again after a restart of its host. One stage of a host: ``resume``.

source: Nova's ComputeManager._init_instance
"""

from __future__ import annotations

from ... import errors
from .. import states
from .answer import Answer, error_of, is_silence

#: Errors that delay the start of a guest, and are not the guest's: after a power failure storage hosts may come later.
_NOT_YET = (
    errors.HostUnreachable,
    errors.HypervisorUnavailable,
    errors.LedgerError,
    errors.FailedISCSITargetPortalLogin,
    errors.VolumeDeviceNotFound,
)

#: What QEMU says where it logs in by itself, and the storage host is not reached; one that refuses it fails later.
_NO_STORAGE = "iSCSI: Failed to connect to LUN : Failed to start full connect"


def vm_state(answer: Answer) -> str | None:
    """Return the vm_state of an instance whose guest was not started; None: it was.

    An instance that cannot be started for a while stays active, and the next sync tries it again. One that cannot be started at all is in error.
    """
    error = error_of(answer)
    if error is None:
        return None
    return states.ACTIVE if is_silence(answer) or is_temporary(error) else states.ERROR


def is_temporary(error: errors.BootflowError) -> bool:
    """Whether the guest may start later, without anybody changing it."""
    if isinstance(error, errors.FailedISCSITargetPortalLogin) and not error.retryable:
        return False  # the target is there, and lets this host in no longer
    return isinstance(error, _NOT_YET) or (isinstance(error, errors.LibvirtError) and _NO_STORAGE in error.message)
