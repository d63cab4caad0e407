# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of incremental backups."""

from __future__ import annotations

from .base import BootflowError, Conflict, NotFound


class BackupNotFound(NotFound):
    """No complete backup has the id."""

    msg_fmt = "Backup %(backup_id)s could not be found."
    remedy = "bootflow.compute.incremental_backup_list shows the backups."


class BackupInUse(Conflict):
    """Later backups need the backup, or a run writes it."""

    msg_fmt = "Backup %(backup_id)s is in use: %(reason)s"


class BackupRuns(Conflict):
    """QEMU works for a backup of the guest, and what was requested has to wait."""

    msg_fmt = "A backup of guest %(domain)s runs on host %(host)s"
    status = 409
    retryable = True
    remedy = "Run the playbook again when the backup has ended. One that a program forgot ends with: virsh domjobabort DOMAIN."


class BackupFailed(BootflowError):
    """QEMU or the host did not finish the backup. Nothing of it is left, and the guest goes on."""

    msg_fmt = "The backup of instance %(instance_uuid)s failed: %(reason)s"


class BackupDamaged(BootflowError):
    """A file of the backup, or of one that it needs, is missing or has other content."""

    msg_fmt = "Backup %(backup_id)s cannot be used: %(reason)s"
    remedy = (
        "Restore another backup; the next backup of the instance with bootflow_backup_full: true does not need this one."
        " bootflow.compute.incremental_backup_verify finds all that are damaged."
    )
