# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Consoles of guests: the end of their logs, and where their displays are."""

from __future__ import annotations

import os
import time
import types

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InstanceNotFound, InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import consoles

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
XML = "<domain><devices><serial type='pty'><log file='%s'/></serial>%s</devices></domain>"


def last(path, lines):
    return consoles.last_lines(str(path), lines)


def test_the_last_lines(tmp_path):
    log = tmp_path / "console.log"
    assert last(log, 3) == [] and consoles.last_lines("", 3) == [], "there is none yet"
    log.write_bytes(b"one\r\ntwo\r\n\xff\0three\r\nlogin: ")
    assert last(log, 2) == ["\ufffdthree", "login: "]
    assert last(log, 99) == ["one", "two", "\ufffdthree", "login: "]
    log.write_bytes(b"one\r\n\r\n")
    assert last(log, 2) == ["one", ""]


def test_what_was_rotated_away_comes_before(tmp_path):
    log = tmp_path / "console.log"
    (tmp_path / "console.log.0").write_bytes(b"one\ntwo\n")
    assert last(log, 1) == ["two"]
    log.write_bytes(b"three\nfour\n")
    assert last(log, 3) == ["two", "three", "four"] and last(log, 1) == ["four"]


def test_a_long_log_is_not_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(consoles, "MOST", 100)
    log = tmp_path / "console.log"
    log.write_bytes(b"".join(b"line %05d\n" % n for n in range(1000)))
    found = last(log, 500)
    assert found[-1] == "line 00999" and len("\n".join(found)) <= 100


def test_a_log_that_is_none_holds_nobody_up(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    begun = time.monotonic()
    assert last(tmp_path / "fifo", 5) == [] and time.monotonic() < begun + 30
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(OSError):
        last(tmp_path / "link", 5)


@pytest.mark.parametrize(("graphics", "vnc"), [
    ("<graphics type='vnc' port='5901' listen='10.0.0.1'/>", {"listen": "10.0.0.1", "port": 5901}),
    ("<graphics type='vnc' port='5901'><listen type='address' address='::1'/></graphics>", {"listen": "::1", "port": 5901}),
    ("<graphics type='vnc' port='5901'/>", {"listen": "127.0.0.1", "port": 5901}),
    ("<graphics type='vnc' port='-1' listen='127.0.0.1'/>", None),  # it does not run
    ("<graphics type='spice' port='5901'/>", None),
    ("", None),
])  # fmt: skip
def test_the_display(tmp_path, graphics, vnc):
    (tmp_path / "log").write_text("hello\n")
    xml = XML % (tmp_path / "log", graphics)
    domain = types.SimpleNamespace(XMLDesc=lambda _flags: xml, state=lambda: [1, 0])
    connection = types.SimpleNamespace(lookupByUUIDString={UUID: domain}.get)
    assert consoles.read_console(connection, UUID, 5) == {"console": ["hello"], "vnc": vnc, "power_state": 1}


def test_a_domain_that_is_gone():
    connection = types.SimpleNamespace(lookupByUUIDString={}.get)
    with pytest.raises(InstanceNotFound):
        consoles.read_console(connection, UUID, 5)
    with pytest.raises(InvalidInput):
        consoles.read_console(connection, "../x", 5)
