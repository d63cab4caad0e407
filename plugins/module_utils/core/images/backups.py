# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of a backup: an image of an instance with a type, of which the newest ones are kept.

source: Nova's createBackup, API.backup and ComputeManager._rotate_backups
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..errors import InvalidInput
from .image import StoredImage
from .snapshot_properties import BACKUP, NON_INHERITABLE
from .snapshots import LONGEST, SnapshotRequest, is_of, read_extra, read_name
from .stores.store_kind import ImageStore

#: Of a backup's name: the time of the backup.
DATE = "%(date)s"


class Backup(t.NamedTuple):
    """An active backup, in the order of its age."""

    created_at: float  # seconds since the epoch
    id: str


@dataclass(frozen=True)
class BackupRequest(SnapshotRequest):
    """The backups of one run. ``rotation``: how many of the type each instance keeps"""

    backup_type: str = ""
    rotation: int = 0

    variable = "bootflow_backup_name"
    noun = "backup"

    def check_volume_backed(self, instance_name: str, instance_uuid: str, vm_state: str) -> None:
        """:raises InvalidInput: there are no backups of instances whose root is a volume."""
        raise InvalidInput(
            message="Backup is not supported for volume-backed instances: %s" % instance_name,
            remedy="Make a snapshot of it: bootflow.compute.snapshot.",
        )

    def existing_of(self, named: t.Sequence[StoredImage], instance_name: str, instance_uuid: str) -> StoredImage | None:
        """Return None: a backup is made each time. Only backups of one instance share a name, so that others stay unambiguous.

        :raises ImageExists: the name is that of another image.
        """
        for image in named:
            if not is_of(image, instance_uuid, BACKUP):
                raise self.exists(image, instance_name)
        return None

    def properties_of(
        self, inherited_properties: t.Mapping[str, t.Any], instance_uuid: str, user: str
    ) -> dict[str, t.Any]:
        """Return the properties of an image. The rotation goes by these two, so that they take precedence over given ones."""
        properties = super().properties_of(inherited_properties, instance_uuid, user)
        return {**properties, "image_type": BACKUP, "backup_type": self.backup_type}


def read_request(
    name: str | None,
    backup_type: str | None,
    rotation: int | None,
    store: ImageStore,
    extra: t.Mapping[str, t.Any] | None,
    non_inheritable: t.Sequence[str] = NON_INHERITABLE,
    date: str = "",
) -> BackupRequest:
    """The request of a run.

    :arg extra: bootflow_snapshot_properties. :arg date: takes the place of DATE in the name
    :raises InvalidInput: a variable is missing, or the type has another length. :raises InvalidMetadata: see snapshots.read_extra()
    """
    checked_name = read_name(BackupRequest.variable, name)
    if backup_type is None:
        raise InvalidInput(
            message="bootflow_backup_type is not set", remedy="Give a type, as daily: each type has its own rotation."
        )
    if not 1 <= len(backup_type) <= LONGEST:
        raise InvalidInput(
            message="bootflow_backup_type must have 1 to %d characters, has %d" % (LONGEST, len(backup_type)),
            remedy="Give a type, as daily.",
        )
    if rotation is None:
        raise InvalidInput(
            message="bootflow_backup_rotation is not set",
            remedy="Say how many backups of this type each instance keeps. Older ones are deleted.",
        )
    return BackupRequest(
        checked_name.replace(DATE, date),
        store,
        read_extra(extra),
        non_inheritable,
        backup_type=backup_type,
        rotation=rotation,
    )


def is_of_type(properties: t.Mapping[str, t.Any], backup_type: str) -> bool:
    """Whether an image with these properties is a backup of this type."""
    return properties.get("image_type") == BACKUP and properties.get("backup_type") == backup_type


def beyond_rotation(backups: t.Iterable[Backup], rotation: int, made_id: str) -> list[str]:
    """Return the ids of the backups to delete, the oldest first. :arg made_id: of the new one, which is the newest whatever a clock says"""
    by_age = sorted(backups, key=lambda backup: (backup.id == made_id, backup))
    return [backup.id for backup in by_age[: max(0, len(by_age) - rotation)]]
