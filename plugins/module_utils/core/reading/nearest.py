# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Suggestions for a name that does not exist."""

from __future__ import annotations

import re
import typing as t

LISTED = 12  # fields that a remedy lists at most
NAMES_LISTED = 24  # names of a variable, as the collection's own images are some of them
_LONGEST = 80  # characters of a name that is compared
_SHORT = 4  # characters of a word that is another one with another letter in it: mode and node, time and type

#: What people and other tools call a field -> what it is called here, where that is a field of the same mapping. The words are plain (see _plain).
#: source: the options of `openstack` and `nova`, the fields of Nova's, Neutron's, Glance's and Cinder's APIs, openstack.cloud, Heat, Terraform
SYNONYMS: t.Mapping[str, tuple[str, ...]] = {
    # instances
    "flavour": ("flavor", "flavors"),
    **dict.fromkeys(("flavorref", "flavorname", "instancetype"), ("flavor",)),
    "flavorid": ("flavor",),
    **dict.fromkeys(("image", "imageid", "imageref", "imagename"), ("image", "image_id")),
    **dict.fromkeys(("keypair", "keypairname", "keyname", "sshkeyname"), ("key_name",)),
    **dict.fromkeys(("key", "sshkey", "sshpublickey", "pubkey"), ("key_name", "public_key")),
    **dict.fromkeys(("nic", "nics", "net", "nets", "interface", "interfaces"), ("network", "networks")),
    **dict.fromkeys(("meta", "property", "properties"), ("metadata", "properties", "extra_specs")),
    "labels": ("metadata", "tags"),
    **dict.fromkeys(("cloudinit", "cloudconfig"), ("user_data",)),
    **dict.fromkeys(("hint", "hints", "osschhntschedulerhints", "osschedulerhints"), ("scheduler_hints",)),
    **dict.fromkeys(("zone", "az"), ("availability_zone",)),
    **dict.fromkeys(("password", "adminpass", "rootpassword"), ("admin_password",)),
    **dict.fromkeys(("personality", "files"), ("injected_files",)),
    "file": ("path", "injected_files"),
    **dict.fromkeys(("blockdevice", "blockdevices", "bdm", "blockdevicemappingv2"), ("block_device_mapping",)),
    "useconfigdrive": ("config_drive",),
    "osdcfdiskconfig": ("disk_config",),
    "fqdn": ("hostname",),
    **dict.fromkeys(("number", "num", "replicas", "instancecount"), ("count",)),
    **dict.fromkeys(("min", "minimum"), ("min_count",)),
    **dict.fromkeys(("max", "maximum"), ("max_count",)),
    **dict.fromkeys(("tenant", "tenantid", "tenantname", "projectid", "projectname", "osprojectname"), ("project",)),
    "userid": ("user",),
    **dict.fromkeys(("powerstate", "vmstate"), ("state",)),
    # interfaces
    **dict.fromkeys(("netid", "netname", "networkid", "networkname"), ("network",)),
    **dict.fromkeys(("subnetid", "subnetname"), ("subnet",)),
    **dict.fromkeys(("ip", "ips", "address", "ipaddress", "fixedips", "v4fixedip", "v6fixedip"), ("fixed_ip",)),
    "ipv4": ("fixed_ip", "access_ip_v4"),
    "ipv6": ("fixed_ip", "access_ip_v6"),
    "mac": ("mac_address",),
    **dict.fromkeys(("port", "portuuid"), ("port_id",)),
    **dict.fromkeys(("server", "serverid", "servername", "vm"), ("instance",)),
    **dict.fromkeys(("servers", "vms"), ("instances",)),
    # block devices, volumes and attachments
    "id": ("uuid", "flavorid"),
    "type": ("volume_type",),
    "size": ("volume_size",),
    "sizegb": ("size", "volume_size"),
    **dict.fromkeys(("source", "src"), ("source_type",)),
    **dict.fromkeys(("dest", "destination"), ("destination_type",)),
    "bus": ("disk_bus",),
    "device": ("device_name",),
    "devicename": ("device",),
    "bootindex": ("boot_index",),
    "shutdown": ("delete_on_termination",),
    "volume": ("volume_id", "source_volid", "block_device_mapping"),
    **dict.fromkeys(("volumeid", "volumename"), ("volume",)),
    **dict.fromkeys(("sourcevolume", "sourcevol"), ("source_volid",)),
    "snapshot": ("snapshot_id",),
    "format": ("disk_format", "guest_format"),
    "vg": ("volume_group",),
    # flavors
    **dict.fromkeys(("ram", "memory", "mem", "rammb", "memorygb"), ("memory_mb", "ram")),
    **dict.fromkeys(("vcpu", "vcpus", "cpu", "cpus", "cores"), ("vcpus", "cores")),
    **dict.fromkeys(("disk", "diskgb", "root", "rootdisk"), ("root_gb",)),
    **dict.fromkeys(("ephemeral", "osflvextdataephemeral"), ("ephemeral_gb",)),
    "swapmb": ("swap",),
    "extraspec": ("extra_specs",),
    "osflvdisableddisabled": ("disabled",),
    # images
    **dict.fromkeys(("location", "uri"), ("url",)),
    "url": ("location", "path"),
    "filename": ("path",),
    **dict.fromkeys(("sha256", "sha512", "hash"), ("checksum",)),
    **dict.fromkeys(("mindiskgb", "mindisksize"), ("min_disk",)),
    **dict.fromkeys(("minrammb", "minmemory"), ("min_ram",)),
    "username": ("url_username",),
    # networks
    **dict.fromkeys(("dns", "dnsserver", "dnsservers", "nameserver", "nameservers"), ("dns_nameservers",)),
    "gateway": ("gateway_ip",),
    **dict.fromkeys(("subnetrange", "range"), ("cidr",)),
    **dict.fromkeys(("pool", "pools"), ("allocation_pools",)),
    **dict.fromkeys(("route", "routes"), ("host_routes",)),
    "dhcp": ("enable_dhcp",),
    "bridge": ("source",),
    # selections
    **dict.fromkeys(("instancenames", "servernames"), ("names",)),
    **dict.fromkeys(("ids", "instanceuuids", "serverids"), ("uuids",)),
}


