# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are logical volumes, of an instance that is resized on its own host; and the one that has its disks in a file system (mounted.py).

What the instance gets has the name of its disk with NEW behind it, what it had that with OLD. A disk is exchanged by two renames,
and the same two bring it back, so that one look at the names tells where a killed run stopped:

    disk and NEW  ->  OLD and NEW  ->  OLD and disk

All have the instance's tags: they are removed with it.
"""

from __future__ import annotations

import typing as t

from ....core.disks.local import DISK, volume_name
from ....core.disks.stores.lvm import Lvm
from ....core.disks.stores.registry import STORE_TYPES, is_volume
from ....core.errors import InvalidDiskInfo
from ...lvm import lvm
from ...lvm.lvm_tags import DELETING
from ...os.batch import progress
from ...os.paths import checked_disk_name
from ...os.room import check_room
from ...volumes.copy import flush, zero
from ..stores.disk_info import record_of, write_records
from ..stores.disk_spec import DiskSpec, disk_size
from ..stores.files import format_disk
from ..stores.group import Group
from ..stores.instance_tags import of_instance
from ..stores.instance_volumes import Wanted, activate, begin, check_closed, finish, remove, whole
from ..stores.volumes import write_image
from .files import ResizedFiles, check_files, fill
from .resize import Records

NEW, OLD = ".resize.new", ".resize.old"


class ResizedVolumes(ResizedFiles):
    """Logical volumes of the instance, and files in its folder: the setting of its host may have changed since."""

    def check(self, folder: str, records: Records, made: t.Sequence[DiskSpec]) -> int:
        files = _files(records)
        # Before what an earlier resize left is removed: a run that was killed in its exchange has left a disk under the former name alone.
        _sources(lvm.read_group(self.group.vg), folder.rpartition("/")[2], [n for n in records if n not in files])
        return check_files(folder, files)

    def copy(
        self,
        folder: str,
        part: str,
        records: Records,
        sizes: t.Mapping[str, int],
        made: t.Sequence[DiskSpec],
        needed: int,
    ) -> dict[str, t.Any]:
        check_room(folder, needed)
        # Before one is created, because roll_back() finds the group here.
        write_records(part, {DISK: {"format": Lvm.name, "volume_group": self.group.vg}})
        files = _files(records)
        volumes = {n: r for n, r in records.items() if n not in files}
        in_group = [spec for spec in made if STORE_TYPES[spec.backend].is_volume]
        write_records(part, _copied(self.group, folder.rpartition("/")[2], volumes, sizes, in_group))
        return fill(folder, part, files, sizes, [spec for spec in made if spec not in in_group])

    def swap_in(self, folder: str, dropped: t.Collection[str], records: t.Mapping[str, t.Any]) -> None:
        _exchange(self.group, folder.rpartition("/")[2], dropped)

    def is_swapped_in(self, uuid: str, added: t.Collection[str]) -> bool:
        return bool(_exchanged(_names(self.group, uuid), uuid, added))

    def roll_back(self, folder: str, added: t.Collection[str], records: t.Mapping[str, t.Any]) -> None:
        _bring_back(self.group, folder.rpartition("/")[2], added)

    def discard_copies(self, uuid: str) -> bool:
        return _drop(self.group, uuid, NEW)

    def commit(self, uuid: str) -> bool:
        return _drop(self.group, uuid, NEW, OLD)


def _files(records: Records) -> dict[str, t.Mapping[str, t.Any]]:
    """Return the records of disks that are not logical volumes."""
    return {name: record for name, record in records.items() if not is_volume(record)}


def _copied(
    group: Group, uuid: str, records: t.Mapping[str, t.Any], sizes: t.Mapping[str, int], made: t.Sequence[DiskSpec]
) -> dict[str, t.Any]:
    """Copies of these disks, not smaller than ``sizes``, and the disks that are ``made``. Returns the records of both.

    :raises InvalidDiskInfo: a disk is missing. :raises VolumeIsBusy: a guest uses it. :raises DiskFull: the group has no room.
    """
    volume_group = lvm.read_group(group.vg, group.ledger_id)
    lvm.check_group(volume_group)
    sources = _sources(volume_group, uuid, records)
    check_closed(group.vg, [lv.name for lv in sources])
    activate(group.vg, sources)
    new = {n: {**r, "virtual_size": _grown(volume_group, r, sizes.get(n, 0))} for n, r in records.items()}
    for spec in made:
        new[spec.name] = {
            **record_of(spec, volume_group.rounded(disk_size(spec, None)), None),
            "volume_group": group.vg,
        }
    names = {n: volume_name(uuid, n) + NEW for n in new}
    source = {n: "image/%s" % r["image_id"] if r.get("image_id") else "" for n, r in new.items()}
    begin(group.vg, uuid, [Wanted(names[n], r["virtual_size"], source[n]) for n, r in new.items()], group.ledger_id)
    for name in records:
        path = lvm.device_path(group.vg, names[name])
        zero(path, new[name]["virtual_size"])  # what it is larger by, too, whatever another guest left there
        write_image(lvm.device_path(group.vg, volume_name(uuid, name)), path)
        flush(path)
    for spec in made:
        path = lvm.device_path(group.vg, names[spec.name])
        format_disk(spec, path)
        flush(path)
    if names:
        finish(group.vg, list(names.values()))
    return new


def _sources(group: lvm.VolumeGroup, uuid: str, names: t.Iterable[str]) -> list[t.Any]:
    """Return the logical volumes of these disks. :raises InvalidDiskInfo: one is missing, or not whole"""
    sources = []
    for name in names:
        lv = whole(group, uuid, volume_name(uuid, checked_disk_name(name)))
        if lv is None:
            raise InvalidDiskInfo(reason="logical volume %s/%s does not exist" % (group.name, volume_name(uuid, name)))
        sources.append(lv)
    return sources


def _grown(group: lvm.VolumeGroup, record: t.Mapping[str, t.Any], size: int) -> int:
    return max(group.rounded(size), group.rounded(int(record["virtual_size"])))


def _exchange(group: Group, uuid: str, dropped: t.Collection[str]) -> None:
    """Rename the disks, and then the copies. :arg dropped: disks that the instance has no more"""
    with lvm.group_lock(group.vg):
        lv_names = _names(group, uuid)
        for name in sorted({*_with(lv_names, NEW), *(volume_name(uuid, n) for n in dropped)}):
            if name in lv_names and name + OLD not in lv_names:
                lvm.rename(group.vg, name, name + OLD)
            if name + NEW in lv_names:
                lvm.rename(group.vg, name + NEW, name)


def _exchanged(lv_names: t.Collection[str], uuid: str, added: t.Collection[str]) -> list[str]:
    """Names of disks of which the copy is the disk, or the one that the instance had has no name of a disk yet."""
    names = {*_with(lv_names, OLD), *(volume_name(uuid, n) for n in added)}
    return sorted(n for n in names if n + OLD in lv_names or (n in lv_names and n + NEW not in lv_names))


def _bring_back(group: Group, uuid: str, added: t.Collection[str]) -> None:
    """Do the opposite of _exchange(). :arg added: disks that the instance did not have"""
    with lvm.group_lock(group.vg):
        lv_names = _names(group, uuid)
        for name in _exchanged(lv_names, uuid, added):
            if name in lv_names and name + NEW not in lv_names:
                progress.mark_changed()
                lvm.rename(group.vg, name, name + NEW)
            if name + OLD in lv_names:
                lvm.rename(group.vg, name + OLD, name)


def _drop(group: Group, uuid: str, *ends: str) -> bool:
    """Clear and remove the logical volumes with these ends of names. Returns whether there were any.

    :raises VolumeIsBusy: one is open.
    """
    lvs = [lv for lv in of_instance(lvm.read_group(group.vg, group.ledger_id), uuid) if lv.name.endswith(ends)]
    remove(group.vg, lvs, group.clearing)
    return bool(lvs)


def _names(group: Group, uuid: str) -> set[str]:
    """Return the names of the instance's volumes, except volumes that are being removed: nothing restores them."""
    lvs = of_instance(lvm.read_group(group.vg, group.ledger_id), uuid)
    return {lv.name for lv in lvs if DELETING not in lv.tags}


def _with(names: t.Iterable[str], end: str) -> set[str]:
    """Names of disks that have a logical volume with that end."""
    return {n[: -len(end)] for n in names if n.endswith(end)}
