# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images on this host: fetched once, verified, converted to raw, cached in <instances_path>/_base.

``_base/<id>.json`` is the marker of an image: its file, the size and time of the file, and the sha256 of the fetched file.
While these match, the image is trusted without reading it again. The file name has the beginning of the
sha256, so that a changed catalogue entry never replaces the file below the disk of a running guest.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import typing as t
from dataclasses import dataclass, fields, replace

from ...core.amounts import GIB
from ...core.disks import image_checks
from ...core.disks.checksums import SHA256, Checksum
from ...core.disks.image_urls import local_source, split_login
from ...core.disks.local import base_file, image_marker, is_confinable
from ...core.errors import ImageUnacceptable, InvalidInput
from ...core.image_access import ImageAccess
from ..os.batch import progress
from ..os.command import UNTRUSTED_IMAGE, program, run
from ..os.files import fsync, read_json, remove_files, write_json
from ..os.locks import host_lock
from ..os.module_errors import as_bootflow_error
from ..os.paths import base_dir, checked_id, make_dirs
from .fetch import OPEN, UNLIMITED, FetchLimits, Progress, fetch
from .unpack import unpacked
from .verify import check, known_digest, version_of

QEMU_IMG_PACKAGE = "qemu-utils"

#: Seconds for one conversion; also ends a qemu-img that hangs on a dead file system.
CONVERT_TIMEOUT = 3600.0


@dataclass(frozen=True)
class ImageSource:
    """An image of the catalogue, and its source for this host."""

    id: str
    disk_format: str
    checksum: str = ""  # see core.disks.checksums
    version: str = ""  # of the controller's file, without a checksum
    url: str = ""  # http(s):// or file://
    path: str = ""  # a file of this host
    name: str = ""
    allow_unverified: bool = False
    access: ImageAccess = OPEN
    limits: FetchLimits = UNLIMITED

    @property
    def label(self) -> str:
        """Return the name or id for messages."""
        return self.name or self.id


#: Suboptions of the option ``images`` of the modules that fetch images.
IMAGE_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "id": {"type": "str", "required": True},
    "name": {"type": "str"},
    "url": {"type": "str"},
    "path_on_host": {"type": "path"},
    "checksum": {"type": "str", "default": ""},
    "version": {"type": "str", "default": ""},
    "disk_format": {"type": "str", "required": True},
    "size": {"type": "int"},
    "validate_certs": {"type": "bool", "default": True},
    "ca_path": {"type": "path"},
    "client_cert": {"type": "path"},
    "client_key": {"type": "path"},
    "url_username": {"type": "str"},
    "url_password": {"type": "str", "no_log": True},
    "headers": {"type": "json", "no_log": True},
    "use_proxy": {"type": "bool", "default": True},
}
#: Options of these modules in addition to it.
FETCH_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "uploads": {"type": "dict", "default": {}},
    "allow_unverified": {"type": "bool", "default": False},
    "image_max_gb": {"type": "int", "default": 1024},
    "image_fetch_timeout": {"type": "float", "default": 3600.0},
    "vmdk_allowed_types": {
        "type": "list",
        "elements": "str",
        "choices": list(image_checks.VMDK_CREATE_TYPES),
        "default": list(image_checks.VMDK_CREATE_TYPES),
    },
}


def fetch_limits(options: t.Mapping[str, t.Any]) -> FetchLimits:
    """Return the limits in the options of FETCH_ARGUMENTS."""
    return FetchLimits(
        options["image_max_gb"] * GIB, options["image_fetch_timeout"], vmdk_types=tuple(options["vmdk_allowed_types"])
    )


def image_source(
    args: t.Mapping[str, t.Any],
    uploads: t.Mapping[str, str],
    allow_unverified: bool,
    limits: FetchLimits = UNLIMITED,
) -> ImageSource:
    """Return the source in an element of the option ``images``."""
    url, user, password = split_login(args.get("url") or "")
    given = {field.name: args.get(field.name) for field in fields(ImageAccess)}
    given["headers"] = _headers(given["headers"])
    given.update(url_username=given["url_username"] or user, url_password=given["url_password"] or password)
    return ImageSource(
        id=args["id"],
        name=args.get("name") or "",
        disk_format=args["disk_format"],
        checksum=args.get("checksum") or "",
        version=args.get("version") or "",
        url=url,
        path=uploads.get(args["id"]) or args.get("path_on_host") or "",
        allow_unverified=allow_unverified,
        access=ImageAccess(**{name: value for name, value in given.items() if value is not None}),
        limits=replace(limits, declared=args.get("size")),
    )


