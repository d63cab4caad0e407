# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Actions leave nothing on the machine that runs their tests."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.plugin_utils.guest_data import guest_data_folder


@pytest.fixture(autouse=True)
def folder_of_the_system(tmp_path: Path) -> t.Iterator[None]:
    """Where root keeps user data of guests whose ledger is in PostgreSQL."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(guest_data_folder, "SYSTEM", str(tmp_path / "system"))
        yield
