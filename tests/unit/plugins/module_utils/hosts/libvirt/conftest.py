# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests of these tests are locked in a folder of their own: those of other processes have the same UUIDs. Each test has a host on which no
definition was validated.
"""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domains
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import locks


@pytest.fixture(name="lock_root", scope="session")
def _lock_root(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("run") / "bootflow")


@pytest.fixture(autouse=True)
def _own_locks(monkeypatch: pytest.MonkeyPatch, lock_root: str) -> None:
    monkeypatch.setattr(locks, "LOCK_ROOT", lock_root)


@pytest.fixture(autouse=True)
def _no_form_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(domains, "_valid_forms", set())
    monkeypatch.setattr(domains, "REMEMBERED", str(tmp_path / "remembered"))
