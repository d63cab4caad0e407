# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of an image gets its name: when all of its bytes are on the disk, hashed, and what an image of its format may have."""

from __future__ import annotations

import hashlib
import os
import typing as t

from ..images.store_files import PART, check_bytes, check_folder
from ..os.files import fsync, opened, remove_files
from ..os.module_errors import as_bootflow_error
from ..os.paths import checked_id
from ..os.room import check_room

CHUNK = 1024**2  # bytes


def file_of(folder: str, image_id: str) -> str:
    """Return the path of the file of an image."""
    return os.path.join(folder, checked_id(image_id, "image id"))


def publish(made: str, folder: str, image_id: str, disk_format: str, mode: int) -> dict[str, t.Any]:
    """Give the finished file ``made`` its name in ``folder``. Returns {size, checksum}; the checksum is a sha256.

    In the same file system it is renamed, into another one it is copied. A file of that image that was there is replaced.

    :raises ImageUnacceptable: a guest has made its raw disk look like another format. :raises DiskFull: the folder has no room.
    :raises RemoteError: the folder is missing.
    """
    check_folder(folder)
    path = file_of(folder, image_id)
    part = path + PART
    try:
        size = os.path.getsize(made)
        check_bytes(made, disk_format, image_id)
        if os.stat(made).st_dev == os.stat(folder).st_dev:
            checksum = sha256_of(made)
            if made != part:
                os.rename(made, part)
        else:
            check_room(folder, os.stat(made).st_blocks * 512)
            remove_files(part)
            checksum = _copy(made, part)
        os.chmod(part, mode)
        fsync(part)
        os.rename(part, path)
        fsync(folder)
    except OSError as error:
        raise as_bootflow_error(error, folder) from None
    finally:
        remove_files(part)
    return {"size": size, "checksum": checksum}


def sha256_of(path: str) -> str:
    """Return the sha256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def _copy(source: str, target: str) -> str:
    """Copy a file, zeros as holes. Returns its sha256."""
    digest, zeros = hashlib.sha256(), bytes(CHUNK)
    with open(source, "rb") as file, opened(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW) as fd:
        place = 0
        for chunk in iter(lambda: file.read(CHUNK), b""):
            digest.update(chunk)
            if chunk != zeros[: len(chunk)]:
                rest = memoryview(chunk)
                at = place
                while rest:
                    done = os.pwrite(fd, rest, at)
                    rest, at = rest[done:], at + done
            place += len(chunk)
        os.ftruncate(fd, place)
    return digest.hexdigest()
