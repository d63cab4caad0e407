# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables of incremental backups, without the ones of the operation that makes them."""

from __future__ import annotations

from ..reading.setting import REQUESTS, UUIDS, Setting, Table
from .request import QUOTA
from .selection import SELECTION

BACKUP_SELECTION = Table(
    (
        Setting("backup_ids", UUIDS, help="UUIDs of incremental backups to list, verify or delete."),
        SELECTION.named("names").but(
            help="Names of instances, also deleted ones, whose incremental backups are meant."
        ),
        SELECTION.named("uuids").but(
            help="UUIDs of instances, also deleted ones, whose incremental backups are meant."
        ),
        QUOTA.named("project").but(default=None, help="Only incremental backups of this project."),
    )
)

BACKUP_DELETION = Table(
    (
        Setting(
            "backup_keep",
            int,
            help="Playbook `incremental_backup_delete`: how many of the newest backups each selected instance keeps. Their parents stay, too.",
            least=0,
        ),
    )
)

BACKUP_RESTORE = Table(
    (
        Setting(
            "backup_restores",
            REQUESTS,
            help="Playbook `incremental_backup_restore`: the images to make, each with `name` (of the image) and `backup` (its id) or `instance` (name or"
            " UUID, whose newest backup is meant), and `store` (the first of `bootflow_image_stores` by default).",
            required=True,
        ),
    )
)
