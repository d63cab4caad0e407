# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The compute hosts that confine their guests are emulated machines, on the network of a lab; scripts/test confined runs what is here."""

from __future__ import annotations

import os
import sys
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
for folder in ("lab", "integration_py", "storage_py"):
    sys.path.insert(0, str(ROOT / "tests" / folder))

import lab as lab_module  # noqa: E402

CACHE = Path(os.environ.get("BOOTFLOW_CACHE", ROOT / ".cache"))


@pytest.fixture(scope="session")
def lab() -> t.Iterator[lab_module.Lab]:
    """A lab.Lab whose network the machines are on; gone at the end."""
    made = lab_module.Lab(str(CACHE / "confined-lab"))
    made.up(1)
    yield made
    made.down()
