# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a ledger needs on the controller: told where it is missing, loaded only where it is used."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database

OPEN = """
import sys
sys.path[:] = %r
from %s import open_ledger
ledger = open_ledger(%r)
with ledger.write():
    pass
print("alembic" in sys.modules)
"""


def test_a_ledger_that_needs_no_upgrade_is_opened_without_alembic(sqlite_template: str) -> None:
    """Each task of a playbook opens it in a process of its own."""
    script = OPEN % (sys.path, database.__name__, sqlite_template)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_what_is_missing_is_told_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    real = importlib.util.find_spec

    def find_spec(wanted: str, *more: t.Any) -> t.Any:
        return None if wanted == "alembic" else real(wanted, *more)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with pytest.raises(errors.MissingLibrary, match="Alembic is missing on the controller"):
        database.open_ledger(str(tmp_path / "ledger.db"), create=True)
    assert list(tmp_path.iterdir()) == []
