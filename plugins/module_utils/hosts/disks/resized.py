# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of an instance that is resized on its own host: the new ones, and the former ones until the resize is decided.

Both are in folders of the instance; of disks that are not in these the folders have the records only (resizes/).
Each step can be killed anywhere and done again, and what a killed one left becomes either of the two:
prepare() makes copies and touches nothing else, swap_in() exchanges them for the disks, commit() keeps what the instance has, roll_back() brings back
what it had.
The domain is undefined before a disk gets or loses its name, so that a host which reports the guest has all of what the guest is in the ledger.
source: Nova's libvirt driver (migrate_disk_and_power_off, finish_revert_migration: the folder UUID_resize)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import typing as t

from ...core.disks.rescue import DISK as RESCUE
from ...core.disks.stores.registry import STORE_TYPES
from ...core.errors import BootflowError, Conflict, InvalidDiskInfo
from ...core.guest.domain.element import parse
from ...core.guest.nvram import NVRAM
from ..images.nvram import open_nvram
from ..libvirt.connection import libvirt, libvirt_errors, tolerating
from ..libvirt.domains import cut_off, ledger_of_domain
from ..libvirt.running import find_domain
from ..os import mounts
from ..os.batch import progress
from ..os.files import fsync, remove_files, write_file
from ..os.locks import guest_lock, host_lock, take_back
from ..os.module_errors import as_bootflow_error
from ..os.ownership import check_owner, ledger_of_folder
from ..os.paths import checked_disk_name, instance_dir, make_dirs
from .resizes.files import copy_file
from .resizes.registry import resize_of
from .resizes.resize import Resize
from .stores.disk_info import RECORDS, records_of, write_records
from .stores.disk_spec import DiskSpec
from .stores.group import NO_GROUP, Group, recorded

#: Folders in that of the instance: what it gets, that while it is copied, and what it had.
NEW, PART, OLD = "resize.new", "resize.part", "resize.old"
DEFINITION = "domain.xml"


def prepare(
    instances_path: str,
    ledger_id: str,
    uuid: str,
    sizes: t.Mapping[str, int],
    not_copied: t.Collection[str] = (),
    made: t.Sequence[DiskSpec] = (),
    group: Group = NO_GROUP,
) -> dict[str, t.Any]:
    """Copy the disks of an instance whose guest is off, and let the copies grow to ``sizes`` (bytes, by name). Gives {changed, disks}.

    :arg not_copied: disks that are not copied. :arg made: disks that are made. :arg group: for disks that need one
    :raises Conflict: the folder belongs to another ledger. :raises DiskFull: there is no room for the copies.
    :raises InvalidDiskInfo: a disk is missing, or not of a known format. :raises CommandFailed, VolumeIsBusy: a guest uses it.
    """
    with _held(instances_path, ledger_id, uuid) as folder:
        uuid, part = os.path.basename(folder), os.path.join(folder, PART)
        made = [spec.checked() for spec in made]
        _remove(folder, NEW)  # of an earlier one: no failure below leaves copies that a later run could swap in
        of_disks = recorded(group, folder)
        if of_disks.vg or not any(STORE_TYPES[spec.backend].needs_group for spec in made):
            group = of_disks
        resize = resize_of(group, [records_of(folder)], made)
        progress.mark_changed()
        try:
            _remove(folder, PART)
            records = _copied(resize, folder, sizes, not_copied, made)
            os.rename(part, os.path.join(folder, NEW))
            fsync(folder)
        except BaseException:
            # The failure is the error that is reported. What stays is removed by the next resize, or with the instance.
            with contextlib.suppress(BootflowError, OSError):
                _remove(folder, PART)
            with contextlib.suppress(BootflowError, OSError):
                resize.discard_copies(uuid)
            raise
        disks = [{"name": n, "size": int(r["virtual_size"])} for n, r in sorted(records.items())]
        return {"changed": True, "disks": disks}


