# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage quick runs the tests that have to do with a change, the nearest first."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "changed_tests.py"
NAMES = {
    **os.environ,
    **{"GIT_%s_%s" % (who, what): "a@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}
PACKAGE = "ansible_collections.bootflow.compute.plugins"
FILES = {
    "plugins/low.py": "def low(): ...\n",
    "plugins/middle.py": "from .low import low\n",
    "plugins/alone.py": "",
    "tests/unit/plugins/test_low.py": "from %s.low import low\n" % PACKAGE,
    "tests/unit/plugins/test_middle.py": "from %s import middle\n" % PACKAGE,
    "tests/unit/plugins/test_alone.py": "import %s.alone\n" % PACKAGE,
    "tests/unit/house/conftest.py": "",
    "tests/unit/house/test_pages.py": "PAGES = ROOT / 'docs'\nROLE = \"roles/host\"\n",
    "docs/page.md": "",
    "roles/host/tasks/main.yml": "",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {**FILES, "scripts/changed_tests.py": SCRIPT.read_text()}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, env=NAMES)
    return tmp_path


def chosen(tree: Path, *arguments: str) -> list[str]:
    script = [sys.executable, "scripts/changed_tests.py", *arguments]
    done = subprocess.run(script, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return [Path(line).name for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        ("plugins/low.py", ["test_low.py", "test_middle.py"]),
        ("plugins/middle.py", ["test_middle.py"]),
        ("tests/unit/plugins/test_alone.py", ["test_alone.py"]),
        ("tests/unit/house/conftest.py", ["test_pages.py"]),
        ("roles/host/tasks/main.yml", ["test_pages.py"]),
        ("README.md", []),
    ],
)
def test_the_nearest_come_first(tree: Path, name: str, tests: list[str]) -> None:
    with open(tree / name, "a", encoding="utf-8") as file:
        file.write("\n")
    assert chosen(tree) == tests


def test_a_file_that_is_gone_has_its_tests(tree: Path) -> None:
    (tree / "plugins/low.py").unlink()
    assert chosen(tree) == ["test_low.py", "test_middle.py"]


def test_a_folder_is_known_by_its_name_in_quotes_of_either_kind(tree: Path) -> None:
    (tree / "docs/page.md").write_text("text\n")
    assert chosen(tree) == ["test_pages.py"]


def test_the_base_may_be_another_commit(tree: Path) -> None:
    assert chosen(tree) == chosen(tree, "HEAD") == []
    shutil.rmtree(tree / "roles")
    subprocess.run(["git", "commit", "-qam", "b"], cwd=tree, check=True, env=NAMES)
    assert chosen(tree) == [] and chosen(tree, "HEAD~1") == ["test_pages.py"]


def test_a_base_that_does_not_exist_is_an_error(tree: Path) -> None:
    done = subprocess.run(
        [sys.executable, "scripts/changed_tests.py", "nothing"], cwd=tree, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "nothing" in done.stderr and "Traceback" not in done.stderr
