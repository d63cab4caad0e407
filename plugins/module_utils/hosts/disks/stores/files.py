# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are files in the folder of the instance: created once, either complete or missing, and never probed again."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import typing as t

from ....core.amounts import GIB
from ....core.disks.local import QCOW2, RAW
from ....core.errors import InvalidDiskInfo, InvalidInput
from ...images.images import QEMU_IMG_PACKAGE, BaseImage, convert
from ...os.batch import progress
from ...os.command import program, run
from ...os.files import fsync, opened, remove_files
from ...os.module_errors import as_bootflow_error
from ...os.paths import checked_disk_name, make_dirs
from ...os.room import check_room
from .disk_info import record_of, recorded_size, records_of, write_records
from .disk_spec import DiskSpec, disk_size, needed
from .store import OpenDisk, Store

_PART = ".part"
#: The folder, next to the disks, of a disk that is to replace one of them.
REPLACEMENT = "revert.new"


class Files(Store):
    """Files in the folder of the instance."""

    def ensure(
        self, folder: str, specs: t.Sequence[DiskSpec], bases: t.Mapping[str, BaseImage], check_mode: bool
    ) -> dict[str, t.Any]:
        return ensure_files(folder, specs, bases, check_mode)

    def facts(self, instances_path: str, growth: t.Callable[[], int]) -> dict[str, t.Any]:
        status = os.statvfs(_existing(instances_path))
        return {
            "local_gb": status.f_frsize * status.f_blocks // GIB,
            "local_gb_used": status.f_frsize * (status.f_blocks - status.f_bfree) // GIB,
            "disk_available_least": (status.f_frsize * status.f_bavail - growth()) // GIB,
        }

    def make_readable(self, folder: str, name: str, record: t.Mapping[str, t.Any]) -> None:
        check_file(os.path.join(folder, checked_disk_name(name)), record)

    def opened(
        self, folder: str, name: str, record: t.Mapping[str, t.Any], left_behind: t.Collection[str]
    ) -> t.Iterator[OpenDisk]:
        fd = open_file(folder, os.path.join(folder, checked_disk_name(name)), record)
        yield OpenDisk(name, fd, {**record, "base": ""})

    def make_replacement(self, folder: str, spec: DiskSpec, bases: t.Mapping[str, BaseImage]) -> None:
        make_file_replacement(folder, spec, bases)

    def take_replacement(self, folder: str, name: str) -> None:
        take_file_replacement(folder, name)

    def drop_replacement(self, folder: str, name: str) -> bool:
        return remove_replacement(folder)


def check_file(path: str, record: t.Mapping[str, t.Any]) -> None:
    """Check a disk that is a file. :raises InvalidDiskInfo: it is missing, or its record has no known format."""
    if record.get("format") not in (QCOW2, RAW) or not os.path.isfile(path) or os.path.islink(path):
        raise InvalidDiskInfo(reason="%s is not a disk that can be copied" % path)


def open_file(folder: str, path: str, record: t.Mapping[str, t.Any]) -> int:
    """Open a disk that is a file. Returns the descriptor, see Store.opened(). :arg folder: with room for a copy of a layer"""
    check_file(path, record)
    run([program("qemu-img", QEMU_IMG_PACKAGE), "info", "-f", record["format"], path], timeout=60.0)  # locks it
    # Next to a full disk the file system has no room for another one.
    if record.get("base") and record["format"] == QCOW2:
        return _flat(folder, path)
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)


def _flat(folder: str, path: str) -> int:
    """A descriptor of a disk without its base image. The file has no name, so that nothing remains of it when this process is killed."""
    progress.mark_changed()
    with tempfile.TemporaryFile(dir=folder) as file:
        convert(path, QCOW2, "/proc/%d/fd/%d" % (os.getpid(), file.fileno()), QCOW2, name=path)
        return os.dup(file.fileno())