def remove_uploads(paths: t.Iterable[str]) -> bool:
    """Remove files that were uploaded, and their folders. Returns whether all are gone; a folder stays if something else is in it."""
    folders = set()
    for path in paths:
        folders.add(os.path.dirname(path))
        with contextlib.suppress(OSError):
            os.unlink(path)
    for folder in folders:
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return not any(os.path.lexists(folder) for folder in folders)


def _headers(text: str | None) -> dict[str, str]:
    """Parse the headers. :raises InvalidInput: not JSON of a mapping."""
    try:
        headers = json.loads(text or "{}")
        return {str(name): str(value) for name, value in headers.items()}
    except (ValueError, AttributeError):
        raise InvalidInput(reason="the headers of an image must be a mapping") from None


@dataclass(frozen=True)
class BaseImage:
    """A verified raw file of the cache."""

    path: str
    virtual_size: int  # bytes
    sha256: str  # of the file as it was fetched
    changed: bool = False


class TooLarge(Exception):
    """The image is larger than every disk requested from it; it was checked but not converted."""

    def __init__(self, virtual_size: int):
        super().__init__(virtual_size)
        self.virtual_size = virtual_size


def image_info(path: str, driver: str) -> dict[str, t.Any] | None:
    """Return ``qemu-img info`` of ``path`` opened as ``driver`` (never probed), under limits; None if it cannot be read.

    :raises MissingLibrary: qemu-img is not installed.
    """
    argv = [program("qemu-img", QEMU_IMG_PACKAGE), "info", "-f", driver, "--output=json", os.path.abspath(path)]
    done = run(argv, limits=UNTRUSTED_IMAGE, timeout=60.0, check=False)
    try:
        info = json.loads(done.stdout) if done.rc == 0 else None
    except ValueError:
        return None
    return info if isinstance(info, dict) else None


