# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables and texts about volumes, snapshots and backends."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ..run.tables import table

View = t.Mapping[str, t.Any]


def volume_table(views: t.Sequence[View]) -> list[str]:
    """Return the table that volume_create ends with, and volume_list begins with."""
    head = ("VOLUME", "ID", "SIZE_GB", "STATUS", "TYPE", "BOOTABLE", "BACKEND", "ATTACHED_TO")
    rows = [
        (
            v["name"] or "-",
            v["id"],
            v["size"],
            v["status"],
            v["volume_type"] or "-",
            "yes" if v["bootable"] else "no",
            v["pool_host"] or "-",
            ", ".join(_attached(v)) or "-",
        )
        for v in views
    ]
    return table(head, rows)


def _attached(view: View) -> list[str]:
    return ["%s on %s" % (a["instance"] or a["instance_uuid"], a["device"] or "-") for a in view["attached_to"]]


def snapshot_table(views: t.Sequence[View]) -> list[str]:
    head = ("SNAPSHOT", "ID", "VOLUME", "SIZE_GB", "STATUS")
    return table(
        head, [(v["name"] or "-", v["id"], v["volume_name"] or v["volume_id"], v["size"], v["status"]) for v in views]
    )


def backend_table(views: t.Sequence[View]) -> list[str]:
    """Capacities as last reported; what was placed since is in PENDING_GB. DATA is how far a thin pool is filled.

    Orphans are our volumes that are unknown to the ledger.
    """
    head = (
        "BACKEND", "ZONE", "STATE", "TOTAL_GB", "FREE_GB", "PROVISIONED_GB", "PENDING_GB", "DATA", "VOLUMES", "ORPHANS",
    )  # fmt: skip
    rows = [
        (
            v["pool_host"],
            v["availability_zone"],
            _state(v),
            v["total_gb"],
            v["free_gb"],
            v["provisioned_gb"],
            v["pending_gb"],
            "-" if v["data_percent"] is None else "%.0f %%" % v["data_percent"],
            v["volume_count"],
            len(v["orphans"]),
        )
        for v in views
    ]
    return table(head, rows)


def _state(view: View) -> str:
    for word in ("disabled", "frozen"):
        if view[word]:
            return word
    if view["error"]:
        return view["error"].get("code") or "error"
    return "up" if view["reported_at"] is not None else "not reported"


def failed_item(view: View) -> dict[str, t.Any]:
    """A volume or snapshot as an item of an Incomplete."""
    name, state = view.get("name") or view["id"], view.get("status") or "unknown"
    return errors.failed_item(name, view["id"], view.get("fault"), view.get("tried") or (), state="status is " + state)
