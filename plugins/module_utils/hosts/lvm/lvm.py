# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""LVM on this host: one report for a whole volume group, and the commands that change it.

Sizes are in bytes. Programs get argument lists and LC_ALL=C; the messages of LVM are mapped to our errors.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import typing as t
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ...core.disks.logical_volumes import checked_lvm_name, device_path
from ...core.errors import CommandFailed, Conflict, DriverNotInitialized, VolumeBackendAPIException, VolumeIsBusy
from ..os import guest_rules
from ..os.command import Completed, program, run
from ..os.locks import LOCK_ROOT, host_lock

__all__ = ["LOCK_ROOT", "device_path"]  # who drives volume groups finds them here, too

LVM_PACKAGE = "lvm2"
#: Seconds for one command, which waits for LVM's own lock and for devices that do not respond.
COMMAND_TIMEOUT = 300.0

_VG = ("vg_name", "vg_uuid", "vg_size", "vg_free", "vg_extent_size", "vg_attr", "lv_count", "vg_missing_pv_count")
_PV = ("pv_name", "pv_free", "pv_allocatable", "pv_missing")
_LV = ("lv_name", "lv_uuid", "lv_size", "lv_attr", "lv_tags", "pool_lv", "origin", "data_percent", "metadata_percent")
_SEG = ("lv_name", "segtype", "zero", "discards")

#: The settings of lvm.conf on which the form of a report depends. A host's administrator may have set each of them for reading by people.
_REPORTING: t.Mapping[str, t.Union[int, str]] = {
    "log/command_names": 0,
    "log/prefix": "",
    "log/report_command_log": 0,
    "report/binary_values_as_numeric": 0,
    "report/compact_output": 0,
    "report/compact_output_cols": "",
    "report/list_item_separator": ",",
    "report/mark_hidden_devices": 1,
    "report/prefixes": 0,
    "report/quoted": 1,
    "report/two_word_unknown_device": 0,
}

#: A command that crashed because of bugs in LVM is retried once (as in Cinder for exit code 139).
_CRASHED = (139, -11)

_FULL = re.compile(
    r"insufficient (suitable |free )?(free space|allocatable extents|extents)|reached threshold|out of data space|"
    r"free space in thin pool|not enough free|thin pool .* (full|exhausted)|Insufficient free",
    re.IGNORECASE,
)
_BUSY = re.compile(r"in use\b|is used by another device|filesystem in use|Device or resource busy", re.IGNORECASE)
_TWO_GROUPS = re.compile(r"Multiple VGs found with the same name", re.IGNORECASE)
_NO_GROUP = re.compile(r'Volume group "[^"]*" not found|Cannot process volume group', re.IGNORECASE)


@dataclass(frozen=True)
class LogicalVolume:
    """A logical volume in the report."""

    name: str
    uuid: str
    size: int
    attr: str
    tags: frozenset[str] = frozenset()
    pool: str = ""
    origin: str = ""
    data_percent: float | None = None
    metadata_percent: float | None = None

    @property
    def is_thin(self) -> bool:
        return self.attr[:1] == "V"

    @property
    def is_pool(self) -> bool:
        return self.attr[:1] == "t"

    @property
    def is_thick_snapshot(self) -> bool:
        return self.attr[:1] in ("s", "S")

    @property
    def is_active(self) -> bool:
        return self.attr[4:5] == "a"

    @property
    def is_open(self) -> bool:
        """Return whether a guest, an export or a program has it open."""
        return self.attr[5:6] == "o"

    @property
    def is_invalid(self) -> bool:
        """Return whether a snapshot overflowed, or a pool failed: the content is lost or unreadable."""
        return self.attr[4:5] in ("I", "S") or self.attr[8:9] == "F"


