# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Definitions by the formats that local disks were made in."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.recorded_formats import as_recorded

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


LAYER = "<domain><devices>%s</devices></domain>" % (DISK % ("file", "%s", "file", "%s"))
BASE = "6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e-5f70bf18a0860070.raw"


@pytest.fixture
def instance(tmp_path):
    os.chmod(tmp_path, 0o755)
    for folder in (tmp_path / "_base", tmp_path / UUID):
        folder.mkdir()
    subprocess.run(["qemu-img", "create", "-q", "-f", "raw", tmp_path / "_base" / BASE, "64K"], check=True)
    return tmp_path


def chain(root, driver="qcow2"):
    """What the definition says of the files below the disk: None, or those that it names."""
    disk = root / UUID / "disk"
    found = parse(as_recorded(str(root), UUID, LAYER % (driver, disk))).find("devices/disk")
    backing = found.find("backingStore")
    if backing is None:
        return None
    assert backing.getprevious().tag == "source", "in the order of libvirt's schema"
    if not len(backing):
        return []
    assert backing.find("format").get("type") == "raw" and backing.find("backingStore") is not None
    label = dict(backing.find("source/seclabel").attrib)
    assert label == {"model": "dac", "relabel": "no"}, "libvirt leaves the owner of what is many guests' alone"
    return [backing.find("source").get("file")]


def layer(root, *options):
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *options, root / UUID / "disk", "1M"], check=True)


@pytest.mark.parametrize("compat", ["1.1", "0.10"])
def test_a_layer_names_its_base_image(instance, compat):
    """virt-aa-helper, whose profile lets it read few files, has to open none."""
    layer(instance, "-F", "raw", "-b", instance / "_base" / BASE, "-o", "compat=%s" % compat)
    assert chain(instance) == [str(instance / "_base" / BASE)]
    assert chain(instance, "raw") is None, "as the record says: a guest writes what it likes to a raw disk"


def test_a_disk_without_a_base_says_so(instance):
    layer(instance)
    assert chain(instance) == []


def test_data_that_were_pulled_into_the_disk_count(instance):
    layer(instance, "-F", "raw", "-b", instance / "_base" / BASE)
    (instance / UUID / "disk.info").write_text(json.dumps({"disk": {"format": "qcow2", "base": BASE}}))
    subprocess.run(["qemu-img", "rebase", "-f", "qcow2", "-b", "", instance / UUID / "disk"], check=True)
    assert chain(instance) == []


@pytest.mark.parametrize("other", ["by hand.raw", "_base/6a2c1f0e.raw", "_base/../_base/" + BASE])
def test_a_chain_of_somebody_s_own_is_left_to_libvirt(instance, other):
    subprocess.run(["qemu-img", "create", "-q", "-f", "raw", instance / other, "64K"], check=True)
    layer(instance, "-F", "raw", "-b", instance / other)
    assert chain(instance) is None


def test_a_base_of_another_format_is_left_to_libvirt(instance):
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", instance / "_base" / BASE, "64K"], check=True)
    layer(instance, "-F", "qcow2", "-b", instance / "_base" / BASE)
    assert chain(instance) is None
