# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of an instance that is resized on its own host: those that it gets, and those that it had until the resize is decided.

Both are in folders of the instance's own; of disks that are logical volumes, or on one, these have the records only (resized_volumes.py, resized_mounted.py).
Each step can be killed anywhere and done again, and what a killed one left becomes either of the two:
prepare() makes copies and touches nothing else, take() exchanges them for the disks, settle() keeps what the instance has, back() brings back what it had.
The domain is undefined before a disk gets or loses its name, so that a host which reports the guest has all of what the guest is in the ledger.
source: Nova's libvirt driver (migrate_disk_and_power_off, finish_revert_migration: the folder UUID_resize)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import typing as t
from dataclasses import replace

from ...core.disks.local import QCOW2
from ...core.disks.rescue import DISK as RESCUE
from ...core.disks.stores.registry import STORE_TYPES
from ...core.errors import BootflowError, Conflict, InvalidDiskInfo
from ...core.guest.domain.element import parse
from ...core.guest.nvram import NVRAM
from ..images.images import QEMU_IMG_PACKAGE
from ..images.nvram import open_nvram
from ..libvirt.connection import libvirt, libvirt_errors, tolerating
from ..libvirt.domains import cut_off, ledger_of_domain
from ..libvirt.running import find_domain
from ..os.batch import progress
from ..os.command import program, run
from ..os.files import fsync, remove_files, write_file
from ..os.locks import guest_lock, host_lock, take_back
from ..os.module_errors import as_bootflow_error
from ..os.ownership import check_owner, ledger_of_folder
from ..os.paths import checked_disk_name, instance_dir, make_dirs
from ..os.room import check_room
from .stores import resized_mounted as mounted
from .stores import resized_volumes as volumes
from .stores.disk_info import RECORDS, records_of, write_records
from .stores.disk_spec import DiskSpec, disk_size
from .stores.files import ensure_files, grow

#: Folders in that of the instance: what it gets, that while it is copied, and what it had.
NEW, PART, OLD = "resize.new", "resize.part", "resize.old"
DEFINITION = "domain.xml"
_FORMATS = ("qcow2", "raw")


def prepare(
    instances_path: str,
    ledger_id: str,
    uuid: str,
    sizes: t.Mapping[str, int],
    left: t.Collection[str] = (),
    made: t.Sequence[DiskSpec] = (),
    group: volumes.Group = volumes.NO_GROUP,
) -> dict[str, t.Any]:
    """Copy the disks of an instance whose guest is off, and let the copies grow to ``sizes`` (bytes, by name). Gives {changed, disks}.

    :arg left: disks that are not copied. :arg made: disks that are made. :arg group: for disks that are logical volumes, or on one
    :raises Conflict: the folder belongs to another ledger. :raises DiskFull: there is no room for the copies.
    :raises InvalidDiskInfo: a disk is missing, or not of a known format. :raises CommandFailed, VolumeIsBusy: a guest uses it.
    """
    with _held(instances_path, ledger_id, uuid) as folder:
        uuid, part = os.path.basename(folder), os.path.join(folder, PART)
        made = [spec.checked() for spec in made]
        progress.mark_changed()
        try:
            _remove(folder, NEW, PART)
            of_disks = volumes.recorded(group, folder)
            if of_disks.vg or all(not STORE_TYPES[spec.backend].needs_group for spec in made):
                group = of_disks
            records = _copied(group, folder, sizes, left, made)
            os.rename(part, os.path.join(folder, NEW))
            fsync(folder)
        except BaseException:
            with contextlib.suppress(BootflowError, OSError):
                _remove(folder, PART)
            volumes.drop_if_possible(group, uuid)
            raise
        disks = [{"name": n, "size": int(r["virtual_size"])} for n, r in sorted(records.items())]
        return {"changed": True, "disks": disks}


