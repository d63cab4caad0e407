# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of a guest's config drive, with Nova's names, keys and versions."""

from __future__ import annotations

import base64
import json
import re
import typing as t
from dataclasses import dataclass, field

from ..errors import InvalidInput
from ..networks.network_info import ip_info, network_data

EC2_VERSIONS = (
    "1.0",
    "2007-01-19",
    "2007-03-01",
    "2007-08-29",
    "2007-10-10",
    "2007-12-15",
    "2008-02-01",
    "2008-09-01",
    "2009-04-04",
)
# Nova's config_drive_skip_versions: on a drive only the last EC2 version and "latest" are written by default.
EC2_VERSIONS_WRITTEN = EC2_VERSIONS[-1:]

FOLSOM, GRIZZLY, HAVANA, LIBERTY = "2012-08-10", "2013-04-04", "2013-10-17", "2015-10-15"
NEWTON_ONE, NEWTON_TWO, OCATA, ROCKY = "2016-06-30", "2016-10-06", "2017-02-22", "2018-08-27"
VICTORIA, EPOXY = "2020-10-14", "2025-04-04"
OPENSTACK_VERSIONS = (FOLSOM, GRIZZLY, HAVANA, LIBERTY, NEWTON_ONE, NEWTON_TWO, OCATA, ROCKY, VICTORIA, EPOXY)

# Nova's value for guests whose root device has no name yet.
DEFAULT_BLOCK_DEVICE_MAPPING = {"ami": "sda1", "ephemeral0": "sda2", "root": "/dev/sda1", "swap": "sda3"}

RANDOM_SEED_BYTES = 512


@dataclass(frozen=True)
class InstanceMetadata:
    """The data of a config drive."""

    uuid: str
    display_name: str
    hostname: str
    project_id: str = ""
    availability_zone: str | None = None
    launch_index: int = 0
    metadata: t.Mapping[str, str] = field(default_factory=dict)
    keys: tuple[tuple[str, str], ...] = ()  # (name, public key); Nova writes the first only
    user_data: t.Union[str, bytes, None] = None
    vendor_data: t.Mapping[str, t.Any] = field(default_factory=dict)
    admin_password: str | None = None  # as text in meta_data.json
    login: tuple[str, str] | None = None  # (user, hash of the password), set by cloud-init
    ssh_host_key: tuple[str, str] | None = None  # (private, public), which cloud-init gives to the SSH server
    random_seed: bytes = b""  # RANDOM_SEED_BYTES of them
    injected_files: tuple[tuple[str, bytes], ...] = ()  # (path in the guest, content)
    network_info: tuple[t.Mapping[str, t.Any], ...] = ()
    reservation_id: str = ""
    instance_type: str = ""  # the flavor's name
    image_id: str = ""
    security_groups: tuple[str, ...] = ("default",)  # their names
    block_device_mapping: t.Mapping[str, str] | None = None  # of block_device_mapping(); None: Nova's default
    devices: tuple[
        t.Mapping[str, t.Any], ...
    ] = ()  # tagged devices: {type: nic|disk|share, bus, address, mac, tags...}
    dedicated_cpus: tuple[int, ...] = ()  # the guest's CPUs that are pinned
    dhcp_domain: str = ""  # appended to hostname


def config_drive_files(md: InstanceMetadata) -> dict[str, bytes]:
    """Relative path -> content, for every version and ``latest``: openstack/..., openstack/content/NNNN and ec2/...

    The same metadata gives the same bytes.
    """
    user_data = md.user_data.encode("utf-8") if isinstance(md.user_data, str) else md.user_data
    content, listed = _contents(md)
    files: dict[str, bytes] = {}
    for version in (*EC2_VERSIONS_WRITTEN, "latest"):
        if user_data is not None:
            files["ec2/%s/user-data" % version] = user_data
        files["ec2/%s/meta-data.json" % version] = _json(ec2_meta_data(md, version))
    for name in (*OPENSTACK_VERSIONS, "latest"):
        version = OPENSTACK_VERSIONS[-1] if name == "latest" else name
        folder = "openstack/%s/" % name
        files[folder + "meta_data.json"] = _json(meta_data(md, version, listed))
        if user_data is not None:
            files[folder + "user_data"] = user_data
        if version >= HAVANA:
            files[folder + "vendor_data.json"] = _json(vendor_data(md))
        if version >= LIBERTY:
            files[folder + "network_data.json"] = _json(network_data(md.network_info))
        if version >= NEWTON_TWO:
            files[folder + "vendor_data2.json"] = _json({"static": dict(md.vendor_data)})
    for key, data in content.items():
        files["openstack/content/%s" % key] = data
    return files


def ec2_meta_data(md: InstanceMetadata, version: str = "latest") -> dict[str, t.Any]:
    """The content of ec2/<version>/meta-data.json.

    :raises InvalidInput: an unknown version.
    """
    if version == "latest":
        version = EC2_VERSIONS[-1]
    if version not in EC2_VERSIONS:
        raise InvalidInput(reason="unknown EC2 metadata version %r" % version)
    hostname = _fqdn(md)
    addresses = ip_info(md.network_info)
    data: dict[str, t.Any] = {
        "ami-id": "ami-%s" % _ec2_number(md.image_id),
        "ami-launch-index": md.launch_index,
        "ami-manifest-path": "FIXME",  # Nova's value, word for word
        "instance-id": "i-%s" % _ec2_number(md.uuid),
        "hostname": hostname,
        "local-ipv4": _first(addresses["fixed_ips"]),
        "reservation-id": md.reservation_id,
        "security-groups": list(md.security_groups),
    }
    if md.keys:
        data["public-keys"] = {"0": {"openssh-key": md.keys[0][1]}}
    if version >= "2007-01-19":
        data["local-hostname"] = hostname
        data["public-hostname"] = hostname
        data["public-ipv4"] = _first(addresses["floating_ips"])
    if version >= "2007-08-29":
        data["instance-type"] = md.instance_type
    if version >= "2007-12-15":
        mapping = DEFAULT_BLOCK_DEVICE_MAPPING if md.block_device_mapping is None else md.block_device_mapping
        data["block-device-mapping"] = dict(mapping)
    if version >= "2008-02-01":
        data["placement"] = {"availability-zone": md.availability_zone}
    if version >= "2008-09-01":
        data["instance-action"] = "none"
    return data


