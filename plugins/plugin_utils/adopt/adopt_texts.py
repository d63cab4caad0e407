# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables of adoptions and releases."""

from __future__ import annotations

import typing as t

from ..run import tables

Views = t.Sequence[t.Mapping[str, t.Any]]

_HEAD = ("DOMAIN", "HOST", "INSTANCE", "VM_STATE", "MEMORY_MB", "VCPUS", "DISK_GB", "ADDRESSES", "UUID")
_STATES = {"adopt": "%d to adopt", "adopted": "%d adopted before", "refused": "%d not adoptable"}
_DONE = {**_STATES, "adopt": "%d adopted"}


def adoption_lines(views: Views, planned: bool) -> list[str]:
    """Return the lines of an adoption: a table of what becomes an instance, and why other domains do not. :arg planned: nothing was written"""
    if not views:
        return ["adopt: the hosts have no domain of other software."]
    adopted = [view for view in views if view["state"] == "adopt"]
    lines = ["Plan (nothing is touched):"] if planned else []
    if adopted:
        lines += tables.table(_HEAD, [_row(view) for view in adopted])
        lines += ["  %s: %s" % (view["domain"], note) for view in adopted for note in view["notes"]]
    for view in views:
        for reason in view["reasons"]:
            lines.append("! %s on %s: %s (%s)" % (view["domain"], view["host"], reason["message"], reason["code"]))
            lines.append("    %s" % reason["remedy"])
    counts = {state: sum(view["state"] == state for view in views) for state in _STATES}
    words = _STATES if planned else _DONE
    return [*lines, "%s." % ", ".join(words[state] % count for state, count in counts.items() if count)]


def _row(view: t.Mapping[str, t.Any]) -> tuple[t.Any, ...]:
    addresses = ["%s=%s" % (port["network"], "+".join(port["addresses"]) or "?") for port in view["ports"]]
    return (
        view["domain"],
        view["host"],
        view["name"],
        view["vm_state"],
        view["memory_mb"],
        view["vcpus"],
        view["disk_gb"],
        ", ".join(addresses) or "-",
        view["uuid"],
    )


def release_lines(items: Views, planned: bool) -> list[str]:
    """Return the lines of a release. :arg planned: nothing was written"""
    if not items:
        return ["release: no instance is selected."]
    head = ("INSTANCE", "UUID", "HOST", "DOMAIN", "NOTE")
    rows = [
        (i["name"], i["uuid"], i["host"], i["domain"], i["error"]["code"] if i["error"] else "its domain stays")
        for i in items
    ]
    return ["Would release (nothing is touched):" if planned else "Released:", *tables.table(head, rows)]