def _copied(
    group: volumes.Group, folder: str, sizes: t.Mapping[str, int], left: t.Collection[str], made: t.Sequence[DiskSpec]
) -> dict[str, t.Any]:
    """What the instance gets, in the folder PART and in its volume group. Returns the records of the disks."""
    uuid, part = os.path.basename(folder), os.path.join(folder, PART)
    place = mounted.place_of(group, folder)
    there = records_of(place)
    missing = sorted(set(sizes) - set(there))
    if missing:
        raise InvalidDiskInfo(reason="folder %s has no disk %s" % (place, ", ".join(missing)))
    records = {n: r for n, r in there.items() if n != RESCUE and n not in left}
    on_lvm = {n: r for n, r in records.items() if volumes.is_volume(r)}
    files = {n: r for n, r in records.items() if n not in on_lvm}
    needed = _check(place, files)
    own_system = place != folder or any(STORE_TYPES[spec.backend].is_file_system for spec in made)
    if own_system and place == folder and records:
        raise InvalidDiskInfo(
            reason="the disks in folder %s are not in a file system of their own" % folder,
            remedy="Set the bootflow_disk_backend with which the instance was booted for the host.",
        )
    volumes.drop(group, uuid, volumes.NEW, volumes.OLD)
    _remove(folder, OLD)
    if not records_of(folder):
        write_records(folder, {})  # the exchange counts with it
    make_dirs(part, 0o700)
    _copy_nvram(folder, part, left)
    if own_system:
        blank = [replace(spec, backend=QCOW2) for spec in made]
        room = [max(int(r["virtual_size"]), sizes.get(n, 0)) for n, r in files.items()]
        room += [disk_size(spec, None) for spec in blank]
        if not room:
            write_records(part, {})
            return {}
        with mounted.made(group, folder, part, room) as target:
            return _fill(place, target, files, sizes, blank)
    check_room(folder, needed)
    if group.vg:
        write_records(part, volumes.of_group(group))  # before one is created, because back() finds the group here
        write_records(
            part, volumes.copied(group, uuid, on_lvm, sizes, [s for s in made if STORE_TYPES[s.backend].is_volume])
        )
    return _fill(folder, part, files, sizes, [s for s in made if not STORE_TYPES[s.backend].is_volume])


def _check(folder: str, records: t.Mapping[str, t.Mapping[str, t.Any]]) -> int:
    """The bytes that the copies of these disks take."""
    needed = 0
    for name, record in sorted(records.items()):
        path = os.path.join(folder, checked_disk_name(name))
        if record.get("format") not in _FORMATS or not os.path.isfile(path) or os.path.islink(path):
            raise InvalidDiskInfo(reason="%s is not a disk that can be copied" % path)
        run([program("qemu-img", QEMU_IMG_PACKAGE), "info", "-f", record["format"], path], timeout=60.0)  # locks it
        needed += os.stat(path).st_blocks * 512
    return needed


def _fill(
    place: str,
    target: str,
    files: t.Mapping[str, t.Mapping[str, t.Any]],
    sizes: t.Mapping[str, int],
    made: t.Sequence[DiskSpec],
) -> dict[str, t.Any]:
    """Copies of the files in ``place``, and the disks that are ``made``. Returns all records in ``target``."""
    records = records_of(target)
    for name, record in sorted(files.items()):
        copy = os.path.join(target, name)
        _copy(os.path.join(place, name), copy)
        records[name] = {**record, "virtual_size": grow(copy, record, sizes.get(name, 0))}
        fsync(copy)
    write_records(target, records)
    if made:
        ensure_files(target, made, {}, False)
    return records_of(target)


def _copy(source: str, target: str) -> None:
    """Sparse, and without reading anything where the file system can share the blocks. A layer stays one over the same base image."""
    argv = [program("cp", "coreutils"), "--reflink=auto", "--sparse=always", "--", source, target]
    run(argv, timeout=24 * 3600.0, path=target, outlives=False)
    os.chmod(target, 0o600)


def _copy_nvram(folder: str, part: str, left: t.Collection[str]) -> None:
    nvram = None if NVRAM in left else open_nvram(folder)
    if nvram is not None:
        os.close(nvram)
        _copy(os.path.join(folder, NVRAM), os.path.join(part, NVRAM))
        fsync(os.path.join(part, NVRAM))


