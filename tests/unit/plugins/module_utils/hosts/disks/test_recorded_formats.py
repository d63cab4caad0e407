# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Definitions by the formats that local disks were made in."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.file_disks import as_recorded

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
DISK = "<disk type='%s'><driver name='qemu' type='%s'/><source %s='%s'/></disk>"


@pytest.mark.parametrize(("made", "said"), [("qcow2", "raw"), ("raw", "qcow2")])
def test_a_disk_is_opened_as_it_was_made(tmp_path, made, said):
    """Of a raw one a guest could write a header that names a file of its host; one in qcow2 would be destroyed as raw."""
    os.chmod(tmp_path, 0o755)
    folder = tmp_path / UUID
    devices = [
        ("file", said, "file", "%s/disk" % folder),
        ("file", said, "file", "%s/disk/disk.swap" % folder),
        ("file", said, "file", "%s/disk.config" % folder),
        ("block", "raw", "dev", "/dev/disk/by-path/x"),
    ]
    xml = "<domain><devices>%s</devices></domain>" % "".join(DISK % each for each in devices)
    assert as_recorded(str(tmp_path), UUID, xml) == xml, "nothing is there yet"
    folder.mkdir()
    (folder / "disk.info").write_text(json.dumps({name: {"format": made} for name in ("disk", "disk.swap")}))
    types = [d.get("type") for d in parse(as_recorded(str(tmp_path), UUID, xml)).iterfind("devices/disk/driver")]
    assert types == [made, made, said, "raw"]
    (folder / "disk.info").write_text(json.dumps({name: {"format": said} for name in ("disk", "disk.swap")}))
    assert as_recorded(str(tmp_path), UUID, xml) == xml
