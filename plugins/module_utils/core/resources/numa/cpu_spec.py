# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sets of CPUs and sizes of pages in the form of flavors, images and libvirt."""

from __future__ import annotations

import re
import typing as t

from ...errors import InvalidInput

_SIZE = re.compile(r"^\+?(\d*\.?\d+)([KMGTPEZY]?)i?(b|bit|B)$")
_PREFIXES = "KMGTPEZY"
# No host has CPUs above this; a range up to a trillion would take all memory.
_CPU_MAX = 1 << 16


def parse_cpu_spec(spec: t.Any) -> frozenset[int]:
    """The CPUs of ``0-3,^2,8``: numbers and ranges; ``^`` at any position excludes a number or range.

    :raises InvalidInput: not a number, or a descending range.
    """
    wanted: set[int] = set()
    unwanted: set[int] = set()
    for rule in (part.strip() for part in str(spec).split(",")):
        if rule.startswith("^"):
            unwanted.update(_cpus(rule[1:], "exclusion", rule))
        elif rule:
            wanted.update(_cpus(rule, "inclusion", rule))
    return frozenset(wanted - unwanted)


def _cpus(text: str, kind: str, rule: str) -> range:
    first, dash, last = text.partition("-")
    if not dash:
        cpu = _cpu(text, kind, rule)
        return range(cpu, cpu + 1)
    start, end = _cpu(first, "range", rule), _cpu(last, "range", rule)
    if start > end:
        raise _invalid("range", rule)
    return range(start, end + 1)


def _cpu(text: str, kind: str, rule: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or int(text) > _CPU_MAX:
        raise _invalid(kind, rule)
    return int(text)


def _invalid(kind: str, rule: str) -> InvalidInput:
    return InvalidInput(
        reason="Invalid %s expression '%s'" % (kind, rule), remedy="Write CPUs as 0-3,^2,8 (numbers from 0)."
    )


def format_cpu_spec(cpus: t.Iterable[int]) -> str:
    """The shortest text of a set of CPUs (or of cells): ``0-2,5``. The same set always gives the same text."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else "%d-%d" % (first, last) for first, last in runs)


def size_in_kb(value: t.Any) -> int | None:
    """A size in kB from 2048 (kB) or ``4KB``, ``2MB``, ``1GB``, ``2MiB`` (all powers of 1024); None for anything else.

    Lower-case ``b`` and ``bit`` are bits, as in OpenStack. None also for sizes that are not positive or not whole kB.
    """
    text = str(value).strip()
    if text.isascii() and text.isdigit():
        return int(text) or None
    match = _SIZE.match(text)
    if not match:
        return None
    number, prefix, unit = match.groups()
    size = float(number) * 1024 ** (_PREFIXES.index(prefix) + 1 if prefix else 0)
    if unit != "B":
        size /= 8
    size /= 1024
    return int(size) if size >= 1 and size == int(size) else None
