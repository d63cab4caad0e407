# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tests of whole playbooks on simulated hosts stand on: nothing but Ansible and sqlite."""

from __future__ import annotations

import sys
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
for folder in ("lab", "integration_py", "simulated_py"):
    sys.path.insert(0, str(ROOT / "tests" / folder))

from simulated_site import Site  # noqa: E402


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ANSIBLE_HOME of all runs, so that each module is packed once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def site(tmp_path: Path, home: Path) -> t.Iterator[Site]:
    """Three hosts without guests, and no ledger yet. At the end usage is that of the claims, and every module was known."""
    made = Site(tmp_path, home)
    yield made
    assert made.problems() == ""
    assert made.unexpected_ledgers() == []
    if made.ledger_path.exists():
        made.check_ledger()
