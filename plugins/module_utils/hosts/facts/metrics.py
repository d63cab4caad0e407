# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How busy the host's CPUs are, under the names of Nova's CPU monitor."""

from __future__ import annotations

import os
import typing as t

from ..libvirt.connection import libvirt
from ..os.files import read_json, read_text, write_json
from ..os.paths import PROBE, checked_instances_path, make_dirs

#: Kinds of CPU time, in nanoseconds over all CPUs since the host started.
TIMES = ("user", "kernel", "idle", "iowait")
BUSY = ("user", "kernel", "iowait")


def cpu_metrics(connection: t.Any, instances_path: str, write: bool = True) -> dict[str, int]:
    """Return ``cpu.frequency`` (MHz), ``cpu.<kind>.time`` (ns), ``cpu.<kind>.percent`` and ``cpu.percent``.

    The percentages cover the time since the previous report, whose times are stored below instances_path; the first
    report after a start of the host covers the time since then. Empty if libvirt does not provide the numbers.

    :arg write: keep this report's times for the next.
    """
    try:
        stats = connection.getCPUStats(libvirt.VIR_NODE_CPU_STATS_ALL_CPUS, 0)
        frequency = int(connection.getInfo()[3])
    except libvirt.libvirtError:
        return {}
    if not all(kind in stats for kind in TIMES):
        return {}
    sample = {kind: int(stats[kind]) for kind in TIMES}
    sample_file = os.path.join(checked_instances_path(instances_path), PROBE, "cpu.json")
    boot = boot_id()
    metrics = metrics_of(sample, frequency, _previous(read_json(sample_file), boot))
    if write:
        make_dirs(os.path.dirname(sample_file))
        write_json(sample_file, dict(sample, boot_id=boot))
    return metrics


def metrics_of(
    sample: t.Mapping[str, int], frequency: int, previous: t.Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return the metrics of a sample compared with the previous one; without an older one, compared with zero."""
    if previous is None or _total(sample) <= _total(previous) or any(sample[k] < previous[k] for k in TIMES):
        previous = dict.fromkeys(TIMES, 0)
    total = _total(sample) - _total(previous)
    spent = {kind: sample[kind] - previous[kind] for kind in TIMES}
    metrics = {"cpu.frequency": frequency}
    metrics.update(("cpu.%s.time" % kind, sample[kind]) for kind in TIMES)
    metrics.update(("cpu.%s.percent" % kind, _percent(spent[kind], total)) for kind in TIMES)
    metrics["cpu.percent"] = _percent(sum(spent[kind] for kind in BUSY), total)
    return metrics


def _total(sample: t.Mapping[str, int]) -> int:
    return sum(sample[kind] for kind in TIMES)


def _percent(part: int, total: int) -> int:
    # Nova's arithmetic to the bit: 29 of 100 are 28 %.
    return int(part / total * 100) if total else 0


def _previous(stored_sample: t.Any, boot: str) -> dict[str, int] | None:
    """Return the stored sample, if it is complete and from this start of the host."""
    if not isinstance(stored_sample, dict) or stored_sample.get("boot_id") != boot:
        return None
    sample = {kind: stored_sample[kind] for kind in TIMES if isinstance(stored_sample.get(kind), int)}
    return sample if len(sample) == len(TIMES) else None


def boot_id(path: str = "/proc/sys/kernel/random/boot_id") -> str:
    """Return an id that changes with each start of the host."""
    return read_text(path)
