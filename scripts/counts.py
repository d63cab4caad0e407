#!/usr/bin/env python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prints the counts that docs/architecture.md states: files per change from real commits, files that a traced boot executes, and lines, files of rooms
and complexity of the tree.

scripts/counts.py --write writes them into the page. tests/unit/test_counts.py compares the page with the tree.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- Written by scripts/counts.py --write. -->\n"
END = "<!-- End of the counts. -->\n"
# A change, and the commit that made it: the newest one that does hardly anything else. No commit has added an event of a move, which got its
# table after the last one, or a type of network.
COMMITS = (
    ("an operation with separate work on the host: `set_admin_password`", "8dfba11d"),
    ("six operations at once, most of them a power state: `pause`, `suspend` and others", "e6dd1093"),
    ("three filters without settings: `ExactRamFilter` and its like", "0bf04c36"),
    ("four variables of hosts", "9a966076"),
    ("a fact that the scheduler reads: `host_ip`", "115c4b7d"),
    ("an event in an attachment's life: `qemu_gone`, with the work on the host", "32af018e"),
    ("an error, with what raises it: of a controller's clock", "fa0ff6ef"),
    ("two backends of local disks: `lvm` and `qcow2_on_lvm`", "c551bc1c"),
    ("the first type of storage backend after `lvm`, with its connector and its tool on hosts: `rbd`", "e0442a44"),
    ("an operation on volumes of running guests, with what settles it after a crash: `swap_volume`", "fa470d61"),
)
COUNTED = ("plugins", "playbooks")  # where a change is made; tests, documents and roles follow
GENERATED = ("plugins/doc_fragments/", "plugins/module_utils/core/settings/names.py")  # by scripts/settings.py
FLOORS = ("core", "ledger", "flows", "hosts")


def files_of(commit: str) -> int | None:
    """How many files a commit changed; None: this clone does not have it."""
    argv = ["git", "-C", str(ROOT), "show", "--format=", "--name-only", commit, "--", *COUNTED]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    return len([name for name in done.stdout.splitlines() if not name.startswith(GENERATED)])


def sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def lines() -> int:
    """Lines of all Python below plugins/."""
    return sum(len(path.read_text().splitlines()) for path in sources(ROOT / "plugins"))


def rooms() -> dict[str, dict[str, int]]:
    """Floor or folder of plugins/ -> room -> files with code of their own. A room has what is in its folders too; "" is beside the rooms."""
    found: dict[str, dict[str, int]] = {}
    for path in sources(ROOT / "plugins"):
        parts = list(path.relative_to(ROOT / "plugins").parts)
        if parts[0] == "module_utils":
            parts.pop(0)
        if len(parts) > 1 and (path.name != "__init__.py" or path.stat().st_size):
            room = parts[1] if len(parts) > 2 else ""
            counts = found.setdefault(parts[0], {})
            counts[room] = counts.get(room, 0) + 1
    order = [*FLOORS, *sorted(found.keys() - set(FLOORS))]
    return {floor: dict(sorted(found[floor].items())) for floor in order}


def most_complex() -> tuple[int, list[str]]:
    """The largest cyclomatic complexity of a function below plugins/, as ruff counts it (C901), and the functions that have it: file and name."""
    argv = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "C901", "--exit-zero"]
    argv += ["--config", "lint.mccabe.max-complexity=8", "--output-format", "json", "plugins"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[int, list[str]] = {}
    for problem in json.loads(done.stdout):
        name, number = t.cast("re.Match[str]", re.match(r"`(\w+)`.*\((\d+) >", problem["message"])).groups()
        place = Path(problem["filename"]).resolve().relative_to(ROOT / "plugins").as_posix()
        found.setdefault(int(number), []).append("`%s` in `%s`" % (name, place.removeprefix("module_utils/")))
    return max(found), sorted(found[max(found)])


def files_of_boot() -> dict[str, int]:
    """Floor or folder of plugins/ -> files that a boot executes on the controller, see tests/simulated_py/traced_boot.py."""
    tree = ROOT / ".cache" / "tree"
    folder = tree / "ansible_collections" / "bootflow"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "compute").exists():
        (folder / "compute").symlink_to(ROOT)
    argv = [sys.executable, str(ROOT / "tests" / "simulated_py" / "traced_boot.py")]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, int] = {}
    for name in done.stdout.split():
        floor = name.removeprefix("module_utils/").partition("/")[0]
        found[floor] = found.get(floor, 0) + 1
    found.pop("__init__.py", None)
    return found


def boot_line() -> str:
    counts = files_of_boot()
    each = ", ".join("%d of `%s`" % (number, floor) for floor, number in sorted(counts.items()))
    return "A first boot of one guest without volumes executes %d files on the controller: %s.\n" % (
        sum(counts.values()),
        each,
    )


def rooms_table() -> str:
    rows = ["| floor | files | of its rooms |", "| --- | --- | --- |"]
    for floor, counts in rooms().items():
        each = ", ".join("`%s/` %d" % (room, number) for room, number in counts.items() if room)
        files = counts.get("", 0)
        if each and files:
            each += ", directly in the folder %d" % files
        rows.append("| `%s` | %d | %s |" % (floor, sum(counts.values()), each))
    return "\n".join(rows) + "\n"


def complexity_line() -> str:
    number, names = most_complex()
    return "The most complex function has a cyclomatic complexity of %d: %s.\n" % (number, ", ".join(names))


def changes_table() -> str:
    rows = ["| change | commit | files below `plugins/` and `playbooks/` |", "| --- | --- | --- |"]
    for change, commit in COMMITS:
        count = files_of(commit)
        rows.append("| %s | %s | %s |" % (change, commit, "?" if count is None else count))
    return "\n".join(rows) + "\n"


def section() -> str:
    """The part of the page between BEGIN and END."""
    total = "Below `plugins/` are some %d,000 lines of Python. " % round(lines() / 1000)
    intro = "What real changes cost, without the files that are generated:\n"
    return "\n".join([intro, changes_table(), total + complexity_line(), boot_line(), rooms_table()])


def main() -> int:
    if sys.argv[1:] != ["--write"]:
        print(section(), end="")
        return 0
    before, _begin, rest = PAGE.read_text().partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not end:
        print("%s has no place for the counts" % PAGE, file=sys.stderr)
        return 1
    PAGE.write_text("%s%s\n%s\n%s%s" % (before, BEGIN, section(), end, after))
    return 0


if __name__ == "__main__":
    sys.exit(main())