def nearest(asked: str, known: t.Iterable[str], prefix: str = "") -> str:
    """The name of ``known`` that a person may have meant; "" if none is near enough to be named. Everything that suggests a name asks here.

    Near is the same name in other capitals, with other separators or in another number, what other tools call it, its letters in another order, or
    one with at most a quarter of the letters mistyped: a wrong guess misleads more than none.

    :arg known: only what is accepted where ``asked`` was written.
    :arg prefix: what these names begin with. It is not looked at, as it makes short names alike.
    """
    names = {
        name[len(prefix) :] if name.startswith(prefix) else name: name for name in sorted(set(known), reverse=True)
    }
    asked = str(asked)
    near = _near(asked[len(prefix) :] if asked.startswith(prefix) else asked, sorted(names))
    return names[near] if near else ""


def _near(asked: str, names: list[str]) -> str:
    wanted = _plain(asked)
    for name in names:
        if _plain(name) == wanted:
            return name
    for meant in SYNONYMS.get(wanted, ()):
        if meant in names:
            return meant
    for name in names:
        if len(wanted) > 2 and _plain(name) in (wanted + "s", wanted + "es", wanted[:-1] + "ies"):
            return name
        if len(_plain(name)) > 2 and wanted in (_plain(name) + "s", _plain(name) + "es"):
            return name
    if not 2 < len(wanted) <= _LONGEST:
        return ""
    allowed = max(1, len(wanted) // 4)
    replacing = 1 if len(asked) > _SHORT else allowed + 1
    best = min(((_edits(wanted, _plain(name), allowed, replacing), name) for name in names), default=(allowed + 1, ""))
    if best[0] <= allowed:
        return best[1]
    return next((name for name in names if len(wanted) > 3 and sorted(_plain(name)) == sorted(wanted)), "")


def _plain(name: str) -> str:
    return re.sub(r"[-_.: ]", "", str(name).lower())


def _edits(one: str, other: str, most: int, replacing: int) -> int:
    """Letters to insert, remove, replace or swap with their neighbour to make one text the other; more than ``most``: any larger number.

    :arg replacing: what a replaced letter counts.
    """
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for position, letter in enumerate(one, 1):
        before, last, row = row, before, [position]
        for other_position, wanted in enumerate(other, 1):
            cost = min(
                before[other_position] + 1,
                row[other_position - 1] + 1,
                before[other_position - 1] + (replacing if letter != wanted else 0),
            )
            if (
                position > 1
                and other_position > 1
                and letter == other[other_position - 2]
                and one[position - 2] == wanted
            ):
                cost = min(cost, last[other_position - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return row[-1]


def question(asked: str, known: t.Iterable[str]) -> str:
    """Return ``Did you mean ...? `` with a blank behind it, for a remedy that continues; "" if no name is near."""
    near = nearest(asked, known)
    return "Did you mean %s? " % near if near else ""


def suggestion(asked: str, known: t.Iterable[str], where: str) -> str:
    """The remedy for the unknown name: the nearest one, and all if they are few.

    :arg where: what has the names: the variable.
    """
    names = sorted(set(known))
    if not names:
        return "%s is empty." % where
    meant = question(asked, names)
    if len(names) > NAMES_LISTED:
        return meant + "%s has %d names." % (where, len(names))
    return meant + "%s has: %s." % (where, ", ".join(names))


def field_suggestion(asked: str, known: t.Iterable[str], document: str) -> str:
    """The remedy for an unknown field: the nearest one, else all fields if they are few, else where they are listed."""
    names = sorted(set(known))
    near = nearest(asked, names)
    if near:
        return "Did you mean %s?" % near
    if len(names) > LISTED:
        return "Remove it; %s lists the fields." % document
    return "Known fields: %s." % ", ".join(names)
