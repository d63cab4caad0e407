# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What playbooks print, as data."""

from __future__ import annotations


def findings(output: str) -> list[dict[str, str]]:
    """The rows of the table that an audit printed."""
    lines = output.splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith("HOST ") and " KIND " in line]
    if not heads:
        return []
    names = lines[heads[0]].split()
    starts = [lines[heads[0]].index(n) for n in names]
    found = []
    for line in lines[heads[0] + 2 :]:
        if len(line) <= starts[-1] or line.startswith("Remedy: ") or " MiB are used by " in line:
            break
        cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None])]
        found.append(dict(zip((n.lower() for n in names), cells)))
    return found


def changed(output: str) -> int:
    """Changes that the recap tells, of all hosts."""
    recap = output.partition("PLAY RECAP")[2]
    return sum(int(word.partition("=")[2]) for word in recap.split() if word.startswith("changed="))
