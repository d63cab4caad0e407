# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of security groups. See tables.py.

A port has the groups of port_security_groups if its ``has_own_groups`` is true, else the default group of its project: a boot that names no
group writes nothing here.
"""

from __future__ import annotations

from ...core.networks import security_rules
from ..db.sqlalchemy_import import sa
from .base import metadata, one_of

security_groups = sa.Table(
    "security_groups",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("project", sa.String(255), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("description", sa.String(255), nullable=False, default="", server_default=""),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.UniqueConstraint("project", "name", name="uq_security_groups_project_name"),
)

security_group_rules = sa.Table(
    "security_group_rules",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("security_group_id", sa.String(36), sa.ForeignKey("security_groups.id"), nullable=False, index=True),
    sa.Column("direction", sa.String(8), nullable=False),
    sa.Column("ethertype", sa.String(4), nullable=False),
    sa.Column("protocol", sa.String(8)),
    sa.Column("port_range_min", sa.Integer),
    sa.Column("port_range_max", sa.Integer),
    sa.Column("remote_ip_prefix", sa.String(43)),
    sa.Column("remote_group_id", sa.String(36), sa.ForeignKey("security_groups.id"), index=True),
    sa.Column("description", sa.String(255), nullable=False, default="", server_default=""),
    sa.Column("created_at", sa.Float, nullable=False),
    one_of("security_group_rules", "direction", security_rules.DIRECTIONS),
    one_of("security_group_rules", "ethertype", security_rules.ETHERTYPES),
)

port_security_groups = sa.Table(
    "port_security_groups",
    metadata,
    sa.Column("port_id", sa.String(36), sa.ForeignKey("ports.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("security_group_id", sa.String(36), sa.ForeignKey("security_groups.id"), primary_key=True, index=True),
)

# Numbers of the states of a host's packet filters: each document has the next one, and so has each change that a document is due for. A host
# refuses an older document. ``applied``: of the document that the host has; it is due for another one while this is less than ``revision``.
port_filter_revisions = sa.Table(
    "port_filter_revisions",
    metadata,
    sa.Column("host", sa.String(255), primary_key=True),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("applied", sa.Integer, nullable=False, default=0, server_default="0"),
)