def check_image_file(
    path: str, disk_format: str, image_id: str, vmdk_types: t.Sequence[str] = image_checks.VMDK_CREATE_TYPES
) -> tuple[str, int]:
    """Check a fetched file by its bytes, then by qemu-img; (driver, virtual size in bytes).

    :raises ImageUnacceptable, InvalidDiskFormat: see core.disks.image_checks.
    :raises MissingLibrary: the image is not raw, and qemu-img is not installed.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:

        def read_at(offset: int, length: int) -> bytes:
            if offset < 0 or offset >= size:
                return b""
            file.seek(offset)
            return file.read(length)

        driver = image_checks.check_signature(read_at, size, disk_format, image_id, vmdk_types)
    if driver == "raw":
        return driver, size
    return driver, image_checks.check_info(image_info(path, driver), driver, image_id, vmdk_types)


def cached_image(image: ImageSource, instances_path: str) -> BaseImage | None:
    """Return the cached image if it is complete and has the checksum of the catalogue, else None. Reads no image data."""
    folder = base_dir(instances_path)
    wanted = image_checks.checksum_of(image.checksum, image.id)
    try:
        with open(os.path.join(folder, image_marker(checked_id(image.id, "image id"))), encoding="utf-8") as file:
            marker = json.load(file)
        name = str(marker["file"])
        if os.path.basename(name) != name or not is_confinable(name) or not _is_same(image, wanted, marker):
            return None
        path = os.path.join(folder, name)
        status = os.lstat(path)
        if (status.st_size, status.st_mtime_ns) != (marker["size"], marker["mtime_ns"]):
            return None
        return BaseImage(path=path, virtual_size=int(marker["size"]), sha256=str(marker["sha256"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def ensure_image(
    image: ImageSource,
    instances_path: str,
    max_bytes: int | None = None,
    on_progress: Progress | None = None,
    lock_timeout: float = 7200.0,
) -> BaseImage:
    """Return the cached image, fetched and verified if needed. Safe for any number of concurrent processes.

    :arg max_bytes: size of the largest disk requested from it; a larger image is rejected before the conversion.
    :arg on_progress: called with (bytes so far, bytes in all or None) during the fetch.
    :raises TooLarge: the image is larger than max_bytes.
    :raises ImageDownloadFailed, ImageChecksumMismatch, ImageUnacceptable, InvalidDiskFormat, DiskFull: as named.
    """
    image_checks.driver_of(image.disk_format, image.label)
    base_image = cached_image(image, instances_path)
    if base_image is None:
        if not image_checks.checksum_of(image.checksum, image.label) and not image.allow_unverified:
            raise ImageUnacceptable(
                image_id=image.label,
                reason="the image has no checksum",
                remedy="Set its sha256 in bootflow_images, or allow unverified images.",
            )
        with host_lock(instances_path, "image-" + image.id, timeout=lock_timeout):
            base_image = cached_image(image, instances_path)
            if base_image is None:
                base_image = _fill_cache(image, instances_path, max_bytes, on_progress)
    if max_bytes is not None and base_image.virtual_size > max_bytes:
        raise TooLarge(base_image.virtual_size)
    return base_image


def hold_image(image: ImageSource, instances_path: str, max_bytes: int | None, held: contextlib.ExitStack) -> BaseImage:
    """Call ensure_image(), and let no purge remove the file until ``held`` ends: disks can be made from it.

    :raises: see ensure_image().
    """
    while True:
        base_image = ensure_image(image, instances_path, max_bytes)
        with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as opened:
            fd = os.open(base_image.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            opened.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_SH)
            # Otherwise a purge removed it meanwhile: it is fetched again.
            if os.path.samestat(os.fstat(fd), os.lstat(base_image.path)):
                mark_used(fd)
                held.push(opened.pop_all())
                return base_image


def mark_used(file: str | int) -> None:
    """Set the change time of a base image, from which its age counts; the time of its content identifies it."""
    status = os.stat(file)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def _is_same(image: ImageSource, wanted: Checksum | None, marker: t.Mapping[str, t.Any]) -> bool:
    """Return whether the cached image is that of the catalogue: by its checksum, without one by its source and its version.

    What a server that does not answer would say is taken for unchanged.
    """
    if wanted is None:
        if image.version:
            return bool(marker.get("version") == image.version)
        if not _source_name(image):
            return True  # another run has copied it, and no file is here to compare with
        version = version_of(image.path, image.url, image.access)
        return bool(marker["source"] == _source_name(image)) and version in ("", marker.get("version"))
    if wanted.address:
        known = known_digest(wanted, name_of_file(image), image.access, image.label)
        return str(known) == marker.get("checksum") if known else marker.get("address") == str(wanted)
    if wanted.algorithm == SHA256:
        return bool(marker["sha256"] == wanted.digest)
    return bool(marker.get("checksum") == str(wanted))


def _source_name(image: ImageSource) -> str:
    return image.path or image.url


def _fill_cache(
    image: ImageSource, instances_path: str, max_bytes: int | None, on_progress: Progress | None
) -> BaseImage:
    folder = base_dir(instances_path)
    make_dirs(folder)
    fetched = os.path.join(folder, image.id + ".part")
    plain = os.path.join(folder, image.id + ".plain-part")
    converted = os.path.join(folder, image.id + ".raw-part")
    try:
        # The leftover of a killed run; the lock ensures that no run is writing it.
        remove_files(fetched, plain, converted)
        version = image.version or ("" if image.checksum else version_of(image.path, image.url, image.access))
        sha256 = _fetch(image, fetched, on_progress)
        return _accept(image, folder, fetched, sha256, version, max_bytes)
    except OSError as error:
        raise as_bootflow_error(error, folder) from None
    finally:
        remove_files(fetched, plain, converted)


def accept_fetched(image: ImageSource, instances_path: str, sha256: str) -> BaseImage:
    """Check the fetched file of an image, whose lock is held, and make it the cached image. Nothing remains of a file that is not it.

    :arg sha256: of the file fetched_file().
    :raises ImageChecksumMismatch, ImageUnacceptable, InvalidDiskFormat, DiskFull: as named.
    """
    folder, fetched = base_dir(instances_path), fetched_file(instances_path, image.id)
    try:
        version = image.version or ("" if image.checksum else version_of(image.path, image.url, image.access))
        return _accept(image, folder, fetched, sha256, version, None)
    except OSError as error:
        raise as_bootflow_error(error, folder) from None
    finally:
        remove_files(fetched, *(os.path.join(folder, image.id + ending) for ending in (".plain-part", ".raw-part")))


def fetched_file(instances_path: str, image_id: str) -> str:
    """Where the file of an image is while it arrives."""
    return os.path.join(base_dir(instances_path), checked_id(image_id, "image id") + ".part")


def is_as_fetched(image: ImageSource, instances_path: str) -> bool:
    """Whether the file of the cached image has the bytes of the catalogue's: it was neither compressed nor converted."""
    marker = read_json(os.path.join(base_dir(instances_path), image_marker(checked_id(image.id, "image id"))))
    return isinstance(marker, dict) and marker.get("as_fetched") is True


