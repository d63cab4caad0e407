# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a person may have meant by a name that does not exist."""

from __future__ import annotations

import re
import typing as t

LISTED = 12  # fields that a remedy lists at most
NAMES_LISTED = 24  # names of a variable, as the collection's own images are some of them
_LONGEST = 80  # characters of a name that is compared

#: What people of other tools call a field -> what it is called here, where that is a field of the same mapping.
SYNONYMS: t.Mapping[str, tuple[str, ...]] = {
    "type": ("volume_type",),
    "size": ("volume_size",),
    "size_gb": ("size", "volume_size"),
    "bus": ("disk_bus",),
    "volume": ("volume_id", "block_device_mapping"),
    "snapshot": ("snapshot_id",),
    "image": ("image_id", "imageRef"),
    "net": ("network",),
    "ip": ("fixed_ip",),
    "ips": ("fixed_ip",),
    "address": ("fixed_ip",),
    "ip_address": ("fixed_ip",),
    "ipv4": ("fixed_ip", "access_ip_v4"),
    "ipv6": ("fixed_ip", "access_ip_v6"),
    "ssh_key": ("key_name", "public_key"),
    "key": ("key_name", "public_key"),
    "keypair": ("key_name",),
    "zone": ("availability_zone",),
    "az": ("availability_zone",),
    "nics": ("networks",),
    "interfaces": ("networks",),
    "cloud_init": ("user_data",),
    "hints": ("scheduler_hints",),
    "password": ("admin_password",),
    "admin_pass": ("admin_password",),
    "files": ("injected_files",),
    "personality": ("injected_files",),
    "block_devices": ("block_device_mapping",),
    "block_device_mapping_v2": ("block_device_mapping",),
    "number": ("count",),
    "replicas": ("count",),
    "labels": ("metadata", "tags"),
    "ram": ("memory_mb",),
    "memory": ("memory_mb",),
    "cpus": ("vcpus",),
    "cores": ("vcpus",),
    "disk": ("root_gb",),
    "disk_gb": ("root_gb",),
    "dns": ("dns_nameservers",),
    "gateway": ("gateway_ip",),
    "url": ("location", "path"),
}


def nearest(asked: str, known: t.Iterable[str]) -> str:
    """The name of ``known`` that a person may have meant; "" if none is near enough to be named.

    Near is the same name in other capitals or with other separators, its letters in another order, or one with at most a quarter of the letters mistyped:
    a wrong guess misleads more than none.
    """
    names = sorted(set(known))
    wanted = _plain(asked)
    for name in names:
        if _plain(name) == wanted:
            return name
    for meant in SYNONYMS.get(str(asked).lower(), ()):
        if meant in names:
            return meant
    if len(wanted) > _LONGEST:
        return ""
    allowed = max(1, len(wanted) // 4)
    best = min(((_edits(wanted, _plain(name), allowed), name) for name in names), default=(allowed + 1, ""))
    if best[0] <= allowed:
        return best[1] if len(wanted) > 2 else ""
    return next((name for name in names if len(wanted) > 3 and sorted(_plain(name)) == sorted(wanted)), "")


def _plain(name: str) -> str:
    return re.sub(r"[-_. ]", "", str(name).lower())


def _edits(one: str, other: str, most: int) -> int:
    """Letters to insert, remove, replace or swap with their neighbour to make one text the other; more than ``most``: any larger number."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return row[-1]


def suggestion(asked: str, known: t.Iterable[str], where: str) -> str:
    """The remedy for the unknown name: the nearest one, and all if they are few.

    :arg where: what has the names: the variable.
    """
    names = sorted(set(known))
    if not names:
        return "%s is empty." % where
    near = nearest(asked, names)
    meant = "Did you mean %s? " % near if near else ""
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
