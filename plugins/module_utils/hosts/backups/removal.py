# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Backups that are removed from this host: their files, and their checkpoints where libvirt has them."""

from __future__ import annotations

import typing as t

from ...core.backups.backup import checkpoint_name, file_name
from ...core.errors import BootflowError
from ..libvirt.running import find_domain
from ..os.batch import progress
from ..os.paths import checked_id
from . import checkpoints, folder
from .folder import folder_of


def remove(
    connection: t.Any, uuid: str, backup_id: str, place: str, directory: str, check_mode: bool = False
) -> dict[str, t.Any]:
    """Remove a backup. Returns {changed}. A checkpoint that libvirt does not delete is deleted by the next backup of the instance.

    :arg place: the folder of the file; "": that of the instance in ``directory``. :arg connection: None: libvirt does not answer
    """
    own = place or folder_of(directory, uuid)
    is_stored = folder.exists(own, file_name(checked_id(backup_id, "backup id")))
    if check_mode:
        return {"changed": is_stored}
    progress.mark_changed()
    deleted = False
    if connection is not None:
        try:
            domain = find_domain(connection, uuid)
            deleted = domain is not None and checkpoints.delete(domain, checkpoint_name(backup_id))
        except BootflowError:
            pass
    folder.remove(own, [backup_id])
    return {"changed": is_stored or deleted}
