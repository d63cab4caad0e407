# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Calls of ovn-nbctl that fail: the database is away, hangs, or was changed meanwhile."""

from __future__ import annotations

import socket
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import MissingLibrary, NorthboundError
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.run import OVN
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ovn.northbound_client import (
    NorthboundClient,
    NorthboundConflict,
)


def client(address: str, **more: t.Any) -> NorthboundClient:
    return NorthboundClient(OVN.read({"bootflow_ovn_northbound": address, "bootflow_ovn_timeout": 1, **more}))


def test_a_database_that_is_away_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(NorthboundError, match="cannot be used"):
        client("unix:%s/none.sock" % tmp_path).check()


def test_a_database_that_is_silent_is_given_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "nb.sock"))
        listening.listen()
        begun = time.monotonic()
        with pytest.raises(NorthboundError, match="does not answer in 1 s"):
            client("unix:%s/nb.sock" % tmp_path).check()
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        ("transaction error: constraint violation", NorthboundConflict),
        ('ovn-nbctl: no row \\"x\\" in table Port_Group', NorthboundConflict),
        ("ovn-nbctl: unknown command", NorthboundError),
    ],
)
def test_what_another_run_changed_is_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: str, kind: type[NorthboundError]
) -> None:
    program = tmp_path / "ovn-nbctl"
    program.write_text('#!/bin/sh\necho "%s" >&2\nexit 1\n' % stderr)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", "%s:/usr/bin:/bin" % tmp_path)
    with pytest.raises(NorthboundError) as caught:
        client("unix:/none").write(["list", "x"])
    assert isinstance(caught.value, NorthboundConflict) == (kind is NorthboundConflict)


def test_the_certificates_are_handed_over_and_no_daemon_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ovn-nbctl"
    program.write_text('#!/bin/sh\necho "$* daemon=$OVN_NB_DAEMON" >%s/called\n' % tmp_path)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", "%s:/usr/bin:/bin" % tmp_path)
    monkeypatch.setenv("OVN_NB_DAEMON", "/run/other")
    files = {"bootflow_ovn_private_key": "/k", "bootflow_ovn_certificate": "/c", "bootflow_ovn_ca_certificate": "/a"}
    client("ssl:192.0.2.1:6641", **files).write(["list", "x"])
    called = (tmp_path / "called").read_text()
    assert (
        "--db=ssl:192.0.2.1:6641 --timeout=1 --private-key=/k --certificate=/c --ca-cert=/a -- list x daemon=\n"
        in called
    )
    assert "--wait" not in called


def test_a_controller_without_ovn_nbctl_says_which_package_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_arguments, **_more: None)
    with pytest.raises(MissingLibrary, match="ovn-nbctl"):
        client("unix:/none").check()
