# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables and texts about images."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ..run.tables import amount, table

View = t.Mapping[str, t.Any]


def image_table(views: t.Sequence[View]) -> list[str]:
    """Return the table that image_list prints, and image_import ends with."""
    head = ("IMAGE", "ID", "STATUS", "SIZE", "FORMAT", "VISIBILITY", "PROJECT", "STORES")
    rows = [
        (
            v["name"],
            v["id"],
            v["status"],
            "-" if v["size"] is None else amount(v["size"]),
            v["disk_format"] or "-",
            v["visibility"] + (", protected" if v["protected"] else ""),
            v["project"],
            ", ".join(v["stores"]) or "-",
        )
        for v in views
    ]
    lines = table(head, rows)
    faults = ["  %s: %s" % (v["name"], v["fault"]) for v in views if v["fault"]]
    return [*lines, "", "Faults:", *faults] if faults else lines


def failed_image(view: View) -> dict[str, t.Any]:
    """An image whose bytes did not arrive, as an item of an Incomplete."""
    error = errors.ImageNotReadable(image_id=view["name"], reason=view["fault"])
    return errors.failed_item(view["name"], view["id"], error.as_dict(), state="status is %s" % view["status"])


def image_with_file(view: View) -> dict[str, t.Any]:
    """A deleted image whose file is still in a store, as an item of an Incomplete."""
    return errors.failed_item(view["name"], view["id"], None, state="still in %s" % ", ".join(view["stores"]))