def take(
    connection: t.Any, instances_path: str, ledger_id: str, uuid: str, group: volumes.Group = volumes.NO_GROUP
) -> dict[str, t.Any]:
    """The copies are the instance's disks now, the others are kept, with the guest's definition. Its guest is off, and has no domain afterwards.

    Without copies, nothing is done.

    :raises Conflict: the guest runs, or is another ledger's.
    """
    with _held(instances_path, ledger_id, uuid) as folder:
        return {"changed": _take(connection, folder, ledger_id, _group(group, folder))}


def settle(
    connection: t.Any, instances_path: str, ledger_id: str, uuid: str, group: volumes.Group = volumes.NO_GROUP
) -> dict[str, t.Any]:
    """As take(), and what the instance had is removed.

    :raises Conflict: see take(). :raises VolumeIsBusy: a logical volume that it had is open.
    """
    with _held(instances_path, ledger_id, uuid) as folder:
        group = _group(group, folder)
        taken = _take(connection, folder, ledger_id, group)
        dropped = volumes.drop(group, os.path.basename(folder), volumes.NEW, volumes.OLD)
        return {"changed": _remove(folder, OLD, PART) or dropped or taken}


def back(
    connection: t.Any,
    instances_path: str,
    ledger_id: str,
    uuid: str,
    define: bool = True,
    group: volumes.Group = volumes.NO_GROUP,
) -> dict[str, t.Any]:
    """The instance has the disks that it had, and its guest is off. Where copies were not taken yet, they are removed, and nothing else is done.

    :arg define: its guest has the definition that it had, too. Without, it has none yet: the ledger has to know first that it is what it was.
    :raises Conflict: the guest is another ledger's.
    """
    with _held(instances_path, ledger_id, uuid) as folder:
        kept = os.path.join(folder, OLD)
        definition = os.path.join(kept, DEFINITION)
        uuid, group = os.path.basename(folder), _group(group, folder)
        there = [n for n in _names(kept) if n != DEFINITION]
        before, added = _before(folder), _added(folder)
        own_system = any(mounted.is_holder(r) for r in (before, *_records(folder)))
        exchanged = volumes.is_exchanged(group, uuid, added)
        taken = bool(there) or exchanged
        if taken:
            progress.mark_changed()
            with guest_lock(uuid):
                domain = _domain(connection, uuid, ledger_id)
                if domain is not None:
                    cut_off(domain)
                    _undefine(domain)
        if own_system and exchanged:
            mounted.unmount(group, folder)
        remove_files(*(os.path.join(folder, n) for n in added if not own_system))
        volumes.bring_back(group, uuid, added)
        if own_system:
            mounted.follow(group, folder, before)
        if there:
            # The records last: until then the others are tried again.
            for name in sorted(there, key=lambda n: n == RECORDS):
                os.rename(os.path.join(kept, name), os.path.join(folder, name))
                remove_files(os.path.join(kept, name))  # it is one file still, with both names, where take() was killed
            fsync(folder)
        dropped = volumes.drop(group, uuid, volumes.NEW)
        removed = _remove(folder, NEW, PART) or dropped or taken
        if os.path.exists(definition):
            if not define:
                return {"changed": removed}
            if _domain(connection, uuid, ledger_id) is None:
                with open(definition, encoding="utf-8") as file, libvirt_errors():
                    connection.defineXMLFlags(file.read(), 0)
        return {"changed": _remove(folder, OLD) or removed}


@contextlib.contextmanager
def _held(instances_path: str, ledger_id: str, uuid: str) -> t.Iterator[str]:
    """The folder of the instance, while nothing else works in it."""
    folder = instance_dir(instances_path, uuid)
    with host_lock(instances_path, "instance-" + os.path.basename(folder)):
        check_owner("folder %s" % folder, ledger_of_folder(folder), ledger_id)
        take_back(os.path.basename(folder))
        try:
            mounted.close(os.path.join(folder, PART))  # of a killed one
            yield folder
        except OSError as error:
            raise as_bootflow_error(error, folder) from None


def _group(given: volumes.Group, folder: str) -> volumes.Group:
    return volumes.recorded(given, folder, *(os.path.join(folder, n) for n in (NEW, PART, OLD)))


def _names(folder: str) -> list[str]:
    try:
        return sorted(n for n in os.listdir(folder) if not n.startswith("."))
    except FileNotFoundError:
        return []