def _accept(
    image: ImageSource, folder: str, fetched: str, sha256: str, version: str, max_bytes: int | None
) -> BaseImage:
    """Check and convert a fetched file, which is in the folder, and publish it."""
    plain = os.path.join(folder, image.id + ".plain-part")
    converted = os.path.join(folder, image.id + ".raw-part")
    checksum = check(fetched, sha256, image.checksum, name_of_file(image), image.access, image.label)
    content = unpacked(fetched, plain, image.label, image.limits)
    driver, virtual_size = check_image_file(content, image.disk_format, image.label, image.limits.vmdk_types)
    if max_bytes is not None and virtual_size > max_bytes:
        raise TooLarge(virtual_size)
    raw = content
    if driver != "raw":
        convert(content, driver, converted)
        raw = converted
    return _publish(image, raw, sha256, folder, raw == fetched, checksum=checksum, version=version)


def name_of_file(image: ImageSource) -> str:
    """Return the source by whose name a file with checksums lists the image; a copy of the controller's file has another name."""
    with contextlib.suppress(ValueError, TypeError, IndexError):
        return str(json.loads(image.version)[0])
    return _source_name(image)


def _fetch(image: ImageSource, target: str, on_progress: Progress | None) -> str:
    digest = hashlib.sha256()
    source = local_source(image.path) if image.path else image.url
    fetch(source, target, image.label, digest.update, on_progress, access=image.access, limits=image.limits)
    return digest.hexdigest()


def convert(source: str, driver: str, target: str, made: str = "raw", name: str = "") -> None:
    """Convert an image to a file of the format ``made``.

    :arg driver: the checked format of ``source``, never probed. :arg name: what errors call a file without a name
    """
    argv = [program("qemu-img", QEMU_IMG_PACKAGE), "convert", "-f", driver, "-O", made, source, target]
    run(argv, timeout=CONVERT_TIMEOUT, path=name or target, outlives=False)


def _publish(
    image: ImageSource, raw: str, sha256: str, folder: str, as_fetched: bool = False, **known: str
) -> BaseImage:
    """Rename the raw file, then write the marker; after a crash between the two the image is fetched again.

    :arg as_fetched: see is_as_fetched()
    """
    progress.mark_changed()
    os.chmod(raw, 0o644)
    fsync(raw)
    name = base_file(image.id, sha256)
    path = os.path.join(folder, name)
    # A file of that name has the same content, and running guests keep it open, so it can be replaced.
    os.rename(raw, path)
    fsync(folder)
    status = os.lstat(path)
    marker = {
        "id": image.id,
        "name": image.name,
        "file": name,
        "sha256": sha256,
        "disk_format": image.disk_format,
        "source": _source_name(image),
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "address": image.checksum,
        "as_fetched": as_fetched,
        **known,
    }
    write_json(os.path.join(folder, image_marker(image.id)), marker, 0o600)  # the URL may contain a signature
    return BaseImage(path=path, virtual_size=status.st_size, sha256=sha256, changed=True)
