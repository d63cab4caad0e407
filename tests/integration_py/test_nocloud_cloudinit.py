# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The distribution's cloud-init reads the drives that we build for its data source NoCloud."""

from __future__ import annotations

import dataclasses
import json
import subprocess

import pytest
from test_config_drive_cloudinit import FORMATS, ONLY_V6, PORTS, as_cloudinit_sees, metadata_of

from ansible_collections.bootflow.compute.plugins.module_utils.core.guest import metadata
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.nocloud import nocloud_files
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.drive import config_drive

ODD_NAME = 'Web & <1> \u00fc \U0001f680 \x7f \u0085 \ufeff \\ud83d "quoted": yes # no'


def nocloud_metadata(ports, **more):
    return metadata_of(ports, **{"injected_files": (), "admin_password": None, **more})


def read(tmp_path, md, fmt="iso9660"):
    return as_cloudinit_sees(tmp_path, nocloud_files(md), fmt, {}, seed="nocloud")


@FORMATS
def test_metadata(tmp_path, fmt):
    md = nocloud_metadata(PORTS, display_name=ODD_NAME)
    seen = read(tmp_path, md, fmt)
    assert seen["instance_id"] == md.uuid
    told = seen["metadata"]
    assert told["local-hostname"] == "web-1"
    assert told["name"] == ODD_NAME
    assert told["meta"] == md.metadata
    assert (told["launch_index"], told["project_id"], told["availability_zone"]) == (3, "demo", "nova")
    assert "admin_pass" not in told and told["random_seed"]
    assert seen["user_data"] == md.user_data
    assert seen["public_keys"] == ["ssh-ed25519 AAAAC3Nza ops@site"]
    assert seen["vendor_data_raw"] == md.vendor_data["cloud-init"]


@pytest.mark.parametrize("ports", [PORTS, ONLY_V6], ids=["both", "ipv6"])
def test_networks_are_those_of_a_config_drive(tmp_path, ports):
    """The files that cloud-init writes in the guest are the same, from either drive."""
    md = nocloud_metadata(ports)
    macs = {port.mac_address: "eth%d" % number for number, port in enumerate(ports)}
    (tmp_path / "other").mkdir()
    other = as_cloudinit_sees(tmp_path / "other", metadata.config_drive_files(md), "iso9660", macs)
    seen = read(tmp_path, md)
    assert len(seen["netplan"]) > 100
    assert seen["netplan"] == other["netplan"]
    assert seen["eni"] == other["eni"]


def test_password_host_key_and_vendor_data_of_the_site_come_together(tmp_path):
    others = {"cloud-init": ["#cloud-config\ntimezone: UTC\n", "#!/bin/sh\necho vendor\n"]}
    md = nocloud_metadata(PORTS, login=("root", "$6$salt$hash"), ssh_host_key=("private", "public"), vendor_data=others)
    seen = read(tmp_path, md)
    assert seen["chpasswd"]["users"] == [{"name": "root", "password": "$6$salt$hash", "type": "hash"}]
    assert seen["ssh_keys"] == {"ed25519_private": "private", "ed25519_public": "public"}
    assert seen["timezone"] == "UTC"


def test_without_network_user_data_and_keys(tmp_path):
    md = nocloud_metadata((), user_data=None, keys=(), vendor_data={}, metadata={})
    seen = read(tmp_path, md)
    assert seen["metadata"]["local-hostname"] == "web-1"
    assert not seen["user_data"] and not seen["public_keys"] and not seen["vendor_data_raw"]
    assert seen["network"] is None


@FORMATS
def test_label(tmp_path, fmt):
    drive = tmp_path / "disk.config"
    files = nocloud_files(nocloud_metadata(PORTS))
    config_drive.write_config_drive(str(drive), files, fmt, label="cidata")
    argv = ["/usr/sbin/blkid", "-p", "-o", "value", "-s", "LABEL", str(drive)]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip() == "cidata"
    assert not config_drive.write_config_drive(str(drive), files, fmt, label="cidata")["changed"]
    assert config_drive.write_config_drive(str(drive), files, fmt)["changed"]


def test_the_same_metadata_gives_the_same_bytes():
    md = nocloud_metadata(PORTS)
    assert nocloud_files(md) == nocloud_files(dataclasses.replace(md))
    assert json.loads(nocloud_files(md)["network-config"])["version"] == 1
