# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Source images for volumes: fetched to a temporary file, hashed, checked by the rules of core.disks.image_checks, and removed.

An image file of this host that cannot change meanwhile is read in place, see hosts.images.image_files.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
import threading
from dataclasses import dataclass

from ...core.amounts import GIB
from ...core.disks import image_checks
from ...core.disks.checksums import SHA256, Checksum
from ...core.disks.image_urls import local_source
from ...core.errors import ImageTooBig, ImageUnacceptable, InvalidInput, MissingLibrary
from ..images.fetch import Progress, fetch, local_path
from ..images.image_files import SteadyFile, steady_file
from ..images.images import ImageSource, check_image_file, name_of_file
from ..images.unpack import compression_of, unpacked
from ..images.verify import check, digest_of
from ..os.paths import make_dirs
from .copy import reads_direct
from .process import Steps

_PREFIX = "image-"


@dataclass(frozen=True)
class CheckedImage:
    """A checked image in its temporary file, or in place (``steady``)."""

    source: ImageSource
    path: str
    driver: str
    virtual_size: int  # bytes
    sha256: str  # of the content: of the file, or of what is in a compressed one
    checksum: Checksum | None = None  # of the file as it is published, with which it was compared
    steady: SteadyFile | None = None
    direct: bool = False  # not in the page cache, and readable past it

    def check_steady(self) -> None:
        """Check the file. :raises ImageUnacceptable: the file may have changed since the check."""
        if self.steady is not None and not self.steady.is_steady():
            raise ImageUnacceptable(
                image_id=self.source.label,
                reason="file %s was opened for writing while it was read" % (self.source.path or self.source.url),
                remedy="Do not write to an image file that is in use; store a new version under another name.",
            )


def checked_temp_dir(path: str) -> str:
    """Check the path. :raises InvalidInput: the path is not absolute, or is the root directory."""
    if not path.startswith("/") or "\0" in path or ".." in path.split("/") or os.path.normpath(path) in ("/", "//"):
        raise InvalidInput(reason="temp_dir must be an absolute path below the root directory, got %r" % path)
    return os.path.normpath(path)


def check_fits_volume(image: str, virtual_size: int, volume_gb: int) -> None:
    """Check that the image, in whole GiB, fits the volume.

    :raises ImageUnacceptable: it does not fit.
    """
    needed = -(-virtual_size // GIB)
    if needed > volume_gb:
        raise ImageUnacceptable(
            image_id=image,
            reason="Image virtual size is %dGB and doesn't fit in a volume of size %dGB." % (needed, volume_gb),
            remedy="Request a volume of %d GiB or more." % needed,
        )


class TemporaryImages:
    """The temporary files of one run; each image is fetched once for any number of volumes.

    Each run has its own directory and holds a lock on it: a directory without a lock is a leftover of a killed run, and
    is removed by the next run.
    """

    def __init__(self, temp_dir: str, allow_unverified: bool = False):
        self._parent = checked_temp_dir(temp_dir)
        self._allow_unverified = allow_unverified
        self._folder = ""
        self._fd = -1
        self._guard = threading.Lock()
        self._steady: list[SteadyFile] = []

    def __enter__(self) -> TemporaryImages:
        return self

    def __exit__(self, *dummy_args: object) -> None:
        for file in self._steady:
            file.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._fd)
            self._folder = ""

    def _own_folder(self) -> str:
        with self._guard:
            if not self._folder:
                make_dirs(self._parent)
                while not self._folder:
                    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent)
                    # Another run may remove it before it is locked.
                    with contextlib.suppress(FileNotFoundError):
                        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                        fcntl.flock(fd, fcntl.LOCK_EX)
                        if os.path.isdir(folder):
                            self._folder, self._fd = folder, fd
                        else:
                            os.close(fd)
            return self._folder

    def path(self, name: str) -> str:
        """Return the path of another temporary file of this run."""
        return os.path.join(self._own_folder(), name)

    def sweep(self) -> None:
        """Remove leftovers of killed runs and power failures."""
        for name in os.listdir(self._parent) if os.path.isdir(self._parent) else ():
            path = os.path.join(self._parent, name)
            if not name.startswith(_PREFIX) or os.path.islink(path):
                continue
            with contextlib.suppress(OSError):
                fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    if os.fstat(fd).st_uid != os.geteuid():
                        continue  # in a folder where others may create files
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
                finally:
                    os.close(fd)

    def take(self, image: ImageSource, limit: int | None = None) -> CheckedImage:
        """Fetch and check the image; reads at most ``limit`` bytes.

        :raises ImageUnacceptable, InvalidDiskFormat, ImageChecksumMismatch, ImageDownloadFailed: as named.
        :raises ImageTooBig: the temporary directory is full.
        """
        label = image.label
        image_checks.driver_of(image.disk_format, label)
        if not image_checks.checksum_of(image.checksum, label) and not self._allow_unverified:
            raise ImageUnacceptable(
                image_id=label,
                reason="the image has no checksum",
                remedy="Set its sha256 in bootflow_images, or allow unverified images.",
            )
        steady = steady_file(image.path or local_path(image.url) or "")
        if steady is not None:
            self._steady.append(steady)
        direct = False
        with Steps("image-" + image.id) as steps:
            steps.at("downloading")

            def on_progress(done: int, total: int | None) -> None:
                if limit is not None and max(done, total or 0) > limit:
                    raise ImageUnacceptable(
                        image_id=label,
                        reason="the image file is larger than %d bytes, the size of the largest volume requested from it"
                        % limit,
                        remedy="Request a larger volume.",
                    )
                steps.at("downloading", 100.0 * done / total if total else 0.0)

            if steady is not None:
                on_progress(0, steady.size)
                path, sha256 = steady.path, steady.remembered_sha256()
                direct = bool(sha256) and reads_direct(path)
                sha256 = sha256 or steady.hash(on_progress)
            else:
                path, sha256 = self._fetch(image, on_progress)
        verified = check(path, sha256, image.checksum, name_of_file(image), image.access, label)
        if compression_of(path):
            plain = os.path.join(self._own_folder(), image.id + ".plain")
            path, direct = unpacked(path, plain, label, image.limits), False
            sha256 = digest_of(path, SHA256)  # of what is written to volumes
        try:
            driver, virtual_size = check_image_file(path, image.disk_format, label, image.limits.vmdk_types)
        except MissingLibrary:
            raise ImageUnacceptable(
                image_id=label,
                reason="qemu-img is not installed and image is of type %s. Only RAW images can be used if qemu-img is"
                " not installed." % image.disk_format,
                remedy="Install qemu-img: apt-get install qemu-utils",
            ) from None
        checksum = image_checks.checksum_of(verified, label)
        checked = CheckedImage(image, path, driver, virtual_size, sha256, checksum, steady, direct)
        checked.check_steady()
        return checked

    def _fetch(self, image: ImageSource, on_progress: Progress) -> tuple[str, str]:
        digest = hashlib.sha256()
        try:
            path = os.path.join(self._own_folder(), image.id)
            url = local_source(image.path) if image.path else image.url
            fetch(url, path, image.label, digest.update, on_progress, access=image.access, limits=image.limits)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            free = shutil.disk_usage(self._parent).free
            raise ImageTooBig(
                image_id=image.label,
                reason="%s in %s, %d bytes are free" % (error.strerror, self._parent, free),
                remedy="Free space in %s, or set another temp_dir." % self._parent,
            ) from None
        return path, digest.hexdigest()

    def drop(self, image: CheckedImage) -> None:
        """Remove the file."""
        if image.steady is not None:
            image.steady.close()
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(image.path)
