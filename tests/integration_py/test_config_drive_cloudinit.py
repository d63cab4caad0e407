# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The distribution's cloud-init reads the drives that we build, as the guest sees them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.guest import metadata
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.password_hash import sha512_crypt
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks import network_info
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network import Network
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.subnet import Subnet
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.drive import config_drive

PYTHON = "/usr/bin/python3"
READER = Path(__file__).with_name("read_with_cloudinit.py")

SUBNET4 = Subnet(
    id="sub-4",
    name="net-v4",
    cidr="10.0.0.0/24",
    gateway_ip="10.0.0.1",
    dns_nameservers=("9.9.9.9", "1.1.1.1"),
    host_routes=({"destination": "192.168.7.0/25", "nexthop": "10.0.0.254"},),
)
SUBNET6 = Subnet(
    id="sub-6", name="net-v6", cidr="2001:db8:1::/64", gateway_ip="2001:db8:1::1", dns_nameservers=("2620:fe::fe",)
)
LONELY4 = Subnet(id="sub-lonely", name="lonely", cidr="172.20.20.0/22")
DHCP4 = Subnet(id="sub-dhcp", name="dhcp", cidr="192.168.122.0/24", gateway_ip="192.168.122.1", enable_dhcp=True)
NETWORKS = {
    n.id: n
    for n in (
        Network(id="net-both", name="both", subnets=(SUBNET4, SUBNET6), source="bf-both", mtu=1450),
        Network(id="net-lonely", name="lonely", subnets=(LONELY4,), type="bridge", source="br-lonely"),
        Network(id="net-dhcp", name="dhcp", subnets=(DHCP4,), source="bf-dhcp", mtu=1400),
    )
}


def port(number, network_id, *addresses):
    return network_info.PortRecord(
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, "port %d" % number)),
        network_id=network_id,
        mac_address="fa:16:3e:00:00:%02x" % number,
        fixed_ips=tuple({"subnet_id": s, "ip_address": a} for s, a in addresses),
    )


PORTS = (
    port(1, "net-both", ("sub-4", "10.0.0.5"), ("sub-6", "2001:db8:1::5")),
    port(2, "net-lonely", ("sub-lonely", "172.20.22.64")),
    port(3, "net-dhcp", ("sub-dhcp", "192.168.122.9")),
)
MACS = {p.mac_address: "ens%d" % n for n, p in enumerate(PORTS, 3)}
ONLY_V6 = (port(4, "net-both", ("sub-6", "2001:db8:1::6")),)


def metadata_of(ports, **more):
    values = {
        "uuid": "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11",
        "display_name": "Web & <1> \u00fc",
        "hostname": "web-1",
        "project_id": "demo",
        "availability_zone": "nova",
        "launch_index": 3,
        "metadata": {"role": "front \u00e9"},
        "keys": (("ops", "ssh-ed25519 AAAAC3Nza ops@site"),),
        "user_data": "#cloud-config\nruncmd: [echo \u00fc]\n",
        "vendor_data": {"cloud-init": "#!/bin/sh\necho vendor\n"},
        "admin_password": "not-so-secret",
        "random_seed": bytes(range(256)) * 2,
        "injected_files": (("/etc/motd", b"hello\n"), ("/etc/empty", b"")),
        "network_info": tuple(network_info.build_network_info(ports, NETWORKS, project_id="demo")),
        "instance_type": "m1.small",
    }
    return metadata.InstanceMetadata(**{**values, **more})


def extract(drive, fmt, target):
    """With other tools than those that built it."""
    target.mkdir(parents=True)
    if fmt == "vfat":
        argv = ["mcopy", "-s", "-n", "-i", str(drive), "::/*", str(target)]
    else:
        argv = ["xorriso", "-osirrox", "on", "-indev", str(drive), "-extract", "/", str(target)]
    subprocess.run(argv, check=True, capture_output=True)
    subprocess.run(["chmod", "-R", "u+rwX", str(target)], check=True)


