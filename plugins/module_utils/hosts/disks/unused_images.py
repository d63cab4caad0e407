# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Base images that no disk on this host uses. source: Nova's ImageCacheManager

Whatever ledger an instance is in, its disks are on the host: an image is used while its name is in the backing chain of a file below
<instances_path>, or of a disk of any domain. The age of an image counts since a disk was last made from it, or removed, or a purge saw it used.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import time
import typing as t
from dataclasses import dataclass
from functools import partial

from ...core.disks.local import DISK, image_marker, image_of_base, is_confinable
from ...core.disks.stores.registry import is_file_system, places
from ...core.errors import InvalidDiskInfo, RemoteError, WaitTimeout
from ...core.guest.domain.element import parse
from ..images.backing import read_backing
from ..images.images import mark_used
from ..libvirt.connection import tolerating
from ..libvirt.domains import definitions
from ..os.batch import attempt, progress
from ..os.files import read_json, remove_files
from ..os.locks import host_lock
from ..os.paths import base_dir, checked_instances_path, own_folder
from .stores.disk_info import records_of

_HALF = re.compile(r"(?P<id>[A-Za-z0-9][A-Za-z0-9_-]{0,127})\.(raw-)?part\Z")  # what a killed run fetched or converted
_IN_NAME = r"[A-Za-z0-9._-]"
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


@dataclass(frozen=True)
class _Base:
    name: str
    image_id: str
    size: int  # bytes that it occupies
    age: float  # seconds


def purge_images(
    connection: t.Any, instances_path: str, min_age: float, known: t.Collection[str], check_mode: bool = False
) -> t.Iterator[dict[str, t.Any]]:
    """Remove the base images that no disk uses and that are old enough; {path, size, age, changed, error} of each.

    :arg min_age: seconds. :arg known: ids of images of which the newest file is kept.
    :raises InvalidDiskInfo: disks of an instance are not mounted, so their base images are unknown.
    """
    folder = base_dir(instances_path)
    if not os.path.isdir(folder):
        return
    with contextlib.ExitStack() as held:
        fd = held.enter_context(own_folder(folder))
        bases = _bases(folder, fd)
        meant = [
            b for b in bases if b.age >= min_age and not (b.image_id in known and _newest(folder, b.image_id) == b.name)
        ]
        refused: dict[str, RemoteError] = {}
        if not check_mode:
            meant = _locked(meant, instances_path, fd, held, refused)
        used = _used(connection, instances_path, {b.name for b in bases}) if meant else set()
        unused = [b for b in meant if b.name not in used]
        if not check_mode:
            for name in used:
                with contextlib.suppress(OSError):
                    mark_used(os.path.join(folder, name))
        for base in unused:
            outcome = (
                {"changed": True, "error": None} if check_mode else attempt(partial(_remove, folder, refused), base)
            )
            yield {"path": os.path.join(folder, base.name), "size": base.size, "age": round(base.age), **outcome}


def mark_bases_used(folder: str) -> None:
    """Before the disks in the directory of an instance are removed: the age of their base images counts from now."""
    for place in places(folder):
        for record in records_of(place).values():
            name = record.get("base") if isinstance(record, dict) else None
            if isinstance(name, str) and image_of_base(name) and os.path.basename(name) == name:
                with contextlib.suppress(OSError):
                    mark_used(os.path.join(base_dir(os.path.dirname(folder)), name))


def _bases(folder: str, fd: int) -> list[_Base]:
    bases = []
    for name in sorted(os.listdir(folder)):
        half = _HALF.match(name)
        image_id = half["id"] if half else image_of_base(name)
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            continue  # a run has fetched and converted it
        if image_id and stat.S_ISREG(status.st_mode):
            age = max(time.time() - max(status.st_mtime, status.st_ctime), 0.0)
            bases.append(_Base(name, image_id, status.st_blocks * 512, age))
    return bases


def _newest(folder: str, image_id: str) -> str:
    """The file that disks of the image are made from; "" without one. See images.py."""
    name = _marked(folder, image_id)
    return name if is_confinable(name) else ""


def _marked(folder: str, image_id: str) -> str:
    """The file that the marker of the image names."""
    marker = read_json(_marker(folder, image_id))
    return str(marker.get("file", "")) if isinstance(marker, dict) else ""


def _marker(folder: str, image_id: str) -> str:
    return os.path.join(folder, image_marker(image_id))


