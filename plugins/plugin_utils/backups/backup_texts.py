# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of backups."""

from __future__ import annotations

import typing as t

from ..run.tables import amount, table


def backup_table(views: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """Return the table that incremental_backup_list prints."""
    head = ("INSTANCE", "BACKUP", "KIND", "STATE", "CREATED", "SIZE", "VERIFIED", "HOST", "NOTE")
    rows = [
        (
            v["instance"],
            v["id"],
            v["kind"],
            v["state"],
            v["created_at"],
            "-" if v["size"] is None else amount(v["size"]),
            v["verified_at"] or "-",
            v["host"],
            "damaged: %s" % v["damage"]
            if v["damage"]
            else v["fault"] or v["reason"] or ("on %s" % v["parent_id"] if v["parent_id"] else ""),
        )
        for v in views
    ]
    return table(head, rows)
