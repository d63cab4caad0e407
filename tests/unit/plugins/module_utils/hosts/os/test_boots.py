# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host ends, by what its systemctl says."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import boots


@pytest.fixture
def systemctl(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A systemctl of ours, on a host that systemd runs."""
    monkeypatch.setattr(boots, "SYSTEMD", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    program = tmp_path / "systemctl"
    program.touch(0o755)
    return program


@pytest.mark.parametrize("state", ["running", "degraded", "starting", "maintenance", ""])
def test_a_host_that_works_reports(systemctl: pathlib.Path, state: str) -> None:
    systemctl.write_text("#!/bin/sh\necho %s\nexit 1\n" % state)
    boots.check_not_ending()


def test_a_host_that_shuts_down_does_not(systemctl: pathlib.Path) -> None:
    systemctl.write_text("#!/bin/sh\necho stopping\nexit 1\n")
    with pytest.raises(errors.HostUnreachable, match="shutting down"):
        boots.check_not_ending()


def test_without_systemd_nothing_is_asked(systemctl: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systemctl.write_text("#!/bin/sh\necho stopping\n")
    monkeypatch.setattr(boots, "SYSTEMD", str(systemctl) + "/none")
    boots.check_not_ending()
