# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The floors: imports go down only, and the core stands alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ROOT / "plugins" / "module_utils"
IMPORT = re.compile(r"^\s*(?:from|import)\s+([\w.]+)", re.MULTILINE)
OUTSIDE = ("ansible", "sqlalchemy", "alembic", "psycopg", "sqlite3", "subprocess", "libvirt")


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_of_the_documentation_runs() -> None:
    text = (ROOT / "docs" / "core.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code is not None
    answer = python(code.group(1)).splitlines()
    assert [line.split()[:2] for line in answer] == [["one", "kvm2"], ["two", "kvm1"]]


def test_the_table_of_the_documentation_names_what_there_is() -> None:
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs" / "core.md").read_text(), re.MULTILINE)[1:]
    assert len(rows) > 20
    for where, what in rows:
        folder = re.search(r"in `(\w+/)`", where)
        text = ""
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", where):
            path = FLOORS / "core" / (folder.group(1) if folder and not name.endswith("/") else "") / name
            assert path.exists(), path
            text += "".join(p.read_text() for p in (path.glob("**/*.py") if path.is_dir() else [path]))
        for name in re.findall(r"`(\w+)[(`]", what):
            assert re.search(r"^ *(?:def |class )?%s\b" % name, text, re.MULTILINE), (where, name)


def test_the_core_imports_nothing_but_itself() -> None:
    python(
        "import sys, pkgutil, importlib\n"
        "sys.path.insert(0, 'plugins/module_utils')\n"
        "import core\n"
        "for m in pkgutil.walk_packages(core.__path__, 'core.'): importlib.import_module(m.name)\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in %r], sys.modules\n" % (OUTSIDE[:-2],)
    )
    for path in (FLOORS / "core").rglob("*.py"):
        names = {name.split(".")[0] for name in IMPORT.findall(path.read_text())}
        assert not names & set(OUTSIDE), path


@pytest.mark.parametrize(("floor", "other"), [("hosts", "ledger"), ("ledger", "hosts")])
def test_hosts_and_ledger_do_not_know_each_other(floor: str, other: str) -> None:
    for path in (FLOORS / floor).rglob("*.py"):
        assert not re.search(r"(from|import) \.*\b%s\b" % other, path.read_text()), path


def test_host_side_modules_know_no_ledger() -> None:
    for path in (ROOT / "plugins" / "modules").glob("*.py"):
        assert "module_utils.ledger" not in path.read_text(), path