def _locked(
    bases: t.Sequence[_Base], instances_path: str, fd: int, held: contextlib.ExitStack, refused: dict[str, RemoteError]
) -> list[_Base]:
    """Lock the images that no run fetches or makes disks from, until ``held`` ends.

    :arg refused: gets the images that the host does not let us open, and why.
    """
    free: dict[str, bool] = {}
    locked = []
    for base in bases:
        if base.image_id not in free:
            try:
                held.enter_context(host_lock(instances_path, "image-" + base.image_id, timeout=0))
                free[base.image_id] = True
            except WaitTimeout:
                free[base.image_id] = False
        if free[base.image_id]:
            with contextlib.suppress(BlockingIOError, FileNotFoundError), contextlib.ExitStack() as lock:
                try:
                    file = os.open(base.name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                except PermissionError as error:
                    path = os.path.join(base_dir(instances_path), base.name)
                    refused[base.name] = RemoteError(
                        reason="%s (%s)" % (error.strerror, path),
                        remedy="Remove the attribute that protects the file (lsattr %s shows it, chattr -i removes it)."
                        % path,
                    )
                else:
                    lock.callback(os.close, file)
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    held.push(lock.pop_all())
                locked.append(base)
    return locked


def _remove(folder: str, refused: t.Mapping[str, RemoteError], base: _Base) -> dict[str, t.Any]:
    if base.name in refused:
        raise refused[base.name]
    if _marked(folder, base.image_id) == base.name:
        remove_files(_marker(folder, base.image_id))
        progress.mark_changed()
    remove_files(os.path.join(folder, base.name))
    return {"changed": True}


# --- what is used -------------------------------------------------------------------------------------------------------


def _used(connection: t.Any, instances_path: str, names: t.Collection[str]) -> set[str]:
    """Return which of ``names`` a domain or a disk mentions."""
    texts, paths = _of_domains(connection)
    paths += _of_folders(instances_path)
    seen: set[str] = set()
    while paths:
        path = paths.pop()
        if path not in seen:
            seen.add(path)
            backing = _backing_file(path)
            texts.append(backing)
            paths += [os.path.join(os.path.dirname(path), file) for file in _files_in(backing)]
    whole = {n: re.compile("(?<!%s)%s(?!%s)" % (_IN_NAME, re.escape(n), _IN_NAME)) for n in names}
    return {name for name in names if any(name in text and whole[name].search(text) for text in texts)}


def _of_domains(connection: t.Any) -> tuple[list[str], list[str]]:
    """The definitions of all domains, and the paths of their disks."""
    texts, paths = definitions(connection), []
    for text in texts:
        for source in parse(text).iterfind(".//disk//source"):
            paths += [source.get(name) for name in ("file", "dev") if source.get(name)]
            paths += _of_pool(connection, source.get("pool"), source.get("volume"))
    return texts, paths


def _of_pool(connection: t.Any, pool: str | None, volume: str | None) -> list[str]:
    if not pool or not volume:
        return []
    harmless = ("VIR_ERR_NO_STORAGE_POOL", "VIR_ERR_NO_STORAGE_VOL", "VIR_ERR_OPERATION_INVALID")
    path = tolerating(
        lambda: connection.storagePoolLookupByName(pool).storageVolLookupByName(volume).path(),
        *harmless,
    )
    return [path] if path else []


def _of_folders(instances_path: str) -> list[str]:
    """All files of instances. :raises InvalidDiskInfo: see purge_images()."""
    root = checked_instances_path(instances_path)
    paths = []
    for parent, folders, files in os.walk(root):
        if parent == root:
            folders.remove(os.path.basename(base_dir(root)))
        # Of the folders of instances only: one that is resized has copies that use the same base images.
        records = records_of(parent) if os.path.dirname(parent) == root else {}
        for record in records.values():
            place = os.path.join(parent, DISK)
            if is_file_system(record) and not os.path.ismount(place):
                raise InvalidDiskInfo(
                    reason="the disks of instance %s are not mounted on %s, so the base images that they use are unknown"
                    % (os.path.basename(parent), place),
                    remedy="Mount them (mount %s), or delete the instance." % place,
                )
        paths += [os.path.join(parent, name) for name in files]
    return paths


def _backing_file(path: str) -> str:
    """Return the backing file that the header of a qcow2 file names; "" for all else.

    A guest can write such a header into a raw disk: then an image is kept that is not used.
    """
    try:
        return read_backing(path).name
    except ValueError:  # a name with a zero byte
        return ""
    except OSError as error:
        if error.errno in _NO_FILE:
            return ""
        raise


def _files_in(backing: str) -> list[str]:
    """The files that the name of a backing file means: a path, file:PATH, or json:{...}."""
    if not backing.startswith("json:"):
        return [backing[len("file:") :] if backing.startswith("file:") else backing] if backing else []
    paths: list[str] = []

    def look(value: t.Any) -> None:
        if isinstance(value, dict):
            for item in value.values():
                look(item)
        elif isinstance(value, str):
            paths.append(value)

    with contextlib.suppress(ValueError, RecursionError):
        look(json.loads(backing[len("json:") :]))
    return paths
