# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which database's driver Ansible's main process loads: that of the run before."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.plugin_utils.transport import drivers

POSTGRESQL, SQLITE = "postgresql+psycopg://db.example/ledger", "sqlite:////var/lib/bootflow/ledger.db"


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The libraries that load() loads, in an ANSIBLE_HOME that is tmp_path."""
    names: list[str] = []
    config = types.SimpleNamespace(get_config_value=lambda _name: str(tmp_path))
    monkeypatch.setattr(drivers, "constants", types.SimpleNamespace(config=config))
    monkeypatch.setattr(drivers, "optional_import", names.append)
    return names


def test_the_driver_of_the_last_run_is_loaded(loaded: list[str], tmp_path: Path) -> None:
    drivers.load()
    assert loaded == ["sqlalchemy.dialects.sqlite.pysqlite"]
    drivers.remember(SQLITE)
    assert not any(tmp_path.iterdir())  # as without the file
    drivers.remember(POSTGRESQL)
    assert [path.name for path in tmp_path.iterdir()] == [drivers.FILE]
    loaded.clear()
    drivers.load()
    assert loaded == ["sqlalchemy.dialects.postgresql.psycopg", "psycopg"]
    drivers.remember(SQLITE)
    loaded.clear()
    drivers.load()
    assert loaded == ["sqlalchemy.dialects.sqlite.pysqlite"]


@pytest.mark.parametrize("content", [b"", b"oracle\n", b"\xff\xfe", b"os\n"])
def test_what_else_is_in_the_file_is_never_loaded(loaded: list[str], tmp_path: Path, content: bytes) -> None:
    (tmp_path / drivers.FILE).write_bytes(content)
    drivers.load()
    assert loaded == ["sqlalchemy.dialects.sqlite.pysqlite"]


def test_a_home_that_cannot_be_written(loaded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    config = types.SimpleNamespace(get_config_value=lambda _name: "/dev/null/ansible")
    monkeypatch.setattr(drivers, "constants", types.SimpleNamespace(config=config))
    drivers.remember(POSTGRESQL)
    drivers.load()
    assert loaded == ["sqlalchemy.dialects.sqlite.pysqlite"]


def test_the_first_action_loads_it(tmp_path: Path) -> None:
    """In Ansible's main process, which imports the action of each task before it forks."""
    (tmp_path / drivers.FILE).write_text("postgresql\n")
    code = (
        "from ansible_collections.bootflow.compute.plugins.plugin_utils.run import ledger_action\n"
        "import sys\n"
        "print('psycopg' in sys.modules, 'sqlalchemy.dialects.postgresql.psycopg' in sys.modules)\n"
    )
    environment = {**os.environ, "ANSIBLE_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, text=True, stdout=subprocess.PIPE, timeout=120, check=True
    )
    assert done.stdout.split() == ["True", "True"]
