# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An image of the ledger. The catalogue's images are core.model.Image.

source: Glance's image, Nova's image metadata
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from . import life

PRIVATE, PUBLIC, COMMUNITY = "private", "public", "community"
VISIBILITIES = (PRIVATE, PUBLIC, COMMUNITY)

BARE = "bare"  # Glance's container format of a file that is the disk itself
AMAZON = ("ami", "ari", "aki")  # disk formats that Glance admits in the container format of the same name only


def container_format_of(disk_format: str | None) -> str:
    """Return the container format that Glance has for a disk format."""
    return disk_format if disk_format in AMAZON else BARE


@dataclass(frozen=True)
class Place:
    """A file of an image in a store. ``progress``: see life.State."""

    store: str
    progress: str


@dataclass(frozen=True)
class StoredImage:
    """An image of the ledger, with the stores that have its bytes."""

    id: str
    name: str
    project: str
    status: str = life.QUEUED
    visibility: str = PRIVATE
    protected: bool = False  # from deletion
    user: str = ""
    size: int | None = None  # bytes of the file; None until a store has it
    checksum: str = ""  # sha256 of the file; "" until a store has it
    requested_checksum: str = ""  # with which the upload was requested, as disks.checksums writes it
    disk_format: str | None = None  # None: of an image without bytes
    container_format: str = BARE
    min_disk: int = 0  # GB
    min_ram: int = 0  # MB
    properties: t.Mapping[str, t.Any] = field(default_factory=dict)
    instance_uuid: str | None = None  # of which it is a snapshot
    fault: str = ""  # why its bytes did not arrive
    places: tuple[Place, ...] = ()

    @property
    def readable_stores(self) -> tuple[str, ...]:
        """The stores that have all bytes."""
        return tuple(place.store for place in self.places if place.progress == life.DONE)

    def is_listed_for(self, project: str | None) -> bool:
        """Whether the image is in the list of a project, which has the project's images and public ones. :arg project: None: an administrator, who sees all"""
        return project is None or self.project == project or self.visibility == PUBLIC

    def may_be_used_by(self, project: str | None) -> bool:
        """Whether a project may use the image where it names its id: a community image is used by all who know it."""
        return self.is_listed_for(project) or self.visibility == COMMUNITY

    def may_be_changed_by(self, project: str | None) -> bool:
        """Whether a project may change or delete the image."""
        return project is None or self.project == project
