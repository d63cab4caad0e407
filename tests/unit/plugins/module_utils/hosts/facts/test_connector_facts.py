# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.facts import facts

NAME = "iqn.1993-08.org.debian:01:5f7a1c2b3d4e"


@pytest.mark.parametrize(
    "text, name",
    [
        ("## DO NOT EDIT\nInitiatorName=%s\n" % NAME, NAME),
        ("InitiatorName = %s" % NAME, NAME),
        ("InitiatorName=eui.0123456789abcdef\n", "eui.0123456789abcdef"),
        ("GenerateName=yes\n", None),  # Debian's package, until iscsid was started
        ("#InitiatorName=%s\n" % NAME, None),
        ("InitiatorName=\n", None),
        ("InitiatorName=iqn.x; reboot\n", None),
        ("", None),
    ],
)
def test_the_name_of_the_initiator(tmp_path, text, name):
    path = tmp_path / "initiatorname.iscsi"
    path.write_text(text)
    assert facts.initiator_name(str(path)) == name


def test_a_host_without_an_initiator(tmp_path):
    assert facts.initiator_name(str(tmp_path / "none")) is None
    assert facts.initiator_name(str(tmp_path)) is None


def test_whether_qemu_opens_iscsi(tmp_path):
    patterns = [str(tmp_path / "*" / "block-iscsi.so")]
    assert not facts.qemu_opens_iscsi(patterns)
    (tmp_path / "qemu").mkdir()
    (tmp_path / "qemu" / "block-iscsi.so").touch()
    assert facts.qemu_opens_iscsi(patterns)