def _existing(path: str) -> str:
    """``path``, or its nearest existing parent: the disk on which it will be."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def ensure_files(
    folder: str, specs: t.Sequence[DiskSpec], bases: t.Mapping[str, BaseImage], check_mode: bool
) -> dict[str, t.Any]:
    """Create the missing disks in the directory; {changed, disks: [{name, path, format, virtual_size}]}.

    :arg bases: image id -> image in the cache.
    :raises InvalidDiskInfo: a file exists that is not recorded, or is recorded as another kind of disk.
    :raises FlavorDiskSmallerThanImage, DiskFull, CommandFailed, InvalidInput: as named.
    """
    disks = []
    records = records_of(folder)
    # An instance without local disks (its root is a volume) still has a config drive and a console log in the directory.
    changed = not specs and not os.path.isdir(folder)
    if changed and not check_mode:
        progress.mark_changed()
        make_dirs(folder)
    for spec in specs:
        path = os.path.join(folder, spec.name)
        record = records.get(spec.name)
        if os.path.lexists(path):
            if not os.path.isfile(path) or os.path.islink(path):
                raise InvalidDiskInfo(reason="%s exists and is not a regular file" % path)
            size = recorded_size(path, spec, record)
        else:
            size = disk_size(spec, bases.get(spec.image_id))
            changed = True
            if not check_mode:
                progress.mark_changed()
                _make_disk(folder, path, spec, size, bases.get(spec.image_id), records)
        disks.append({"name": spec.name, "path": path, "format": spec.backend, "virtual_size": size})
    return {"changed": changed, "disks": disks}


def grow(path: str, record: t.Mapping[str, t.Any], size: int) -> int:
    """The virtual size of a disk, by its record, which grows to ``size`` bytes where it is smaller."""
    has = int(record["virtual_size"])
    if size <= has:
        return has
    if record["format"] not in (QCOW2, RAW):
        raise InvalidInput(reason="disk %s has the format %s" % (path, record["format"]))
    argv = [program("qemu-img", QEMU_IMG_PACKAGE), "resize", "-q", "-f", record["format"], path, str(size)]
    run(argv, timeout=60.0, path=path)
    return size


def _make_disk(
    folder: str, path: str, spec: DiskSpec, size: int, base: BaseImage | None, records: dict[str, t.Any]
) -> None:
    make_dirs(folder)
    temporary = path + _PART
    raw = path + ".raw" + _PART
    remove_files(temporary, raw)
    try:
        if spec.kind == "image":
            _from_image(needed(base, spec), temporary, spec.backend, size)
        else:
            _formatted(temporary, raw, spec, size)
        os.chmod(temporary, 0o600)
        fsync(temporary)
        records[spec.name] = record_of(spec, size, base)
        write_records(folder, records)
        os.rename(temporary, path)
        fsync(folder)
    except OSError as error:
        raise as_bootflow_error(error, path) from None
    finally:
        remove_files(temporary, raw)


class _Overlay:
    """An empty layer over an image: its bytes are the same for each disk of one size, so that qemu-img makes the first of them only."""

    def __init__(self) -> None:
        self._first = threading.Lock()
        self._size = 0
        self._blocks: dict[int, bytes] = {}  # bytes that are not zeros, by their place

    def make(self, base: BaseImage, target: str, size: int) -> None:
        """Make the file ``target``. :arg size: of the disk, in bytes"""
        with self._first:
            if not self._size:
                argv = [program("qemu-img", QEMU_IMG_PACKAGE), "create", "-q", "-f", "qcow2", "-F", "raw", "-b"]
                run([*argv, base.path, target, str(size)], timeout=60.0, path=target)
                self._read(target)
                return
        with opened(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
            os.ftruncate(fd, self._size)
            for place, block in self._blocks.items():
                _write_at(fd, block, place)

    def _read(self, path: str) -> None:
        with opened(path, os.O_RDONLY) as fd:
            size = os.fstat(fd).st_size
            for place in range(0, size, _BLOCK):
                block = os.pread(fd, _BLOCK, place)
                if block.strip(b"\0"):
                    self._blocks[place] = block
        self._size = size


def _write_at(fd: int, data: bytes, place: int) -> None:
    while data:
        done = os.pwrite(fd, data, place)
        data, place = data[done:], place + done


_BLOCK = 4096
# Of this process, by the path of the base image, which never has another content, and the disk's size.
_overlays: dict[tuple[str, int], _Overlay] = {}


def _from_image(base: BaseImage, target: str, backend: str, size: int) -> None:
    """qcow2: an overlay with the format of its base (which is never probed); raw: a sparse copy."""
    if backend == QCOW2:
        _overlays.setdefault((base.path, size), _Overlay()).make(base, target, size)
        return
    convert(base.path, "raw", target)
    os.truncate(target, size)


def _formatted(target: str, raw: str, spec: DiskSpec, size: int) -> None:
    with opened(raw, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
        os.ftruncate(fd, size)
    format_disk(spec, raw)
    if spec.backend == RAW:
        os.rename(raw, target)
        return
    convert(raw, "raw", target, "qcow2")


def format_disk(spec: DiskSpec, path: str) -> None:
    """Create swap, or the file system of an ephemeral disk, on a raw file or block device."""
    if spec.kind == "swap":
        label = ["-L", spec.label] if spec.label else []
        run([program("mkswap", "util-linux")] + label + [path], timeout=600.0, path=path, outlives=False)
    elif spec.fs != "none":
        run(_mkfs(spec, path), timeout=600.0, path=path, outlives=False)


def _mkfs(spec: DiskSpec, path: str) -> list[str]:
    label = spec.label or default_label(spec.name)
    if spec.fs == "vfat":
        return [program("mkfs.vfat", "dosfstools"), "-n", label[:11], path]
    if spec.fs == "xfs":
        return [program("mkfs.xfs", "xfsprogs"), "-q", "-f", "-L", label[:12], path]
    return [program("mkfs." + spec.fs, "e2fsprogs"), "-q", "-F", "-L", label[:16], path]


def default_label(name: str) -> str:
    """ "ephemeral0" for "disk.eph0", as in Nova; otherwise the last part of the name."""
    match = re.match(r"disk\.eph(\d+)\Z", name)
    return "ephemeral" + match.group(1) if match else name.rpartition(".")[2]


# --- a disk that is to replace another --------------------------------------------------------------------------------------


def make_file_replacement(folder: str, spec: DiskSpec, bases: t.Mapping[str, BaseImage]) -> None:
    """See Store.make_replacement(). :arg folder: with the disk"""
    base = needed(bases.get(spec.image_id), spec)
    disk_size(spec, base)
    remove_replacement(folder)
    if spec.backend == RAW:
        check_room(folder, os.stat(base.path).st_blocks * 512)
    ensure_files(os.path.join(folder, REPLACEMENT), [spec], bases, False)


def take_file_replacement(folder: str, name: str) -> None:
    """See Store.take_replacement(): one rename. :arg folder: with the disk"""
    new_path = os.path.join(folder, REPLACEMENT, name)
    path = os.path.join(folder, checked_disk_name(name))
    record = record_of_replacement(folder, name)
    progress.mark_changed()
    try:
        # A guest's disk is read by its format, which both have: until the rename the record may be that of the other.
        write_records(folder, {**records_of(folder), name: record})
        os.rename(new_path, path)
        fsync(folder)
    except OSError as error:
        raise as_bootflow_error(error, path) from None


def record_of_replacement(folder: str, name: str) -> dict[str, t.Any]:
    """Return the record of the disk that is to replace the one of this name. :raises InvalidDiskInfo: there is none"""
    record = records_of(os.path.join(folder, REPLACEMENT)).get(name)
    if not isinstance(record, dict):
        raise InvalidDiskInfo(
            reason="nothing was made to take the place of disk %s" % os.path.join(folder, name),
            remedy="Run the playbook again.",
        )
    return record


def remove_replacement(folder: str) -> bool:
    """Remove the folder of a replacement. Returns whether it existed. :arg folder: with the disk"""
    new_folder = os.path.join(folder, REPLACEMENT)
    if not os.path.lexists(new_folder):
        return False
    progress.mark_changed()
    shutil.rmtree(new_folder)
    return True