def block_device_mapping(
    root_device_name: str | None,
    ephemerals: t.Sequence[str] = (),
    swap: str | None = None,
    volumes: t.Sequence[str] = (),
) -> dict[str, str]:
    """EC2's block-device-mapping from device names with /dev/. Volumes are numbered in the order of their names."""
    if root_device_name is None:
        return dict(DEFAULT_BLOCK_DEVICE_MAPPING)
    short = root_device_name[len("/dev/") :] if root_device_name.startswith("/dev/") else root_device_name
    mapping = {"ami": short, "root": root_device_name}
    mapping.update(("ebs%d" % number, name) for number, name in enumerate(sorted(volumes)))
    if swap:
        mapping["swap"] = swap
    mapping.update(("ephemeral%d" % number, name) for number, name in enumerate(ephemerals))
    return mapping


def _contents(md: InstanceMetadata) -> tuple[dict[str, bytes], list[dict[str, str]]]:
    """(NNNN -> bytes, the entries of "files")."""
    content: dict[str, bytes] = {}
    listed = []
    for path, data in md.injected_files:
        listed.append({"path": path, "content_path": "/content/%04d" % len(content)})
        content["%04d" % len(content)] = data
    return content, listed


def meta_data(
    md: InstanceMetadata, version: str = EPOXY, listed: t.Sequence[t.Mapping[str, str]] = ()
) -> dict[str, t.Any]:
    """The content of openstack/<version>/meta_data.json. :arg listed: the entries of "files"."""
    data: dict[str, t.Any] = {"uuid": md.uuid}
    if md.metadata:
        data["meta"] = dict(md.metadata)
    if listed:
        data["files"] = list(listed)
    if md.admin_password:
        data["admin_pass"] = md.admin_password
    if md.keys:
        name, public_key = md.keys[0]
        data["public_keys"] = {name: public_key}
        data["keys"] = [{"name": name, "type": "ssh", "data": public_key}]
    data["hostname"] = _fqdn(md)
    data["name"] = md.display_name
    data["launch_index"] = md.launch_index
    data["availability_zone"] = md.availability_zone
    if version >= GRIZZLY:
        data["random_seed"] = base64.b64encode(md.random_seed).decode("ascii")
    if version >= LIBERTY:
        data["project_id"] = md.project_id
    if version >= NEWTON_ONE:
        data["devices"] = _devices(md.devices, version)
    if version >= VICTORIA:
        data["dedicated_cpus"] = sorted(md.dedicated_cpus)
    return data


def vendor_data(md: InstanceMetadata) -> dict[str, t.Any]:
    """Return the vendor data with password and host key for cloud-init. Later parts replace earlier ones, so parts of others come after it."""
    config: dict[str, t.Any] = {}
    if md.login is not None:
        user, hashed = md.login
        config["chpasswd"] = {"expire": False, "users": [{"name": user, "password": hashed, "type": "hash"}]}
    if md.ssh_host_key is not None:
        private, public = md.ssh_host_key
        config["ssh_keys"] = {"ed25519_private": private, "ed25519_public": public}
    if not config:
        return dict(md.vendor_data)
    others = md.vendor_data.get("cloud-init") or ()
    parts = others if isinstance(others, (list, tuple)) else [others]
    return {**md.vendor_data, "cloud-init": ["#cloud-config\n" + json.dumps(config), *parts]}


def _devices(devices: t.Iterable[t.Mapping[str, t.Any]], version: str) -> list[dict[str, t.Any]]:
    result = []
    for device in devices:
        kind = device["type"]
        entry: dict[str, t.Any] = {}
        if kind == "nic":
            if version >= OCATA and device.get("vlan") is not None:
                entry["vlan"] = device["vlan"]
            if version >= ROCKY:
                entry["vf_trusted"] = bool(device.get("vf_trusted", False))
            if not entry and not device.get("tags"):
                continue
            entry.update(type="nic", mac=device["mac"])
        elif kind == "disk":
            entry["type"] = "disk"
            entry.update((key, device[key]) for key in ("serial", "path") if device.get(key))
        elif kind == "share" and version >= EPOXY:
            entry.update(type="share", share_id=device["share_id"], tag=device["tag"])
        else:
            continue
        entry["bus"] = device.get("bus") or "none"
        entry["address"] = device.get("address") or "none"
        if device.get("tags"):
            entry["tags"] = list(device["tags"])
        result.append(entry)
    return result


def _fqdn(md: InstanceMetadata) -> str:
    return "%s.%s" % (md.hostname, md.dhcp_domain) if md.dhcp_domain else md.hostname


def _first(addresses: t.Sequence[str]) -> str:
    # Empty for a guest that has IPv6 only.
    return addresses[0] if addresses else ""


def _ec2_number(uuid: str) -> str:
    # EC2 ids are eight hexadecimal digits. Nova counts them; here they derive from the UUID, so nothing has to be stored.
    return (re.sub(r"[^0-9a-f]", "", uuid.lower()) + "0" * 8)[:8]


def _json(data: t.Any) -> bytes:
    return json.dumps(data).encode("utf-8")
