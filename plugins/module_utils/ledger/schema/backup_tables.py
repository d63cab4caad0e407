# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of incremental backups. See tables.py."""

from __future__ import annotations

from ...core.backups import backup
from ..db.sqlalchemy_import import sa
from .base import metadata, one_of

# Only ledger.backups.backups writes the state. A backup outlives its instance.
instance_backups = sa.Table(
    "instance_backups",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("instance_uuid", sa.String(36), nullable=False, index=True),
    sa.Column("instance_name", sa.String(255), nullable=False),
    sa.Column("project", sa.String(255), nullable=False),
    sa.Column("user_name", sa.String(255), nullable=False, default=""),
    sa.Column("parent_id", sa.String(36)),  # None: it is full
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text, nullable=False, default=""),  # why it is full
    sa.Column("fault", sa.Text, nullable=False, default=""),  # why its bytes did not arrive
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("folder", sa.Text, nullable=False, default=""),  # of the host
    sa.Column("file", sa.String(255), nullable=False, default=""),  # in the folder
    sa.Column("size", sa.BigInteger),  # bytes of the file
    sa.Column("virtual_size", sa.BigInteger),  # bytes of the disk
    sa.Column("checksum", sa.String(64), nullable=False, default=""),  # sha256 of the file
    sa.Column("checkpoint", sa.String(255), nullable=False, default=""),  # of libvirt; '': none
    sa.Column("checkpoint_xml", sa.Text, nullable=False, default=""),
    sa.Column(
        "spec", sa.JSON, nullable=False
    ),  # image and flavor of the instance, for images that are made of the backup
    sa.Column("run_id", sa.String(64)),  # that wrote it last
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("finished_at", sa.Float),
    sa.Column("verified_at", sa.Float),  # when its host read it back last; None: never
    sa.Column("damage", sa.Text, nullable=False, default="", server_default=""),  # what was wrong with its file then
    sa.Column("deleted_at", sa.Float),
    sa.Column("deleted", sa.String(36), nullable=False, default=""),  # '' while live, the id afterwards
    one_of("instance_backups", "kind", backup.KINDS),
    one_of("instance_backups", "state", backup.STATES),
)
