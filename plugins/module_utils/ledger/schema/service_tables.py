# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of rolling services of hosts. See tables.py."""

from __future__ import annotations

from ...core.service import host_life
from ..db.sqlalchemy_import import sa
from .base import metadata, one_of

services = sa.Table(
    "services",
    metadata,
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("run_id", sa.String(64)),  # that works on it; None: none
    sa.Column("started_at", sa.Float, nullable=False),
    sa.Column("longest", sa.Float, nullable=False, default=0.0, server_default="0"),  # seconds of hosts together
)

service_hosts = sa.Table(
    "service_hosts",
    metadata,
    sa.Column("service", sa.String(255), sa.ForeignKey("services.name", ondelete="CASCADE"), primary_key=True),
    sa.Column("host", sa.String(255), primary_key=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("changed_at", sa.Float, nullable=False),  # its state
    one_of("service_hosts", "state", host_life.STATES),
)

# The instances that were on a host when its service began.
service_instances = sa.Table(
    "service_instances",
    metadata,
    sa.Column("service", sa.String(255), primary_key=True),
    sa.Column("host", sa.String(255), primary_key=True),
    sa.Column("instance_uuid", sa.String(36), primary_key=True),
    sa.ForeignKeyConstraint(
        ["service", "host"],
        ["service_hosts.service", "service_hosts.host"],
        name="fk_service_instances_service",
        ondelete="CASCADE",
    ),
)
