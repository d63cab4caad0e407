# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domains
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domains import is_remembered, remember


def test_each_kind_has_its_own() -> None:
    remember("forms", "a")
    remember("forms", "a")
    assert (is_remembered("forms", "a"), is_remembered("forms", "b"), is_remembered("others", "a")) == (
        True,
        False,
        False,
    )
    assert os.stat(os.path.join(domains.REMEMBERED, "forms")).st_mode & 0o777 == 0o700


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "MOST_REMEMBERED", 3)
    for number in range(5):
        remember("forms", str(number))
        assert len(os.listdir(os.path.join(domains.REMEMBERED, "forms"))) <= 3
    assert [is_remembered("forms", str(n)) for n in range(5)] == [False, False, False, True, True]


def test_a_folder_of_others_tells_nothing() -> None:
    remember("forms", "a")
    os.chmod(os.path.join(domains.REMEMBERED, "forms"), 0o777)
    assert not is_remembered("forms", "a")
    remember("forms", "b")
    os.chmod(os.path.join(domains.REMEMBERED, "forms"), 0o700)
    assert not is_remembered("forms", "b")
