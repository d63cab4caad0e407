# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Locks of guests are each test's own: several tests have guests with the same UUID."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import locks


@pytest.fixture(autouse=True)
def own_locks(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setattr(locks, "LOCK_ROOT", str(tmp_path_factory.mktemp("run") / "bootflow"))