def as_cloudinit_sees(tmp_path, files, fmt, macs, seed="config_drive"):
    drive = tmp_path / "disk.config"
    config_drive.write_config_drive(str(drive), files, fmt)
    folder = tmp_path / "seed" / seed
    extract(drive, fmt, folder)
    assert {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == files
    argv = [PYTHON, str(READER), str(tmp_path), json.dumps(macs)]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(argv, capture_output=True, text=True, env=clean, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


FORMATS = pytest.mark.parametrize("fmt", ["iso9660", "vfat"])


@FORMATS
def test_metadata(tmp_path, fmt):
    md = metadata_of(PORTS)
    seen = as_cloudinit_sees(tmp_path, metadata.config_drive_files(md), fmt, MACS)
    assert seen["version"] == 2
    assert seen["instance_id"] == md.uuid
    told = seen["metadata"]
    assert told["local-hostname"] == "web-1"
    assert told["name"] == md.display_name
    assert told["meta"] == md.metadata
    assert told["admin_pass"] == "not-so-secret"
    assert told["availability_zone"] == "nova"
    assert (told["launch_index"], told["project_id"]) == (3, "demo")
    assert seen["random_seed_bytes"] == 512
    assert seen["user_data"] == md.user_data
    assert seen["public_keys"] == ["ssh-ed25519 AAAAC3Nza ops@site"]
    assert seen["files"] == {"/etc/motd": "hello\n", "/etc/empty": ""}
    assert seen["vendor_data"] == md.vendor_data
    assert seen["vendor_data_raw"] == md.vendor_data["cloud-init"]
    assert seen["ec2"]["local-ipv4"] == "10.0.0.5"
    assert seen["ec2"]["instance-type"] == "m1.small"


@FORMATS
def test_networks(tmp_path, fmt):
    seen = as_cloudinit_sees(tmp_path, metadata.config_drive_files(metadata_of(PORTS)), fmt, MACS)
    config = {entry.get("name"): entry for entry in seen["network"]["config"]}
    both, lonely, dhcp = config["ens3"], config["ens4"], config["ens5"]
    assert (both["mac_address"], both["mtu"]) == ("fa:16:3e:00:00:01", 1450)
    v4, v6 = both["subnets"]
    assert (v4["type"], v4["address"], v4["netmask"]) == ("static", "10.0.0.5", "255.255.255.0")
    assert [(r["network"], r["netmask"], r["gateway"]) for r in v4["routes"]] == [
        ("0.0.0.0", "0.0.0.0", "10.0.0.1"),
        ("192.168.7.0", "255.255.255.128", "10.0.0.254"),
    ]
    assert (v6["type"], v6["address"]) == ("static6", "2001:db8:1::5")
    assert (lonely["subnets"][0]["address"], lonely["subnets"][0].get("routes") or []) == ("172.20.22.64", [])
    assert dhcp["subnets"][0]["type"] == "dhcp4" and "address" not in dhcp["subnets"][0]
    assert dhcp["mtu"] is None
    # What the guest is then configured with.
    for line in (
        "- 10.0.0.5/24",
        "- 2001:db8:1::5/64",
        "- 172.20.22.64/22",
        "dhcp4: true",
        "macaddress: fa:16:3e:00:00:02",
    ):
        assert line in seen["netplan"], seen["netplan"]
    for line in ("address 10.0.0.5/24", "iface ens3 inet6 static", "iface ens5 inet dhcp", "address 172.20.22.64/22"):
        assert line in seen["eni"], seen["eni"]
    assert "9.9.9.9" in seen["netplan"] and "2620:fe::fe" in seen["netplan"]


@FORMATS
def test_ipv6_only(tmp_path, fmt):
    seen = as_cloudinit_sees(
        tmp_path, metadata.config_drive_files(metadata_of(ONLY_V6)), fmt, {"fa:16:3e:00:00:04": "eth0"}
    )
    assert seen["ec2"]["local-ipv4"] == ""
    (nic,) = [c for c in seen["network"]["config"] if c["type"] == "physical"]
    assert [s["address"] for s in nic["subnets"]] == ["2001:db8:1::6"]
    assert "- 2001:db8:1::6/64" in seen["netplan"]


def test_without_network_user_data_and_files(tmp_path):
    md = metadata_of((), user_data=None, injected_files=(), keys=(), admin_password=None, vendor_data={}, metadata={})
    seen = as_cloudinit_sees(tmp_path, metadata.config_drive_files(md), "iso9660", {})
    assert seen["metadata"]["local-hostname"] == "web-1"
    assert not seen["user_data"] and not seen["public_keys"] and not seen["files"]
    assert seen["network"]["config"] == []


@pytest.mark.parametrize(
    ("user_data", "others", "password"),
    [
        (None, {}, "of the request"),
        ("#cloud-config\nruncmd: [ls]\n", {"cloud-init": "#cloud-config\ntimezone: UTC\n"}, "of the request"),
        (None, {"cloud-init": "#cloud-config\nchpasswd: {users: [{name: root, password: theirs}]}\n"}, "theirs"),
        ("#cloud-config\nchpasswd: {users: [{name: root, password: mine}]}\n", {}, "mine"),
        ("#cloud-config\nvendor_data: {enabled: false}\n", {}, None),
    ],
)
def test_the_password_that_cloud_init_sets(tmp_path, user_data, others, password):
    """A hash of the request's, unless vendor data of the site or user data say otherwise; no text that users of the guest can read."""
    hashed = sha512_crypt("of the request", "salt")
    md = metadata_of(PORTS, admin_password=None, login=("root", hashed), user_data=user_data, vendor_data=others)
    seen = as_cloudinit_sees(tmp_path, metadata.config_drive_files(md), "iso9660", MACS)
    assert "admin_pass" not in seen["metadata"] and "of the request" not in json.dumps(seen)
    if password is None:
        assert seen["chpasswd"] is None
        return
    (user,) = seen["chpasswd"]["users"]
    assert (user["name"], user["password"]) == ("root", hashed if password == "of the request" else password)
    if password == "of the request":
        assert user["type"] == "hash" and seen["chpasswd"]["expire"] is False


@FORMATS
def test_label_and_file_system(tmp_path, fmt):
    drive = tmp_path / "disk.config"
    config_drive.write_config_drive(str(drive), metadata.config_drive_files(metadata_of(PORTS)), fmt)
    for name in ("LABEL", "TYPE"):
        done = subprocess.run(
            ["/usr/sbin/blkid", "-p", "-o", "value", "-s", name, str(drive)], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == {"LABEL": "config-2", "TYPE": fmt}[name]
    if fmt == "vfat" and shutil.which("/usr/sbin/fsck.vfat"):
        subprocess.run(["/usr/sbin/fsck.vfat", "-n", str(drive)], check=True, capture_output=True)
