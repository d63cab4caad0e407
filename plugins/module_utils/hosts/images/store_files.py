# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of a store of images: written under another name, verified, and published by a rename, so that a half image is never seen."""

from __future__ import annotations

import functools
import hashlib
import os
import typing as t

from ...core.disks import image_checks
from ...core.disks.image_urls import local_source
from ...core.errors import ImageUnacceptable, InvalidInput, RemoteError
from ..os.batch import run_batch
from ..os.files import fsync, remove_files
from ..os.module_errors import as_bootflow_error
from ..os.paths import checked_id
from .fetch import fetch
from .images import ImageSource, fetch_limits, image_source, name_of_file
from .unpack import unpacked
from .verify import check

#: Ends the name of a file that is being written.
PART = ".part"
#: Ends the name of the content of a compressed file, while it is checked.
PLAIN = ".plain-part"


#: Receives the file of an image from another host: (giver, image, new file, gets all bytes) -> number of bytes.
Receive = t.Callable[[t.Mapping[str, t.Any], ImageSource, str, t.Callable[[bytes], t.Any]], int]


def work_on(options: t.Mapping[str, t.Any], check_mode: bool, receive: Receive) -> dict[str, dict[str, t.Any]]:
    """Write and remove files by the options of the module image_file. Returns the outcome of each image, by its id.

    :raises InvalidInput: the mode is not one. :raises RemoteError: the directory is missing.
    """
    try:
        mode = int(options["mode"], 8)
    except ValueError:
        raise InvalidInput(reason="mode must be octal digits, got %r" % options["mode"]) from None
    folder, limits = options["path"], fetch_limits(options)
    check_folder(folder)
    sources = [
        image_source(image, options["uploads"], options["allow_unverified"], limits) for image in options["images"]
    ]
    removals = run_batch(
        ((image_id, image_id) for image_id in options["removed"]), lambda i: remove(i, folder, check_mode)
    )
    readers = {
        image["id"]: functools.partial(receive, image["giver"]) for image in options["images"] if image.get("giver")
    }
    if check_mode:
        return {**removals, **{image.id: {"changed": True, "error": None} for image in sources}}
    return {
        **removals,
        **run_batch(((image.id, image) for image in sources), lambda i: put(i, folder, mode, readers.get(i.id)), 1),
    }


def put(
    image: ImageSource,
    folder: str,
    mode: int = 0o600,
    read: t.Callable[[ImageSource, str, t.Callable[[bytes], t.Any]], int] | None = None,
) -> dict[str, t.Any]:
    """Write the bytes of an image to the folder, and verify them. Returns {changed, size, checksum}; the checksum is a sha256.

    :arg read: receives the disk of an instance from another host, which is never a compressed file; None: the image has a path or a URL

    The bytes are read once; a compressed file is unpacked to check its content, and stored as it is. A file of that image that was there is
    replaced when all of them are verified.

    :raises ImageDownloadFailed, ImageChecksumMismatch, ImageUnacceptable, InvalidDiskFormat, DiskFull: as named.
    :raises RemoteError: the folder is missing.
    """
    check_folder(folder)
    path = os.path.join(folder, checked_id(image.id, "image id"))
    if not image_checks.checksum_of(image.checksum, image.label) and not image.allow_unverified:
        raise ImageUnacceptable(
            image_id=image.label,
            reason="the image has no checksum",
            remedy="Set its sha256 in bootflow_image_imports, or allow unverified images.",
        )
    part, plain = path + PART, path + PLAIN
    remove_files(part, plain)  # of a killed run: the ledger gives an image to one run at a time
    try:
        digest = hashlib.sha256()
        if read is not None:
            size = read(image, part, digest.update)
        else:
            source = local_source(image.path) if image.path else image.url
            size = fetch(source, part, image.label, digest.update, access=image.access, limits=image.limits)
        sha256 = digest.hexdigest()
        check(part, sha256, image.checksum, name_of_file(image), image.access, image.label)
        content = part if read is not None else unpacked(part, plain, image.label, image.limits)
        check_bytes(content, image.disk_format, image.label, image.limits.vmdk_types)
        os.chmod(part, mode)
        fsync(part)
        os.rename(part, path)
        fsync(folder)
    except OSError as error:
        raise as_bootflow_error(error, folder) from None
    finally:
        remove_files(part, plain)
    return {"changed": True, "size": size, "checksum": sha256}


def remove(image_id: str, folder: str, check_mode: bool = False) -> dict[str, t.Any]:
    """Remove the file of an image, whole or half. Returns {changed}.

    :raises RemoteError: the folder is missing: nothing says that the file is gone.
    """
    check_folder(folder)
    path = os.path.join(folder, checked_id(image_id, "image id"))
    files = [name for name in (path, path + PART, path + PLAIN) if os.path.lexists(name)]
    if files and not check_mode:
        try:
            remove_files(*files)
            fsync(folder)
        except OSError as error:
            raise as_bootflow_error(error, folder) from None
    return {"changed": bool(files)}


def check_folder(folder: str) -> None:
    """Check that the directory of a store is there. It is never made: it may be where a file system is not mounted.

    :raises RemoteError: it is missing.
    """
    if not os.path.isdir(folder):
        raise RemoteError(
            reason="the directory %s of the image store does not exist" % folder,
            remedy="Make it, or mount what belongs there.",
        )


def check_bytes(path: str, disk_format: str, label: str, vmdk_types: t.Sequence[str] = ()) -> None:
    """Check the bytes of an image. :arg label: the image, for messages

    :raises ImageUnacceptable, InvalidDiskFormat: the file is not of its format, or refers to other files.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:

        def read_at(offset: int, length: int) -> bytes:
            if offset < 0 or offset >= size:
                return b""
            file.seek(offset)
            return file.read(length)

        image_checks.check_signature(read_at, size, disk_format, label, vmdk_types)
