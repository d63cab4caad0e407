# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compute nodes on PostgreSQL packed as the scheduler reads them. Frozen: a later change is a revision of its own."""

from __future__ import annotations

import typing as t

from ...db.database_kind import kind_of
from ...db.sqlalchemy_import import sa

revision = "0014"

NUMBERS = (
    ("int4send", "id"),
    ("int4send", "memory_mb"),
    ("int4send", "memory_mb_used"),
    ("int4send", "reserved_memory_mb"),
    ("int4send", "local_gb"),
    ("int4send", "local_gb_used"),
    ("int4send", "reserved_disk_gb"),
    ("int4send", "vcpus"),
    ("int4send", "vcpus_used"),
    ("int4send", "reserved_vcpus"),
    ("int4send", "coalesce(disk_available_least, -2147483648)"),
    ("float8send", "ram_allocation_ratio"),
    ("float8send", "disk_allocation_ratio"),
    ("float8send", "cpu_allocation_ratio"),
    ("boolsend", "disabled"),
    ("boolsend", "(disabled OR service_disabled)"),
    ("boolsend", "(forced_down OR unreachable_reason IS NOT NULL)"),
    ("boolsend", "(has_pci OR has_disks)"),
    ("boolsend", "(disabled_reason <> '')"),
    ("int4send", "hypervisor_version"),
    ("int4send", "num_instances"),
    ("int4send", "failed_builds"),
    ("float8send", "coalesce(reported_at, 'NaN')"),
    ("int4send", "coalesce(profile_id, -2147483648)"),
)
NAMES = ("host", "node", "availability_zone")
TEXTS = ("host_ip", "hypervisor_type", "disabled_reason")


def upgrade(op: t.Any) -> None:
    if not kind_of(op.get_bind()).has_byte_functions:
        return
    columns = {
        "packed_numbers": "BYTEA GENERATED ALWAYS AS (%s) STORED" % " || ".join("%s(%s)" % n for n in NUMBERS),
        "packed_names": "TEXT GENERATED ALWAYS AS (%s) STORED" % " || chr(31) || ".join(NAMES),
        "packed_texts": "TEXT GENERATED ALWAYS AS (%s) STORED" % " || chr(31) || ".join(TEXTS),
    }
    added = ", ".join("ADD COLUMN %s %s" % column for column in columns.items())
    op.execute(sa.text("ALTER TABLE compute_nodes " + added))
