# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of an instance that are files: created once, either complete or missing, and never probed again.

``disk.info`` beside them records how each disk was created. It is written before the disk gets its name, and it determines the format
of a disk, because a guest can write anything into the disk itself. source: CVE-2015-7548, CVE-2016-2140.
"""

from __future__ import annotations

import os
import re
import threading
import typing as t
from dataclasses import dataclass

from ...core.disks.image_checks import check_fits_disk
from ...core.disks.local import FILE_SYSTEMS, QCOW2, RAW, local_disks
from ...core.disks.stores.registry import DEFAULT, NAMES
from ...core.errors import FlavorDiskSmallerThanImage, InvalidDiskInfo, InvalidInput
from ...core.guest.domain.element import parse, to_text
from ..images.backing import name_chains
from ..images.images import QEMU_IMG_PACKAGE, BaseImage, convert
from ..os.batch import progress
from ..os.command import program, run
from ..os.files import fsync, opened, read_json, remove_files, write_json
from ..os.module_errors import as_bootflow_error
from ..os.paths import base_dir, checked_disk_name, instance_dir, make_dirs

KINDS = ("image", "ephemeral", "swap")
_LABEL = re.compile(r"[A-Za-z0-9_.-]{1,16}\Z")
_PART = ".part"
RECORDS = "disk.info"


@dataclass(frozen=True)
class DiskSpec:
    """A requested disk. ``size`` is in bytes; 0 for an image: the size of the image."""

    name: str
    kind: str  # image, ephemeral, swap
    size: int
    backend: str = DEFAULT
    image_id: str = ""
    fs: str = "ext4"  # of an ephemeral disk
    label: str = ""
    max_size: int = 0  # bytes of the image, where the disk has its size; 0: no limit

    def checked(self) -> DiskSpec:
        """Returns itself. Raises InvalidInput if a field has an invalid value, or a size is missing."""
        checked_disk_name(self.name)
        for value, words, what in (
            (self.kind, KINDS, "kind"),
            (self.backend, NAMES, "backend"),
            (self.fs, FILE_SYSTEMS, "fs"),
        ):
            if value not in words:
                raise InvalidInput(
                    reason="%s of disk %s must be one of %s, got %r" % (what, self.name, ", ".join(words), value)
                )
        if self.size < 0 or (self.size == 0 and self.kind != "image"):
            raise InvalidInput(reason="disk %s has no size" % self.name)
        if self.kind == "image" and not self.image_id:
            raise InvalidInput(reason="disk %s has no image_id" % self.name)
        if self.label and not _LABEL.match(self.label):
            raise InvalidInput(reason="label of disk %s is not valid: %r" % (self.name, self.label))
        return self


def disk_size(spec: DiskSpec, base: BaseImage | None) -> int:
    """Size of the disk in bytes.

    :raises FlavorDiskSmallerThanImage: the image is larger than the disk, or than it may be.
    """
    if spec.kind != "image" or base is None:
        return spec.size
    return check_fits(spec, base.virtual_size)


def check_fits(spec: DiskSpec, virtual_size: int) -> int:
    """Size of a disk made from an image of ``virtual_size`` bytes.

    :raises FlavorDiskSmallerThanImage: see disk_size().
    """
    if spec.max_size and not spec.size and virtual_size > spec.max_size:
        raise FlavorDiskSmallerThanImage(
            flavor_size=spec.max_size,
            image_size=virtual_size,
            remedy="Set the image's min_disk in bootflow_images to its virtual size in GiB, rounded up.",
        )
    return check_fits_disk(virtual_size, spec.size)


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


def records_of(folder: str) -> dict[str, t.Any]:
    """The content of disk.info, by names of disks."""
    data = read_json(os.path.join(folder, RECORDS))
    return data if isinstance(data, dict) else {}


def write_records(folder: str, records: t.Mapping[str, t.Any]) -> None:
    write_json(os.path.join(folder, RECORDS), records, 0o600)


def as_recorded(instances_path: str, uuid: str, xml: str) -> str:
    """``xml`` with the formats that disk.info has of the files in the instance's folder, and with their backing chains.

    A disk that is opened in another format is lost; and as qcow2 a guest could give its host's files to itself, by what it writes to a raw one (CVE-2016-2140).

    :raises InvalidInput: the UUID. source: Nova's Image.resolve_driver_format
    """
    records = records_of(instance_dir(instances_path, uuid))
    root, changed = parse(xml), False
    for name, disk in local_disks(root, uuid):
        driver, form = disk.find("driver"), (records.get(name) or {}).get("format")
        if disk.get("type") == "file" and driver is not None and form in (QCOW2, RAW) and driver.get("type") != form:
            driver.set("type", form)
            changed = True
    changed = name_chains(root, uuid, base_dir(instances_path)) or changed
    return to_text(root) if changed else xml


def grow(path: str, record: t.Mapping[str, t.Any], size: int) -> int:
    """The virtual size of a disk, by its record, which grows to ``size`` bytes where it is smaller."""
    has = int(record["virtual_size"])
    if size <= has:
        return has
    if record["format"] not in ("qcow2", "raw"):
        raise InvalidInput(reason="disk %s has the format %s" % (path, record["format"]))
    argv = [program("qemu-img", QEMU_IMG_PACKAGE), "resize", "-q", "-f", record["format"], path, str(size)]
    run(argv, timeout=60.0, path=path)
    return size


def record_of(spec: DiskSpec, size: int, base: BaseImage | None) -> dict[str, t.Any]:
    """The record of a disk in disk.info."""
    return {
        "kind": spec.kind,
        "format": spec.backend,
        "virtual_size": size,
        "image_id": spec.image_id,
        "base": os.path.basename(base.path) if base is not None and spec.kind == "image" else "",
    }


def recorded_size(path: str, spec: DiskSpec, record: t.Any) -> int:
    """Size of an existing disk in bytes, according to disk.info.

    :raises InvalidDiskInfo: the disk is not recorded, or is recorded as another kind of disk.
    """
    if not isinstance(record, dict) or not isinstance(record.get("virtual_size"), int):
        raise InvalidDiskInfo(
            reason="disk %s exists but is not recorded in disk.info" % path,
            remedy="Delete the instance on this host, or move the disk away.",
        )
    wanted = {"format": spec.backend, "kind": spec.kind, "image_id": spec.image_id}
    for key, value in wanted.items():
        if record.get(key) != value:
            raise InvalidDiskInfo(
                reason="disk %s was created with %s %s, not %s" % (path, key, record.get(key), value),
                remedy="Delete the instance on this host first.",
            )
    return int(record["virtual_size"])


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


def needed(base: BaseImage | None, spec: DiskSpec) -> BaseImage:
    """The image of the disk. Raises InvalidInput if it is not in the cache."""
    if base is None:
        raise InvalidInput(reason="image %s of disk %s is not in the cache" % (spec.image_id, spec.name))
    return base


class _Overlay:
    """An empty layer over an image: its bytes are the same for each disk of one size, so that qemu-img makes the first of them only."""

    def __init__(self) -> None:
        self._first = threading.Lock()
        self._size = 0
        self._blocks: dict[int, bytes] = {}  # those that are not zeros, by their place

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
    if backend == "qcow2":
        _overlays.setdefault((base.path, size), _Overlay()).make(base, target, size)
        return
    convert(base.path, "raw", target)
    os.truncate(target, size)


def _formatted(target: str, raw: str, spec: DiskSpec, size: int) -> None:
    with opened(raw, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
        os.ftruncate(fd, size)
    format_disk(spec, raw)
    if spec.backend == "raw":
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
    found = re.match(r"disk\.eph(\d+)\Z", name)
    return "ephemeral" + found.group(1) if found else name.rpartition(".")[2]