def _take(connection: t.Any, folder: str, ledger_id: str, group: volumes.Group) -> bool:
    made, kept = os.path.join(folder, NEW), os.path.join(folder, OLD)
    if not os.path.isdir(made):
        return False
    progress.mark_changed()
    domain = _domain(connection, os.path.basename(folder), ledger_id)
    if domain is not None:
        with libvirt_errors():
            if domain.isActive():
                raise Conflict(
                    message="the guest of instance %s runs with the disks that are to be exchanged"
                    % os.path.basename(folder),
                    remedy="Shut it down (virsh destroy), then bootflow.compute.heartbeat.",
                )
            xml = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)
        make_dirs(kept, 0o700)
        if not os.path.exists(os.path.join(kept, DEFINITION)):
            write_file(os.path.join(kept, DEFINITION), xml.encode("utf-8"), 0o600)
        _undefine(domain)
    make_dirs(kept, 0o700)
    if RECORDS in _names(made):
        _exchange(group, folder, made, kept)
    for name in sorted(_names(made), key=lambda n: n == RECORDS):
        with contextlib.suppress(FileExistsError, FileNotFoundError):  # of a killed one; a disk that is added
            os.link(os.path.join(folder, name), os.path.join(kept, name))
        fsync(kept)
        os.rename(os.path.join(made, name), os.path.join(folder, name))
    fsync(folder)
    os.rmdir(made)
    return True


def _exchange(group: volumes.Group, folder: str, made: str, kept: str) -> None:
    """Those that it has no more are put away, and logical volumes exchanged."""
    has, gets = _records(folder)
    gone = set(has) - set(gets) - {RESCUE}
    own_system = mounted.is_holder(has) or mounted.is_holder(gets)
    if own_system:
        mounted.unmount(group, folder)
    for name in sorted(gone if not own_system else ()):
        with contextlib.suppress(FileNotFoundError):
            os.rename(os.path.join(folder, checked_disk_name(name)), os.path.join(kept, name))
    if NVRAM not in _names(made) and NVRAM not in _names(kept):
        with contextlib.suppress(FileNotFoundError):
            os.rename(os.path.join(folder, NVRAM), os.path.join(kept, NVRAM))
    volumes.exchange(group, os.path.basename(folder), gone)
    if own_system:
        mounted.follow(group, folder, gets)


def _records(folder: str) -> list[dict[str, t.Any]]:
    """Those of what the instance has, and of what it gets."""
    return [records_of(folder), records_of(os.path.join(folder, NEW))]


def _before(folder: str) -> dict[str, t.Any]:
    """The records of what it had before copies were taken."""
    kept = os.path.join(folder, OLD)
    return records_of(kept if RECORDS in _names(kept) else folder)


def _added(folder: str) -> list[str]:
    """The disks in the folder that the instance did not have before copies were taken."""
    return sorted({checked_disk_name(n) for r in _records(folder) for n in r} - set(_before(folder)) - {RESCUE})


def _remove(folder: str, *names: str) -> bool:
    found = [os.path.join(folder, n) for n in names if os.path.lexists(os.path.join(folder, n))]
    for path in found:
        progress.mark_changed()
        mounted.close(path)
        shutil.rmtree(path)
    return bool(found)


def _domain(connection: t.Any, uuid: str, ledger_id: str) -> t.Any | None:
    """Its domain. :raises Conflict: it is another ledger's."""
    domain = find_domain(connection, uuid)
    if domain is not None:
        with libvirt_errors():
            name, xml = domain.name(), domain.XMLDesc(0)
        check_owner("domain %s" % name, ledger_of_domain(parse(xml)), ledger_id)
    return domain


def _undefine(domain: t.Any) -> None:
    """Its firmware's variables and its TPM stay: the next definition has them again."""
    flags = 0
    for name in ("MANAGED_SAVE", "SNAPSHOTS_METADATA", "CHECKPOINTS_METADATA", "KEEP_NVRAM", "KEEP_TPM"):
        flags |= getattr(libvirt, "VIR_DOMAIN_UNDEFINE_" + name, 0)
    tolerating(lambda: domain.undefineFlags(flags), "VIR_ERR_NO_DOMAIN")
