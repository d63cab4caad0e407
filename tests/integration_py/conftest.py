# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the integration tests stand on: three namespace hosts and the small guest, both made once per run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "lab"))

import lab as lab_module  # noqa: E402

CACHE = Path(os.environ.get("BOOTFLOW_CACHE", ROOT / ".cache"))


@pytest.fixture(scope="session")
def guest_image() -> Path:
    """The qcow2 that scripts/build-guest-image makes; its sha256 is in the file beside it (.sha256)."""
    done = subprocess.run(
        [str(ROOT / "scripts" / "build-guest-image"), str(CACHE / "guest")],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def lab():
    """A lab.Lab with compute1..compute3 up; gone at the end."""
    lab = lab_module.Lab(str(CACHE / "lab-tests"))
    lab.up(3)
    yield lab
    lab.down()
