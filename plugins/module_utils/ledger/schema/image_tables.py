# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of images. See tables.py."""

from __future__ import annotations

from ...core.images import life
from ...core.images.image import BARE, VISIBILITIES
from ..db.sqlalchemy_import import sa
from .base import metadata, one_of, partial_index

# The rows of partial indexes.
AT_WORK = "deleted = '' AND status IN ('queued', 'saving')"

# Only the events of core.images.life change the status.
images = sa.Table(
    "images",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("project", sa.String(255), nullable=False),
    sa.Column("user_name", sa.String(255), nullable=False, default=""),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("visibility", sa.String(16), nullable=False),
    sa.Column("protected", sa.Boolean, nullable=False, default=False),
    sa.Column("size", sa.BigInteger),  # bytes of the file
    sa.Column("checksum", sa.String(64), nullable=False, default=""),  # sha256 of the file
    sa.Column("requested_checksum", sa.Text, nullable=False, default=""),  # as core.disks.checksums writes it
    sa.Column("disk_format", sa.String(16)),
    sa.Column("container_format", sa.String(16), nullable=False, default=BARE),
    sa.Column("min_disk", sa.Integer, nullable=False, default=0),
    sa.Column("min_ram", sa.Integer, nullable=False, default=0),
    sa.Column("properties", sa.JSON, nullable=False),
    sa.Column("instance_uuid", sa.String(36), index=True),  # of which it is a snapshot; the image outlives it
    sa.Column("fault", sa.Text, nullable=False, default=""),  # why its bytes did not arrive
    sa.Column("run_id", sa.String(64)),  # that wrote it last; the status shows work on it
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("updated_at", sa.Float, nullable=False),
    sa.Column("deleted_at", sa.Float),
    # '' while live, the id afterwards. Several images may have the same name, as in Glance.
    sa.Column("deleted", sa.String(36), nullable=False, default=""),
    sa.Index("ix_images_name", "project", "name", "deleted"),
    partial_index("ix_images_at_work", "deleted", "run_id", where=AT_WORK),
    one_of("images", "status", life.STATUSES),
    one_of("images", "visibility", VISIBILITIES),
)

# The UEFI variables of guests when images of them were made, see core.guest.nvram.pack(). A row goes with its image.
image_nvrams = sa.Table(
    "image_nvrams",
    metadata,
    sa.Column("image_id", sa.String(36), sa.ForeignKey("images.id"), primary_key=True),
    sa.Column("data", sa.Text, nullable=False),
)

# The files of images in stores. A row is there as long as the store may have something of the image.
image_places = sa.Table(
    "image_places",
    metadata,
    sa.Column("image_id", sa.String(36), sa.ForeignKey("images.id"), primary_key=True),
    sa.Column("store", sa.String(255), primary_key=True),
    sa.Column("progress", sa.String(8), nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("updated_at", sa.Float, nullable=False),
    one_of("image_places", "progress", tuple(p for p in life.PROGRESS if p != life.NONE)),
)