def _copied(
    resize: Resize, folder: str, sizes: t.Mapping[str, int], not_copied: t.Collection[str], made: t.Sequence[DiskSpec]
) -> dict[str, t.Any]:
    """Make the new disks, in the folder PART and in the volume group. Returns their records."""
    part = os.path.join(folder, PART)
    place = resize.place(folder)
    current_records = records_of(place)
    missing = sorted(set(sizes) - set(current_records))
    if missing:
        raise InvalidDiskInfo(reason="folder %s has no disk %s" % (place, ", ".join(missing)))
    records = {n: r for n, r in current_records.items() if n != RESCUE and n not in not_copied}
    needed = resize.check(folder, records, made)
    resize.commit(os.path.basename(folder))  # of an earlier one
    _remove(folder, OLD)
    if not records_of(folder):
        write_records(folder, {})  # the exchange counts with it
    make_dirs(part, 0o700)
    _copy_nvram(folder, part, not_copied)
    return resize.copy(folder, part, records, sizes, made, needed)


def _copy_nvram(folder: str, part: str, not_copied: t.Collection[str]) -> None:
    nvram = None if NVRAM in not_copied else open_nvram(folder)
    if nvram is not None:
        os.close(nvram)
        copy_file(os.path.join(folder, NVRAM), os.path.join(part, NVRAM))
        fsync(os.path.join(part, NVRAM))


def swap_in(
    connection: t.Any, instances_path: str, ledger_id: str, uuid: str, group: Group = NO_GROUP
) -> dict[str, t.Any]:
    """The copies are the instance's disks now, the others are kept, with the guest's definition. Its guest is off, and has no domain afterwards.

    Without copies, nothing is done.

    :raises Conflict: the guest runs, or is another ledger's.
    """
    with _held(instances_path, ledger_id, uuid) as folder:
        return {"changed": _swap_in(connection, folder, ledger_id, _resize(group, folder))}


def commit(
    connection: t.Any, instances_path: str, ledger_id: str, uuid: str, group: Group = NO_GROUP
) -> dict[str, t.Any]:
    """As swap_in(), and what the instance had is removed.

    :raises Conflict: see swap_in(). :raises VolumeIsBusy: a logical volume that it had is open.
    """
    with _held(instances_path, ledger_id, uuid) as folder:
        resize = _resize(group, folder)
        swapped_in = _swap_in(connection, folder, ledger_id, resize)
        dropped = resize.commit(os.path.basename(folder))
        return {"changed": _remove(folder, OLD, PART) or dropped or swapped_in}


def roll_back(
    connection: t.Any,
    instances_path: str,
    ledger_id: str,
    uuid: str,
    define: bool = True,
    group: Group = NO_GROUP,
) -> dict[str, t.Any]:
    """The instance has the disks that it had, and its guest is off. Where copies were not taken yet, they are removed, and nothing else is done.

    :arg define: its guest has the definition that it had, too. Without, it has none yet: the ledger has to know first that it is what it was.
    :raises Conflict: the guest is another ledger's.
    """
    with _held(instances_path, ledger_id, uuid) as folder:
        old_folder = os.path.join(folder, OLD)
        definition = os.path.join(old_folder, DEFINITION)
        uuid, resize = os.path.basename(folder), _resize(group, folder)
        old_files = [n for n in _names(old_folder) if n != DEFINITION]
        before, added = _before(folder), _added(folder)
        exchanged = resize.is_swapped_in(uuid, added)
        swapped_in = bool(old_files) or exchanged
        if swapped_in:
            progress.mark_changed()
            with guest_lock(uuid):
                domain = _domain(connection, uuid, ledger_id)
                if domain is not None:
                    cut_off(domain)
                    _undefine(domain)
        if exchanged:
            resize.close(folder)
        remove_files(*(os.path.join(folder, n) for n in resize.files_of(added)))
        resize.roll_back(folder, added, before)
        if old_files:
            # The records last: until then the others are tried again.
            for name in sorted(old_files, key=lambda n: n == RECORDS):
                os.rename(os.path.join(old_folder, name), os.path.join(folder, name))
                remove_files(
                    os.path.join(old_folder, name)
                )  # it is one file still, with both names, where swap_in() was killed
            fsync(folder)
        dropped = resize.discard_copies(uuid)
        removed = _remove(folder, NEW, PART) or dropped or swapped_in
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
            _unmount_below(os.path.join(folder, PART))  # of a killed one
            yield folder
        except OSError as error:
            raise as_bootflow_error(error, folder) from None