@dataclass(frozen=True)
class VolumeGroup:
    """A volume group with all of its logical volumes at one point in time.

    ``size`` and ``free`` are in bytes, without the free extents of physical volumes on which LVM allocates nothing (``pvchange -x n``).
    """

    name: str
    uuid: str
    size: int
    free: int
    extent_size: int
    attr: str = "wz--n-"
    missing_pvs: int = 0
    lvs: t.Mapping[str, LogicalVolume] = field(default_factory=dict)
    zeroing: t.Mapping[str, bool] = field(default_factory=dict)  # of pools: new chunks are zeroed
    ledger_id: str = ""  # volumes with the mark of another ledger are not ours; "": all with our tags are

    def rounded(self, size: int) -> int:
        """Round ``size`` up to whole extents."""
        return -(-size // self.extent_size) * self.extent_size

    def snapshots_of(self, name: str) -> list[LogicalVolume]:
        """Return the logical volumes whose origin is this one."""
        return [lv for lv in self.lvs.values() if lv.origin == name]

    def path(self, name: str) -> str:
        return device_path(self.name, name)


def _number(text: str, kind: t.Callable[[str], t.Any], nothing: t.Any) -> t.Any:
    return kind(text) if text not in ("", None) else nothing


def parse_report(text: str) -> VolumeGroup:
    """Return the group in the JSON of ``lvm fullreport``.

    :raises VolumeBackendAPIException: the text is not such a report, or not of exactly one group.
    """
    try:
        reports = json.loads(text)["report"]
        parts = [part for part in reports if part.get("vg")]
        if len(parts) != 1 or len(parts[0]["vg"]) != 1:
            raise ValueError("the report does not cover exactly one volume group")
        part, head = parts[0], parts[0]["vg"][0]
        size, free = int(head["vg_size"]), int(head["vg_free"])
        usable = sum(int(row["pv_free"]) for row in part["pv"] if row["pv_allocatable"] and not row["pv_missing"])
        lvs = {
            row["lv_name"]: LogicalVolume(
                name=row["lv_name"],
                uuid=row["lv_uuid"],
                size=int(row["lv_size"]),
                attr=row["lv_attr"],
                tags=frozenset(tag for tag in row["lv_tags"].split(",") if tag),
                pool=row["pool_lv"],
                origin=row["origin"],
                data_percent=_number(row["data_percent"], float, None),
                metadata_percent=_number(row["metadata_percent"], float, None),
            )
            for row in part.get("lv", [])
        }
        pools = [row for row in part.get("seg", []) if row.get("segtype") == "thin-pool"]
        return VolumeGroup(
            name=head["vg_name"],
            uuid=head["vg_uuid"],
            size=size - (free - usable),
            free=usable,
            extent_size=int(head["vg_extent_size"]),
            attr=head["vg_attr"],
            missing_pvs=_number(head["vg_missing_pv_count"], int, 0),
            lvs=lvs,
            zeroing={row["lv_name"]: row["zero"] == "zero" for row in pools},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VolumeBackendAPIException(data="cannot parse the report of LVM: %s" % error) from None


def lvm(vg: str, *arguments: str, settings: t.Mapping[str, int | str] = MappingProxyType({})) -> str:
    """Run one LVM command on the group; its report if it has one (its messages are not in it).

    :arg arguments: the command and its arguments.
    :arg settings: of lvm.conf, ``section/name``, for this command.
    :raises DriverNotInitialized: the group does not exist.
    :raises VolumeIsBusy: a logical volume is in use.
    :raises VolumeBackendAPIException: there is not enough space, or LVM failed for another reason.
    """
    done = run_lvm(*arguments, settings=settings)
    if done.rc != 0:
        raise _refusal(vg, arguments[0], done.rc, done.stderr.strip()[-1500:])
    return done.stdout


def run_lvm(command: str, *arguments: str, settings: t.Mapping[str, int | str] = MappingProxyType({})) -> Completed:
    """Run one LVM command. ``stdout`` has its report only, ``stderr`` all messages; it does not see disks of guests."""
    config = " ".join("%s=%s" % (k, json.dumps(v)) for k, v in sorted({**_REPORTING, **settings}.items()))
    own = guest_rules.restricted()
    if own is not None:
        # Devices that the command names may become physical volumes.
        devices = [*own, *(word for word in arguments if word.startswith("/dev/"))]
        arguments = ("--devices", ",".join(devices or ["/dev/null"]), *arguments)
    argv = [program("lvm", LVM_PACKAGE), command, "--config", config, *arguments]
    # On stdout LVM mixes messages into a report.
    done = run(argv, timeout=COMMAND_TIMEOUT, check=False, report="LVM_REPORT_FD")
    if done.rc in _CRASHED:
        done = run(argv, timeout=COMMAND_TIMEOUT, check=False, report="LVM_REPORT_FD")
    return done


def _refusal(vg: str, command: str, rc: int, said: str) -> Exception:
    said = " ".join(said.split())
    if _TWO_GROUPS.search(said):
        return _not_ready(
            "Volume group %s" % vg,
            "%s has several groups with this name" % os.uname().nodename,
            "Rename the group that is not meant, by its UUID (vgs -o vg_name,vg_uuid,pv_name; vgrename UUID NAME).",
        )
    if _NO_GROUP.search(said):
        return group_missing(vg)
    if _FULL.search(said):
        return no_room(vg, said)
    if "already exists in volume group" in said:
        return Conflict(message="%s: %s" % (vg, said), remedy="Another run has just created it; rerun the playbook.")
    if _BUSY.search(said):
        return VolumeIsBusy(
            message="%s: %s" % (vg, said), remedy="Detach the volume and remove its export, then rerun the playbook."
        )
    if rc == 127 or not said:
        return CommandFailed(cmd="lvm " + command, rc=rc, stderr=said)
    return VolumeBackendAPIException(data="lvm %s on %s: %s" % (command, vg, said))


def group_missing(vg: str) -> DriverNotInitialized:
    return DriverNotInitialized(
        message="Volume driver not ready. Volume group %s does not exist on %s" % (vg, os.uname().nodename),
        remedy="Prepare the backend (vgcreate %s DEVICES), or correct its volume_group." % vg,
    )


def no_room(where: str, reason: str) -> VolumeBackendAPIException:
    return VolumeBackendAPIException(
        data="%s is full: %s" % (where, reason),
        remedy="Delete volumes, extend the group or pool (vgextend, lvextend), or use another backend.",
    )


def read_group(vg: str, ledger_id: str = "") -> VolumeGroup:
    """Return the volume group with its content, read by one command.

    :arg ledger_id: the ledger for which it is read.
    :raises DriverNotInitialized: the group does not exist.
    """
    checked_lvm_name(vg, "volume group")
    arguments = ["fullreport", "--reportformat", "json", "--units", "b", "--nosuffix"]
    for name, fields in (("vg", _VG), ("lv", _LV), ("seg", _SEG), ("pv", _PV), ("pvseg", ("pvseg_start",))):
        arguments += ["--configreport", name, "-o", ",".join(fields)]
    return replace(parse_report(lvm(vg, *(arguments + [vg]))), ledger_id=ledger_id)


def check_group(group: VolumeGroup, pool: str = "") -> None:
    """Check that the group and, if given, its thin ``pool`` are usable. See is_full() for a full pool.

    :raises DriverNotInitialized: the group is partial, exported or read-only, or the pool is missing or not active.
    """
    reason = ""
    if group.missing_pvs:
        reason = "%d physical volumes are missing" % group.missing_pvs
    elif group.attr[2:3] == "x":
        reason = "the group is exported"
    elif group.attr[:1] == "r":
        reason = "the group is read-only"
    if reason:
        raise _not_ready("Volume group %s" % group.name, reason, "Repair the group; see vgs and vgck.")
    if not pool:
        return
    lv = group.lvs.get(pool)
    where = "Thin pool %s/%s" % (group.name, pool)
    if lv is None or not lv.is_pool:
        raise _not_ready(where, "the pool does not exist", "Create the pool: lvcreate --type thin-pool.")
    if not lv.is_active or lv.is_invalid:
        raise _not_ready(
            where,
            "the pool is not active",
            "Activate the pool: lvchange --activate y %s/%s; see lvs -a." % (group.name, pool),
        )


def is_full(group: VolumeGroup, pool: str) -> bool:
    """Return whether the thin pool has no space for new volumes or writes."""
    lv = group.lvs[pool]
    return (lv.data_percent or 0.0) >= 100.0 or (lv.metadata_percent or 0.0) >= 100.0


def pool_full(group: VolumeGroup, pool: str) -> VolumeBackendAPIException:
    lv = group.lvs[pool]
    used = "data %.1f %%, metadata %.1f %%" % (lv.data_percent or 0.0, lv.metadata_percent or 0.0)
    return no_room("thin pool %s/%s" % (group.name, pool), used)


def pool_room(group: VolumeGroup, pool: str) -> int:
    """Return the unwritten bytes of the thin pool."""
    lv = group.lvs[pool]
    return int(lv.size * (100.0 - (lv.data_percent or 0.0)) / 100)


def _not_ready(what: str, reason: str, remedy: str) -> DriverNotInitialized:
    return DriverNotInitialized(message="Volume driver not ready. %s: %s" % (what, reason), remedy=remedy)


@contextlib.contextmanager
def group_lock(vg: str, timeout: float = 600.0) -> t.Iterator[None]:
    """Lock the group: only one run at a time reads and changes it. Never held while data is copied."""
    with host_lock(LOCK_ROOT, "vg-" + hashlib.sha256(vg.encode()).hexdigest()[:32], timeout=timeout):
        yield


@contextlib.contextmanager
def item_locks(ids: t.Iterable[str], timeout: float = 7200.0) -> t.Iterator[None]:
    """Lock these volumes, snapshots or images, in a fixed order, so that runs cannot deadlock."""
    with contextlib.ExitStack() as stack:
        for item_id in sorted(set(ids)):
            stack.enter_context(host_lock(LOCK_ROOT, "item-" + item_id, timeout=timeout))
        yield


def _tags(tags: t.Iterable[str]) -> list[str]:
    return [word for tag in tags for word in ("--addtag", tag)]


def create_thick(vg: str, name: str, size: int, tags: t.Iterable[str]) -> None:
    """Create a linear logical volume; old signatures are wiped from its beginning."""
    arguments = ["lvcreate", "--yes", "--wipesignatures", "y", "--zero", "y", "--name", name, "--size", "%db" % size]
    lvm(vg, *(arguments + _tags(tags) + [vg]))


def create_thin(vg: str, pool: str, name: str, size: int, tags: t.Iterable[str]) -> None:
    """Create a thin logical volume."""
    arguments = ["lvcreate", "--yes", "--virtualsize", "%db" % size, "--thinpool", pool, "--name", name]
    lvm(vg, *(arguments + _tags(tags) + [vg]))


def create_thin_snapshot(vg: str, origin: str, name: str, tags: t.Iterable[str], active: bool) -> None:
    """Create a thin snapshot: ``active`` and writable for a clone, otherwise inactive, as is LVM's default for snapshots."""
    state = ["--setactivationskip", "n", "--activate", "y"] if active else ["--setactivationskip", "y"]
    arguments = ["lvcreate", "--yes", "--snapshot", "--permission", "rw", "--name", name]
    lvm(vg, *(arguments + state + _tags(tags) + ["%s/%s" % (vg, origin)]))


def create_thick_snapshot(vg: str, origin: str, name: str, size: int, tags: t.Iterable[str]) -> None:
    """Create a copy-on-write snapshot with ``size`` bytes for changes."""
    arguments = ["lvcreate", "--yes", "--snapshot", "--name", name, "--size", "%db" % size]
    lvm(vg, *(arguments + _tags(tags) + ["%s/%s" % (vg, origin)]))


def snapshot_room(group: VolumeGroup, origin_size: int) -> int:
    """Return the size with which a thick snapshot can never overflow: that of the origin, and 16 bytes for each chunk of 4 KiB."""
    return group.rounded(origin_size + origin_size // 256 + group.extent_size)


def extend(vg: str, name: str, size: int) -> None:
    """Grow to ``size`` bytes; the content is kept."""
    lvm(vg, "lvextend", "--yes", "--size", "%db" % size, "%s/%s" % (vg, name))


def rename(vg: str, name: str, new: str) -> None:
    """Give a logical volume another name. Its content, tags and size are kept, and it may be active."""
    lvm(vg, "lvrename", "--yes", vg, name, new)


def change_tags(vg: str, names: t.Sequence[str], add: t.Sequence[str] = (), remove: t.Sequence[str] = ()) -> None:
    """Change the tags of several logical volumes with one command."""
    arguments = ["lvchange", "--yes"] + _tags(add) + [word for tag in remove for word in ("--deltag", tag)]
    lvm(vg, *(arguments + ["%s/%s" % (vg, name) for name in names]))


def set_active(vg: str, names: t.Sequence[str], active: bool) -> None:
    """Activate (also volumes with the skip flag) or deactivate. Raises VolumeIsBusy."""
    arguments = ["lvchange", "--yes", "--activate", "y" if active else "n"]
    if active:
        arguments.append("--ignoreactivationskip")
    lvm(vg, *(arguments + ["%s/%s" % (vg, name) for name in names]))


def seal(vg: str, name: str, tag: str) -> None:
    """Make the volume read-only, and remove the ``tag``."""
    lvm(vg, "lvchange", "--yes", "--permission", "r", "--deltag", tag, "%s/%s" % (vg, name))


def unseal(vg: str, name: str, tag: str) -> None:
    """Undo seal()."""
    lvm(vg, "lvchange", "--yes", "--permission", "rw", "--addtag", tag, "%s/%s" % (vg, name))


def split_snapshot(vg: str, name: str) -> None:
    """Turn the changed blocks of a thick snapshot into a separate logical volume that can be wiped."""
    lvm(vg, "lvconvert", "--yes", "--splitsnapshot", "%s/%s" % (vg, name))


def remove(vg: str, names: t.Sequence[str]) -> None:
    """Remove several volumes with one command. LVM also removes the thick snapshots of an origin: check for them first."""
    lvm(vg, *(["lvremove", "--yes"] + ["%s/%s" % (vg, name) for name in names]))


def create_pool(vg: str, pool: str, size: int) -> None:
    """Create a thin pool that zeroes new chunks, and in which writes fail instead of hanging when it is full."""
    checked_lvm_name(pool, "thin pool")
    # lvcreate has no option for the second, and creating a pool in two steps may leave it incomplete.
    arguments = ["--yes", "--type", "thin-pool", "--zero", "y", "--name", pool, "--size", "%db" % size, vg]
    lvm(vg, "lvcreate", *arguments, settings={"activation/error_when_full": 1})
