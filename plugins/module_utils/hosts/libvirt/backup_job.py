# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether QEMU works for a backup of a guest. libvirt lets a snapshot, a suspend and a migration wait for half a minute then, and names the monitor."""

from __future__ import annotations

import os
import typing as t

from ...core.errors import BackupRuns
from .connection import is_code, libvirt, libvirt_errors


def runs_backup(domain: t.Any) -> bool:
    """Return whether a backup of the guest runs."""
    with libvirt_errors():
        try:
            job = domain.jobStats()
        except libvirt.libvirtError as error:
            if is_code(error, "VIR_ERR_OPERATION_INVALID", "VIR_ERR_OPERATION_UNSUPPORTED", "VIR_ERR_NO_SUPPORT"):
                return False  # it does not run, or its libvirt knows no backups
            raise
    backup = getattr(libvirt, "VIR_DOMAIN_JOB_OPERATION_BACKUP", None)
    return bool(job.get("type")) and backup is not None and job.get("operation") == backup


def refuse_running_backup(domain: t.Any) -> None:
    """:raises BackupRuns: a backup of the guest runs."""
    if runs_backup(domain):
        raise BackupRuns(domain=domain.name(), host=os.uname().nodename)