def _resize(group: Group, folder: str) -> Resize:
    folders = [folder, *(os.path.join(folder, n) for n in (NEW, PART, OLD))]
    return resize_of(recorded(group, *folders), [_before(folder), *_records(folder)])


def _unmount_below(folder: str) -> None:
    """Unmount what is mounted in this folder. :raises VolumeIsBusy: a file there is open."""
    for mount in mounts.below(folder):
        mounts.unmount(mount.place)


def _names(folder: str) -> list[str]:
    try:
        return sorted(n for n in os.listdir(folder) if not n.startswith("."))
    except FileNotFoundError:
        return []


def _swap_in(connection: t.Any, folder: str, ledger_id: str, resize: Resize) -> bool:
    made, old_folder = os.path.join(folder, NEW), os.path.join(folder, OLD)
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
        make_dirs(old_folder, 0o700)
        if not os.path.exists(os.path.join(old_folder, DEFINITION)):
            write_file(os.path.join(old_folder, DEFINITION), xml.encode("utf-8"), 0o600)
        _undefine(domain)
    make_dirs(old_folder, 0o700)
    if RECORDS in _names(made):
        _exchange(resize, folder, made, old_folder)
    for name in sorted(_names(made), key=lambda n: n == RECORDS):
        with contextlib.suppress(FileExistsError, FileNotFoundError):  # of a killed one; a disk that is added
            os.link(os.path.join(folder, name), os.path.join(old_folder, name))
        fsync(old_folder)
        os.rename(os.path.join(made, name), os.path.join(folder, name))
    fsync(folder)
    os.rmdir(made)
    return True


def _exchange(resize: Resize, folder: str, made: str, old_folder: str) -> None:
    """Put away the disks that the instance loses, and exchange what is not in the folder."""
    has, gets = _records(folder)
    dropped_names = set(has) - set(gets) - {RESCUE}
    resize.close(folder)
    for name in sorted(resize.files_of(dropped_names)):
        with contextlib.suppress(FileNotFoundError):
            os.rename(os.path.join(folder, checked_disk_name(name)), os.path.join(old_folder, name))
    if NVRAM not in _names(made) and NVRAM not in _names(old_folder):
        with contextlib.suppress(FileNotFoundError):
            os.rename(os.path.join(folder, NVRAM), os.path.join(old_folder, NVRAM))
    resize.swap_in(folder, dropped_names, gets)


def _records(folder: str) -> list[dict[str, t.Any]]:
    """Return the records of the disks that the instance has, and of those for it in NEW."""
    return [records_of(folder), records_of(os.path.join(folder, NEW))]


def _before(folder: str) -> dict[str, t.Any]:
    """The records of what it had before copies were taken."""
    old_folder = os.path.join(folder, OLD)
    return records_of(old_folder if RECORDS in _names(old_folder) else folder)


def _added(folder: str) -> list[str]:
    """The disks in the folder that the instance did not have before copies were taken."""
    return sorted({checked_disk_name(n) for r in _records(folder) for n in r} - set(_before(folder)) - {RESCUE})


def _remove(folder: str, *names: str) -> bool:
    paths = [os.path.join(folder, n) for n in names if os.path.lexists(os.path.join(folder, n))]
    for path in paths:
        progress.mark_changed()
        _unmount_below(path)
        shutil.rmtree(path)
    return bool(paths)


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
