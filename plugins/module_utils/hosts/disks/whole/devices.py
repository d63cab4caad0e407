# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Physical disks that are reserved for guests, and why one of them is not available."""

from __future__ import annotations

import errno
import json
import os
import stat
import typing as t

from ....core.amounts import GIB
from ....core.errors import CommandFailed
from ...os.command import program, run
from ...os.files import opened

#: Types of lsblk that count as whole disks; loop devices are used in labs.
WHOLE = ("disk", "loop", "mpath")
_COLUMNS = "KNAME,TYPE,SIZE,RO,ROTA,TRAN,SERIAL,WWN,FSTYPE,MOUNTPOINT"
#: Each of the first four sectors may hold the label of an LVM physical volume.
_LABEL, _SECTOR, _SECTORS = b"LABELONE", 512, 4

Node = t.Dict[str, t.Any]


def isolated_disks(
    paths: t.Iterable[str],
    used_by: t.Mapping[str, t.Mapping[str, t.Any]] | None = None,
    describe: t.Callable[[str], Node] | None = None,
    examine: t.Callable[[str], str] | None = None,
) -> list[dict[str, t.Any]]:
    """One row per path: {path, size_gb (GiB, rounded down), medium, serial, reason}.

    ``medium`` is hdd, ssd or nvme; ``domain`` is the UUID of the one that uses the disk. Only disks with an empty ``reason`` are available to guests.

    :arg used_by: real path of a disk -> the domain that uses it (uuid, name).
    """
    describe, examine = describe or block_device, examine or why_busy
    rows: list[dict[str, t.Any]] = []
    seen: dict[str, str] = {}
    for path in paths:
        row: dict[str, t.Any] = {"path": path, "size_gb": 0, "medium": "", "serial": "", "reason": ""}
        rows.append(row)
        row["reason"] = _why_no_device(path)
        if row["reason"]:
            continue
        real = os.path.realpath(path)
        try:
            node = describe(real)
        except (CommandFailed, ValueError, LookupError) as error:
            row["reason"] = "cannot be identified by lsblk: %s" % error
            continue
        row.update(size_gb=_int(node.get("size")) // GIB, medium=medium(node), serial=str(node.get("serial") or ""))
        wwn = str(node.get("wwn") or "")
        twin = seen.get(real) or (seen.get("wwn " + wwn) if wwn else None)
        domain = (used_by or {}).get(real)
        if twin:
            row["reason"] = "is the same disk as %s" % twin
        elif domain:
            row.update(reason="is used by domain %s" % domain["name"], domain=domain["uuid"])
        else:
            row["reason"] = why_not_whole(node) or examine(real)
        seen.setdefault(real, path)
        if wwn:
            seen.setdefault("wwn " + wwn, path)
    return rows


def _why_no_device(path: str) -> str:
    if not path.startswith("/"):
        return "is not an absolute path"
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return "does not exist: %s" % error.strerror
    return "" if stat.S_ISBLK(mode) else "is not a block device"


def block_device(path: str) -> Node:
    """lsblk's tree of one device: the device with what is on it in ``children``.

    :raises CommandFailed, ValueError, LookupError: lsblk failed or printed unexpected output.
    :raises MissingLibrary: lsblk is not installed.
    """
    done = run([program("lsblk", "util-linux"), "--json", "--bytes", "--output", _COLUMNS, path], timeout=30)
    return t.cast(Node, json.loads(done.stdout)["blockdevices"][0])


def _int(value: t.Any) -> int:
    return int(value or 0)


def _truth(value: t.Any) -> bool:
    # Before util-linux 2.33 all values are strings.
    return value in (True, 1, "1")


def medium(node: Node) -> str:
    """hdd, ssd or nvme."""
    if node.get("tran") == "nvme" or str(node.get("kname") or "").startswith("nvme"):
        return "nvme"
    return "hdd" if _truth(node.get("rota")) else "ssd"


def why_not_whole(node: Node) -> str:
    """Why a device is not available as a whole disk ("" if it is): it is not a whole disk, or it or a partition is in use."""
    if node.get("type") not in WHOLE:
        return "is of type %s, not a whole disk" % node.get("type")
    if not _int(node.get("size")):
        return "has no size"
    if _truth(node.get("ro")):
        return "is read-only"
    return _why_used(node, "the disk")


def _why_used(node: Node, what: str) -> str:
    mounted = [mount for mount in (node.get("mountpoints") or [node.get("mountpoint")]) if mount]
    if mounted:
        return "%s is mounted at %s" % (what, mounted[0])
    kind = str(node.get("fstype") or "")
    if kind == "LVM2_member":
        return "%s is an LVM physical volume" % what
    if kind.endswith("_member"):
        return "%s is a member of a %s set" % (what, kind[: -len("_member")])
    for child in node.get("children") or ():
        if child.get("type") != "part":
            return "%s is held by %s (%s)" % (what, child.get("kname"), child.get("type"))
        reason = _why_used(child, "partition %s" % child.get("kname"))
        if reason:
            return reason
    return ""


def why_busy(path: str) -> str:
    """Why a disk is not available although lsblk found nothing: lsblk uses udev, which may not be running or not know the content.

    Opening a device exclusively fails if the kernel uses it or a partition of it: a file system in
    any mount namespace, a member of btrfs or ZFS, a swap, a device-mapper target.
    """
    try:
        with opened(path, os.O_RDONLY | os.O_EXCL) as fd:
            try:
                head = os.read(fd, _SECTOR * _SECTORS)
            except OSError as error:
                return "cannot be read: %s" % error.strerror
    except OSError as error:
        return "is in use by the kernel" if error.errno == errno.EBUSY else "cannot be opened: %s" % error.strerror
    labels = [head[n * _SECTOR : n * _SECTOR + len(_LABEL)] for n in range(_SECTORS)]
    return "the disk is an LVM physical volume" if _LABEL in labels else ""
