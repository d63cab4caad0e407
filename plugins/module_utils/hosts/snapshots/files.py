# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of images on the host that makes them: converted from a disk, and left in the host's own folder or in the store."""

from __future__ import annotations

import contextlib
import os
import time
import typing as t
from dataclasses import dataclass

from ...core.disks.local import QCOW2, RAW
from ...core.errors import InvalidInput
from ..images.images import QEMU_IMG_PACKAGE
from ..images.store_files import PART, check_folder
from ..os.command import program, run
from ..os.files import remove_files
from ..os.paths import checked_id
from .publish import file_of, publish


@dataclass(frozen=True)
class Target:
    """Where the files belong.

    ``own``: the host's own folder for them. ``store``: the folder of the store; "": they stay in the own one, from which the controller fetches them.
    ``mode``: of files in the store. ``owner``: the user, by number, who may read files that stay.
    """

    own: str
    store: str = ""
    mode: int = 0o600
    owner: int = 0

    @property
    def folder(self) -> str:
        return self.store or self.own

    def part_of(self, image_id: str) -> str:
        """Return the path of a file that is being written."""
        return file_of(self.folder, image_id) + PART

    def publish(self, made: str, image_id: str, disk_format: str) -> dict[str, t.Any]:
        """Give a finished file its name. Returns {size, checksum, path}. :raises BootflowError: see publish()"""
        done = publish(made, self.folder, image_id, disk_format, self.mode if self.store else 0o600)
        path = file_of(self.folder, image_id)
        if not self.store:
            os.chown(path, self.owner, -1)
        return {**done, "path": path}


def target_by(options: t.Mapping[str, t.Any], own: str) -> Target:
    """Return the target by the options of a module: ``path``, ``mode``, ``owner``.

    :raises InvalidInput: the mode is not one. :raises RemoteError: the store's directory is missing
    """
    try:
        mode = int(options["mode"], 8)
    except ValueError:
        raise InvalidInput(reason="mode must be octal digits, got %r" % options["mode"]) from None
    if options["path"]:
        check_folder(options["path"])
    return Target(own, options["path"] or "", mode, options["owner"] or 0)


def convert(
    source: str, driver: str, target: str, made: str, compress: bool = False, source_cache: str = "writeback"
) -> None:
    """Write a disk to a file without a base image. :arg driver: the recorded format of ``source``, never probed

    :arg source_cache: ``none``: read it past the page cache, as of a device to which others write past it

    A guest that has the disk open holds QEMU's lock on it, and qemu-img refuses to read it then.
    source: Nova's convert_image and extract_snapshot
    """
    argv = [program("qemu-img", QEMU_IMG_PACKAGE), "convert", "-f", driver, "-O", made]
    argv += [
        "-T",
        source_cache,
        "-t",
        cache_mode(os.path.dirname(target)),
        *(["-c"] if compress else []),
        source,
        target,
    ]
    run(argv, path=target, outlives=False)


def cache_mode(folder: str) -> str:
    """Return ``none`` where files of the folder can be written past the page cache, else ``writeback``. source: Nova's supports_direct_io"""
    path = os.path.join(folder, ".bootflow-direct-%d" % os.getpid())
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o600))
        return "none"
    except OSError:
        return "writeback"
    finally:
        remove_files(path)


def remove_failed(own: str, image_ids: t.Iterable[str]) -> None:
    """Remove what killed runs have left of images in the host's own folder."""
    for image_id in image_ids:
        path = file_of(own, checked_id(image_id, "image id"))
        remove_files(path, path + PART, *("%s.%s" % (path, disk_format) for disk_format in (QCOW2, RAW)))


def remove_stale(own: str, seconds: float) -> list[str]:
    """Remove what killed runs have left in the host's own folder. Returns the paths.

    :arg seconds: the age from which no run needs a file; 0: none is removed
    """
    removed: list[str] = []
    if not seconds:
        return removed
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for entry in os.scandir(own):
            with contextlib.suppress(FileNotFoundError):
                if entry.is_file(follow_symlinks=False) and time.time() - entry.stat().st_mtime > seconds:
                    os.unlink(entry.path)
                    removed.append(entry.path)
    return removed
