# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The findings of an audit for people: a table, and the difference of --diff."""

from __future__ import annotations

import typing as t

from ...module_utils.core.audit.plan import Finding
from ..run import tables
from ..run.results import diff

HEAD = ("HOST", "KIND", "INSTANCE", "WHAT", "FROM", "TO", "ACTION")
LONGEST = 60  # characters of a value


def findings_lines(findings: t.Sequence[Finding], memory: t.Mapping[str, int], check_mode: bool) -> list[str]:
    """Return the lines of the findings. :arg memory: host -> MB that foreign domains use"""
    if not findings:
        return ["Audit: nothing to repair."]
    rows = [
        (f.host or "-", f.kind, f.instance or "-", f.what, _short(f.old), _short(f.new), f.action) for f in findings
    ]
    return [
        "Would do (nothing is touched):" if check_mode else "Audit:",
        *tables.table(HEAD, rows),
        *("%s: %d MiB are used by domains that are not instances." % (h, mb) for h, mb in sorted(memory.items())),
        *("Remedy: %s" % r for r in dict.fromkeys(f.remedy for f in findings if f.remedy)),
    ]


def findings_diff(findings: t.Sequence[Finding]) -> dict[str, str]:
    """Return the ledger before and after the changes of ``findings``."""
    before = ["%s %s %s: %s\n" % (f.host, f.instance or "", f.what, _short(f.old)) for f in findings]
    after = ["%s %s %s: %s\n" % (f.host, f.instance or "", f.what, _short(f.new)) for f in findings]
    return diff("ledger", "".join(before), "".join(after))


def _short(value: t.Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join("%s %s" % (k, v) for k, v in value.items())
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
