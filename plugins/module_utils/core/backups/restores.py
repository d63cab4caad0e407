# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The entries of bootflow_backup_restores: the images to make of backups."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..errors import ImageExists
from ..images.image import StoredImage
from ..images.snapshots import SnapshotRequest
from ..images.stores.registry import ImageStores
from ..images.stores.store_kind import ImageStore
from ..reading.fields import Fields, read_entries

#: The property of an image that was made of a backup: the id of the backup.
BACKUP_ID = "incremental_backup_id"


@dataclass(frozen=True)
class Restore:
    """An entry. Either ``backup`` (id) or ``instance`` (name or UUID) is given."""

    path: str  # of the entry, for errors
    name: str  # of the image
    backup: str
    instance: str
    store: ImageStore

    def image_of(
        self,
        image_id: str,
        backup_id: str,
        instance_name: str,
        instance_uuid: str,
        project: str,
        user: str,
        spec: t.Mapping[str, t.Any],
        non_inheritable: t.Sequence[str],
    ) -> StoredImage:
        """Return the image, without bytes: that of a snapshot at the time of the backup. :arg spec: ``image`` and ``flavor`` of the instance then"""
        request = SnapshotRequest(self.name, self.store, {BACKUP_ID: backup_id}, non_inheritable)
        return request.image_of(image_id, instance_name, instance_uuid, project, user, spec)

    def existing_of(self, named: t.Sequence[StoredImage], backup_id: str) -> StoredImage | None:
        """Return the image that need not be made again. :arg named: active images of its name in the project

        :raises ImageExists: the name is that of another image.
        """
        for image in named:
            if len(named) > 1 or image.properties.get(BACKUP_ID) != backup_id:
                wanted = "an image of backup %s" % backup_id
                raise ImageExists(name=image.name, image_id=image.id, has="other content", wanted=wanted)
        return named[0] if named else None


def read_restores(data: t.Any, stores: ImageStores) -> list[Restore]:
    """Return the entries. :raises InvalidRequest: all errors, the paths beginning with backup_restores"""
    return read_entries("backup_restores", data, lambda fields: _read(fields, stores))


def _read(fields: Fields, stores: ImageStores) -> Restore | None:
    name, backup, instance, store_name = (fields.text(n) for n in ("name", "backup", "instance", "store"))
    if not name:
        fields.wrong("name", "is missing", "Name the image.")
    if bool(backup) == bool(instance):
        fields.wrong(
            "backup", "or instance must be given, one of them", "bootflow.compute.incremental_backup_list has ids."
        )
    with fields.problems.collect(fields.at("store")):
        store = stores.get(store_name) if store_name else stores.default()
        return Restore(fields.path, name, backup, instance, store)
    return None
