# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of backups: a chain becomes one file without a base. All bytes of the chain are compared with their checksums before."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass

from ...core.disks.local import QCOW2
from ...core.errors import BackupDamaged
from ..os.batch import progress
from ..os.files import remove_files
from ..os.paths import checked_id
from ..os.room import check_room
from ..snapshots.files import Target, convert
from ..snapshots.volume import make_own
from . import folder
from .folder import StoredBackup


@dataclass(frozen=True)
class RestoreSpec:
    """The image to make of the last backup of ``chain``, the full one first."""

    image_id: str
    chain: tuple[StoredBackup, ...]


def take(spec: RestoreSpec, target: Target, check_mode: bool = False) -> dict[str, t.Any]:
    """Make an image of a backup. Returns {changed, disk_format, seconds, path, size, checksum}.

    :raises BackupDamaged: a file of the chain is missing, or has other content. :raises DiskFull: there is no room, which is looked at before.
    :raises CommandFailed, ImageUnacceptable: as named.
    """
    begin = time.monotonic()
    image_id, last = checked_id(spec.image_id, "image id"), spec.chain[-1]
    wrong = folder.damage(spec.chain, hashed=not check_mode)
    if wrong:
        raise BackupDamaged(backup_id=last.id, reason=wrong)
    outcome: dict[str, t.Any] = {"changed": True, "disk_format": QCOW2}
    if not check_mode:
        make_own(target)
        room = min(sum(stored.size for stored in spec.chain), last.virtual_size)
        check_room(target.folder, room + room // 1000 + 1024**2, "the image needs")
        progress.mark_changed()
        part = target.part_of(image_id)
        remove_files(part)  # of a killed run: the ledger gives an image to one run
        try:
            convert(last.path, QCOW2, part, QCOW2)
            outcome.update(target.publish(part, image_id, QCOW2))
        finally:
            remove_files(part)
    return {**outcome, "seconds": round(time.monotonic() - begin, 3)}
