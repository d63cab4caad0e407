# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Metrics as text for Prometheus, and the file from which its node exporter reads them.

source: the exposition formats of Prometheus, version 0.0.4
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from .output_file import OutputFile

SUFFIX = ".prom"  # the textfile collector reads no other file

Value = t.Union[int, float]


@dataclass
class Gauge:
    """A metric that goes up and down. Samples are added with their labels."""

    name: str
    help: str
    samples: list[tuple[dict[str, str], Value]] = field(default_factory=list)

    def add(self, value: Value | None, **labels: str | None) -> None:
        """Add a sample. Nothing is added without a value."""
        if value is not None:
            self.samples.append(({name: text or "" for name, text in labels.items()}, value))


def exposition(gauges: t.Iterable[Gauge]) -> str:
    """Return the text of the metrics that have samples."""
    lines = []
    for gauge in gauges:
        if not gauge.samples:
            continue
        lines += ["# HELP %s %s" % (gauge.name, _escaped(gauge.help)), "# TYPE %s gauge" % gauge.name]
        for labels, value in gauge.samples:
            pairs = ",".join('%s="%s"' % (name, _escaped(text).replace('"', '\\"')) for name, text in labels.items())
            lines.append("%s%s %s" % (gauge.name, "{%s}" % pairs if pairs else "", _number(value)))
    return "".join(line + "\n" for line in lines)


def file_at(path: str) -> OutputFile:
    """Return the file that the textfile collector reads."""
    return OutputFile(
        path,
        variable="bootflow_metrics_file",
        suffix=SUFFIX,
        remedy_for_name="Name a file in the folder of --collector.textfile.directory, for example bootflow%s." % SUFFIX,
        remedy_for_folder="Make it, and have node exporter read it (--collector.textfile.directory).",
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: Value) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
