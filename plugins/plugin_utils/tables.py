# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables and texts for the person at the terminal."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core.legible import legible


def table(head: t.Sequence[str], rows: t.Sequence[t.Sequence[t.Any]]) -> list[str]:
    """Lines of a plain table."""
    texts = [[("" if v is None else legible(str(v)).replace("\n", "\\n")) for v in row] for row in rows]
    widths = [max([len(h)] + [len(r[i]) for r in texts]) for i, h in enumerate(head)]
    lines = ["  ".join(h.ljust(w) for h, w in zip(head, widths)).rstrip(), "  ".join("-" * w for w in widths)]
    lines += ["  ".join(v.ljust(w) for v, w in zip(row, widths)).rstrip() for row in texts]
    return lines


def instance_table(views: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """The table of instances: what boot and list end with."""
    head = ("INSTANCE", "UUID", "VM_STATE", "TASK_STATE", "HOST", "ADDRESSES", "SECONDS")
    rows = [
        (
            v["name"],
            v["uuid"],
            v["vm_state"],
            v["task_state"] or "-",
            v["host"] or "-",
            ", ".join(v["addresses"]) or "-",
            "-" if v["seconds"] is None else "%.1f" % v["seconds"],
        )
        for v in views
    ]
    return table(head, rows)


def show(display: t.Any, lines: t.Sequence[str]) -> None:
    """Print lines as they are, between the tasks' own output."""
    display.display("\n" + legible("\n".join(lines)) + "\n")
