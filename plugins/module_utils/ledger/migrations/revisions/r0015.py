# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compute nodes on sqlite packed as the scheduler reads them. Frozen: a later change is a revision of its own."""

from __future__ import annotations

import typing as t

from ...db.database_kind import kind_of
from ...db.sqlalchemy_import import sa

revision = "0015"

INTEGERS = (
    "id",
    "memory_mb",
    "memory_mb_used",
    "reserved_memory_mb",
    "local_gb",
    "local_gb_used",
    "reserved_disk_gb",
    "vcpus",
    "vcpus_used",
    "reserved_vcpus",
    "coalesce(disk_available_least, -2147483648)",
    "hypervisor_version",
    "num_instances",
    "failed_builds",
    "coalesce(profile_id, -2147483648)",
)
BOOLEANS = (
    "disabled",
    "(disabled OR service_disabled)",
    "(forced_down OR unreachable_reason IS NOT NULL)",
    "(has_pci OR has_disks)",
    "(disabled_reason <> '')",
)
RATIOS = ("ram_allocation_ratio", "disk_allocation_ratio", "cpu_allocation_ratio")


def upgrade(op: t.Any) -> None:
    if kind_of(op.get_bind()).has_byte_functions:
        return
    are_integers = "%s = '%s' AND min(%s) >= -2147483648 AND max(%s) < 2147483648" % (
        " || ".join("typeof(%s)" % value for value in INTEGERS),
        "integer" * len(INTEGERS),
        ", ".join(INTEGERS),
        ", ".join(INTEGERS),
    )
    digits = "printf('%s', %s)" % (
        "%08x" * len(INTEGERS) + "%02x" * len(BOOLEANS),
        ", ".join([*("%s & 4294967295" % value for value in INTEGERS), *("%s <> 0" % value for value in BOOLEANS)]),
    )
    columns = {
        "packed_integers": "CASE WHEN %s THEN %s END" % (are_integers, digits),
        "packed_ratios": " || ',' || ".join("quote(%s)" % name for name in RATIOS),
        "packed_reported": "CASE WHEN reported_at IS NULL THEN 'nan' ELSE quote(reported_at) END",
    }
    with op.batch_alter_table("compute_nodes", recreate="always") as batch:
        for name, value in columns.items():
            batch.add_column(sa.Column(name, sa.Text(), sa.Computed(value, persisted=True)))
