# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a fetched file is the image of the catalogue: by its checksum, or by the version of its source."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import typing as t
from dataclasses import replace

from ...core.disks import checksums, image_checks
from ...core.disks.checksums import SHA256, Checksum
from ...core.errors import BootflowError, ImageChecksumMismatch, ImageUnacceptable
from ...core.image_access import ImageAccess
from .fetch import CHUNK, UNLIMITED, fetch, local_path, look, shown_url

#: Bytes of the largest file with checksums that is read.
_LARGEST = 4 * 1024**2


def digest_of(path: str, algorithm: str) -> str:
    """Return the digest of a file."""
    digest = hashlib.new(algorithm)
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def resolved(checksum: Checksum, source: str, access: ImageAccess, image_id: str) -> Checksum:
    """Return the checksum with its digest, read from its address if it has one.

    :arg source: path or URL of the image, whose name the file with checksums has.
    :raises ImageUnacceptable: the file has no digest of the image. :raises ImageDownloadFailed: it cannot be read.
    """
    if not checksum.address:
        return checksum
    with tempfile.TemporaryDirectory(prefix="bootflow-") as folder:
        path = os.path.join(folder, "checksums")
        limits = replace(UNLIMITED, max_bytes=_LARGEST, seconds=120.0)
        access = access.for_server_of(checksum.address, source)
        fetch(checksum.address, path, image_id, lambda _bytes: None, access=access, limits=limits)
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    digest = checksums.digest_in(text, checksum, checksums.file_name(source))
    if not digest:
        raise ImageUnacceptable(
            image_id=image_id,
            reason="%s has no %s of %s"
            % (shown_url(checksum.address), checksum.algorithm, checksums.file_name(source)),
            remedy="Correct the checksum of the image in bootflow_images.",
        )
    return Checksum(checksum.algorithm, digest)


def check(path: str, sha256: str, text: str, source: str, access: ImageAccess, image_id: str) -> str:
    """Check a fetched file against the checksum of its image. Returns the checksum with its digest; "" if the image has none.

    :arg sha256: of the file. :arg text: the checksum in the catalogue.
    :raises ImageChecksumMismatch: it differs. :raises ImageUnacceptable, ImageDownloadFailed: see resolved().
    """
    wanted = image_checks.checksum_of(text, image_id)
    if wanted is None:
        return ""
    wanted = resolved(wanted, source, access, image_id)
    actual = sha256 if wanted.algorithm == SHA256 else digest_of(path, wanted.algorithm)
    if actual != wanted.digest:
        raise ImageChecksumMismatch(image_id=image_id, actual=actual, expected=wanted.digest)
    return str(wanted)


def version_of(path: str, url: str, access: ImageAccess) -> str:
    """Return a text that differs between two versions of a source: size and time of a file, or the ETag and Last-Modified of a web server.

    "" if there is none, also while the server does not answer.
    """
    file = path or local_path(url) or ""
    with contextlib.suppress(OSError):
        if file:
            status = os.stat(file)
            return json.dumps([file, status.st_size, status.st_mtime_ns])
    if url.startswith(("http://", "https://")):
        with contextlib.suppress(BootflowError, OSError):
            return look(url, access)
    return ""


def known_digest(checksum: Checksum, source: str, access: ImageAccess, image_id: str) -> t.Optional[Checksum]:
    """Call resolved(); None if the address of the checksum does not answer now."""
    try:
        return resolved(checksum, source, access, image_id)
    except (BootflowError, OSError):
        return None
