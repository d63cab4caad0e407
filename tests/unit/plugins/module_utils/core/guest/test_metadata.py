# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest import drive_files, metadata
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network import Network
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network_info import (
    PortRecord,
    build_network_info,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.subnet import Subnet

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
VERSIONS = [
    "2012-08-10",
    "2013-04-04",
    "2013-10-17",
    "2015-10-15",
    "2016-06-30",
    "2016-10-06",
    "2017-02-22",
    "2018-08-27",
    "2020-10-14",
    "2025-04-04",
]
NET = Network(
    id="net",
    name="blue",
    source="bf",
    subnets=(Subnet(id="s4", name="v4", cidr="10.0.0.0/24"), Subnet(id="s6", name="v6", cidr="2001:db8::/64")),
)


def info(*addresses):
    fixed = tuple({"subnet_id": "s6" if ":" in a else "s4", "ip_address": a} for a in addresses)
    return tuple(build_network_info([PortRecord("p", "net", "fa:16:3e:00:00:01", fixed)], {"net": NET}, "demo"))


def meta_data(md, version="latest"):
    return json.loads(metadata.config_drive_files(md)["openstack/%s/meta_data.json" % version])


def full(**more):
    values = {
        "uuid": UUID,
        "display_name": "Web 1",
        "hostname": "web-1",
        "project_id": "demo",
        "availability_zone": "nova",
        "launch_index": 2,
        "metadata": {"a": "b"},
        "keys": (("ops", "ssh-ed25519 AAAA"),),
        "user_data": "#!/bin/sh\necho \u00fc\n",
        "vendor_data": {"v": 1},
        "admin_password": "pw",
        "random_seed": b"\x01" * 512,
        "injected_files": (("/etc/motd", b"hello"), ("/etc/b", b"\x00\xff")),
        "network_info": info("10.0.0.5", "2001:db8::5"),
        "reservation_id": "r-1",
        "instance_type": "m1.small",
        "image_id": "0a0b0c0d-0000-4000-8000-000000000000",
    }
    return metadata.InstanceMetadata(**{**values, **more})


def bare(**more):
    return metadata.InstanceMetadata(uuid=UUID, display_name="n", hostname="n", **more)


def test_layout():
    files = metadata.config_drive_files(full())
    expected = set()
    for version in ("2009-04-04", "latest"):
        expected |= {"ec2/%s/meta-data.json" % version, "ec2/%s/user-data" % version}
    for version in [*VERSIONS, "latest"]:
        names = ["meta_data.json", "user_data"]
        names += ["vendor_data.json"] if version >= "2013-10-17" else []
        names += ["network_data.json"] if version >= "2015-10-15" else []
        names += ["vendor_data2.json"] if version >= "2016-10-06" else []
        expected |= {"openstack/%s/%s" % (version, name) for name in names}
    expected |= {"openstack/content/0000", "openstack/content/0001"}
    assert set(files) == expected
    assert files["openstack/content/0000"] == b"hello" and files["openstack/content/0001"] == b"\x00\xff"
    assert files["openstack/latest/user_data"] == files["ec2/latest/user-data"] == "#!/bin/sh\necho \u00fc\n".encode()
    for path in files:
        drive_files.check_path(path)


def test_layout_without_options():
    files = metadata.config_drive_files(bare())
    assert not [p for p in files if "user" in p or "content" in p]
    assert json.loads(files["openstack/latest/vendor_data.json"]) == {}
    assert json.loads(files["openstack/latest/vendor_data2.json"]) == {"static": {}}
    assert json.loads(files["openstack/latest/network_data.json"]) == {}


def test_ec2_versions():
    files = metadata.config_drive_files(bare())
    assert {p.split("/")[1] for p in files if p.startswith("ec2/")} == {"2009-04-04", "latest"}
    first, last = (metadata.ec2_meta_data(bare(), version) for version in ("1.0", "latest"))
    assert "local-hostname" not in first and "placement" not in first
    assert last == json.loads(files["ec2/2009-04-04/meta-data.json"])


def test_meta_data_latest():
    assert meta_data(full()) == {
        "uuid": UUID,
        "meta": {"a": "b"},
        "files": [
            {"path": "/etc/motd", "content_path": "/content/0000"},
            {"path": "/etc/b", "content_path": "/content/0001"},
        ],
        "admin_pass": "pw",
        "public_keys": {"ops": "ssh-ed25519 AAAA"},
        "keys": [{"name": "ops", "type": "ssh", "data": "ssh-ed25519 AAAA"}],
        "hostname": "web-1",
        "name": "Web 1",
        "launch_index": 2,
        "availability_zone": "nova",
        "random_seed": base64.b64encode(b"\x01" * 512).decode(),
        "project_id": "demo",
        "devices": [],
        "dedicated_cpus": [],
    }


@pytest.mark.parametrize(
    ("version", "added"),
    [
        ("2012-08-10", set()),
        ("2013-04-04", {"random_seed"}),
        ("2013-10-17", {"random_seed"}),
        ("2015-10-15", {"random_seed", "project_id"}),
        ("2016-06-30", {"random_seed", "project_id", "devices"}),
        ("2018-08-27", {"random_seed", "project_id", "devices"}),
        ("2020-10-14", {"random_seed", "project_id", "devices", "dedicated_cpus"}),
        ("latest", {"random_seed", "project_id", "devices", "dedicated_cpus"}),
    ],
)
def test_keys_of_a_version(version, added):
    always = {"uuid", "hostname", "name", "launch_index", "availability_zone"}
    assert set(meta_data(bare(), version)) == always | added


def test_unknown_versions():
    with pytest.raises(errors.InvalidInput):
        metadata.ec2_meta_data(bare(), "2012-08-10")


def test_devices_by_version():
    devices = (
        {"type": "nic", "mac": "m1", "bus": "pci", "address": "0000:00:02.0", "tags": ["front"]},
        {"type": "nic", "mac": "m2", "vlan": 7},
        {"type": "nic", "mac": "m3"},
        {"type": "disk", "serial": "abc", "bus": "scsi", "address": "1:0:2:0", "tags": ["data"]},
        {"type": "share", "share_id": "x", "tag": "t"},
        {"type": "unheard-of"},
    )
    told = {v: meta_data(bare(devices=devices), v)["devices"] for v in VERSIONS[4:]}
    nic = {"type": "nic", "mac": "m1", "bus": "pci", "address": "0000:00:02.0", "tags": ["front"]}
    disk = {"type": "disk", "serial": "abc", "bus": "scsi", "address": "1:0:2:0", "tags": ["data"]}
    vlan = {"type": "nic", "mac": "m2", "vlan": 7, "bus": "none", "address": "none"}
    assert told["2016-06-30"] == [nic, disk]
    assert told["2017-02-22"] == [nic, vlan, disk]
    third = {"type": "nic", "mac": "m3", "bus": "none", "address": "none", "vf_trusted": False}
    assert told["2018-08-27"] == [{**nic, "vf_trusted": False}, {**vlan, "vf_trusted": False}, third, disk]
    assert told["2025-04-04"][-1] == {"type": "share", "share_id": "x", "tag": "t", "bus": "none", "address": "none"}


def test_ec2():
    assert metadata.ec2_meta_data(full(dhcp_domain="example.org")) == {
        "ami-id": "ami-0a0b0c0d",
        "ami-launch-index": 2,
        "ami-manifest-path": "FIXME",
        "instance-id": "i-2f4c1c0e",
        "hostname": "web-1.example.org",
        "local-ipv4": "10.0.0.5",
        "reservation-id": "r-1",
        "security-groups": ["default"],
        "public-keys": {"0": {"openssh-key": "ssh-ed25519 AAAA"}},
        "local-hostname": "web-1.example.org",
        "public-hostname": "web-1.example.org",
        "public-ipv4": "",
        "instance-type": "m1.small",
        "block-device-mapping": {"ami": "sda1", "ephemeral0": "sda2", "root": "/dev/sda1", "swap": "sda3"},
        "placement": {"availability-zone": "nova"},
        "instance-action": "none",
    }


def test_ec2_names_the_groups_of_the_instance():
    assert metadata.ec2_meta_data(bare(security_groups=("db", "web")))["security-groups"] == ["db", "web"]


def test_ipv6_only_has_an_empty_ipv4():
    assert metadata.ec2_meta_data(full(network_info=info("2001:db8::5")))["local-ipv4"] == ""


def test_block_device_mapping():
    assert metadata.block_device_mapping(None) == metadata.DEFAULT_BLOCK_DEVICE_MAPPING
    assert metadata.block_device_mapping("/dev/vda", ["/dev/vdb"], "/dev/vdc", ["/dev/vde", "/dev/vdd"]) == {
        "ami": "vda",
        "root": "/dev/vda",
        "ephemeral0": "/dev/vdb",
        "swap": "/dev/vdc",
        "ebs0": "/dev/vdd",
        "ebs1": "/dev/vde",
    }


def test_vendor_data_are_in_both_files():
    files = metadata.config_drive_files(full())
    assert json.loads(files["openstack/latest/vendor_data.json"]) == {"v": 1}
    assert json.loads(files["openstack/latest/vendor_data2.json"]) == {"static": {"v": 1}}


@pytest.mark.parametrize(
    ("others", "parts"),
    [({}, []), ({"cloud-init": "#!/bin/sh", "v": 1}, ["#!/bin/sh"]), ({"cloud-init": ["a", "b"]}, ["a", "b"])],
)
def test_a_password_for_cloud_init_is_before_the_vendor_data_of_others(others, parts):
    """cloud-init sets no admin_pass. What comes later replaces it."""
    files = metadata.config_drive_files(bare(login=("root", "$6$salt$hash"), vendor_data=others))
    told = json.loads(files["openstack/latest/vendor_data.json"])
    assert told["cloud-init"][1:] == parts and {k: v for k, v in told.items() if k != "cloud-init"} == {
        k: v for k, v in others.items() if k != "cloud-init"
    }
    head, text = told["cloud-init"][0].split("\n")
    assert head == "#cloud-config"
    users = [{"name": "root", "password": "$6$salt$hash", "type": "hash"}]
    assert json.loads(text) == {"chpasswd": {"expire": False, "users": users}}
    assert b"admin_pass" not in b"".join(files.values())


def test_user_data_may_be_bytes():
    assert metadata.config_drive_files(bare(user_data=b"\x1f\x8b\x00"))["openstack/latest/user_data"] == b"\x1f\x8b\x00"


@given(st.dictionaries(st.from_regex(r"\A[a-z][a-z0-9_.]{0,8}(/[a-z0-9]{1,4}){0,3}\Z"), st.binary(max_size=8)))
def test_packing_is_undone_by_unpacking(files):
    packed = drive_files.pack_files(files)
    assert drive_files.unpack_files(packed) == files
    assert list(drive_files.unpack_files(packed)) == list(files)


def test_equal_contents_travel_once():
    packed = drive_files.pack_files(metadata.config_drive_files(full(user_data="x" * 60000)))
    assert sum(len(text) for text in packed.values()) < 100000


@pytest.mark.parametrize(
    "packed",
    [
        {"../x": ""},
        {"/x": ""},
        {"a//b": ""},
        {"a/./b": ""},
        {".hidden": ""},
        {"a\n": ""},
        {"": ""},
        {"x" * 65: ""},
        {"a/b/c/d/e/f/g/h": ""},
        {"a b": ""},
        {"a": "no base64!"},
        {"a": "@b"},
        {"a": "@a"},
        {"a": 5},
    ],
)
def test_bad_files(packed):
    with pytest.raises(errors.InvalidInput):
        drive_files.unpack_files(packed)


def test_a_host_key_is_beside_the_password_and_before_the_vendor_data_of_others():
    files = metadata.config_drive_files(
        bare(login=("root", "$6$x"), ssh_host_key=("private", "public"), vendor_data={"cloud-init": "#cloud-config"})
    )
    first, second = json.loads(files["openstack/latest/vendor_data.json"])["cloud-init"]
    config = json.loads(first.partition("\n")[2])
    assert config["ssh_keys"] == {"ed25519_private": "private", "ed25519_public": "public"}
    assert config["chpasswd"]["users"][0]["name"] == "root" and second == "#cloud-config"
    alone = metadata.config_drive_files(bare(ssh_host_key=("private", "public")))
    assert len(json.loads(alone["openstack/latest/vendor_data.json"])["cloud-init"]) == 1
    assert json.loads(alone["openstack/latest/vendor_data2.json"]) == {"static": {}}
