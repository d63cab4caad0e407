# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The catalogue's facts of an image's file, and the tags that record them on an entry of the image cache.

``bootflow.published=ALGORITHM:DIGEST``: the file that the entry was made from had this checksum when this host fetched it. One
that equals the checksum of the content is not recorded: the entry is named by that.
``bootflow.driver=DRIVER``: how the content was read. The bytes of a file, which also say whether it is compressed, and the driver decide
the disk: a file that ends as a fixed VHD is another disk if it is raw.
``bootflow.address=SHA256``: of the address at which this host has read such a checksum, for when it does not answer.
"""

from __future__ import annotations

import hashlib
import re
import typing as t
from dataclasses import dataclass

from ...core.disks import checksums, image_checks
from ...core.disks.checksums import SHA256, Checksum
from ...core.errors import InvalidInput
from ..images.images import ImageSource, name_of_file
from ..images.verify import known_digest
from ..lvm.lvm_tags import checked_tag, tag_values

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class PublishedImage:
    """The file of an image. ``checksum`` has a digest; None: it has an address that does not answer, or was not asked."""

    image_id: str
    driver: str
    checksum: Checksum | None
    address: str = ""  # of the checksum, as in tags; "" if it has none

    def tags(self, sha256: str) -> list[str]:
        """Return the records of an entry that was made from this file. :arg sha256: of its content."""
        records = ["bootflow.driver=%s" % self.driver, *self.address_tags()]
        if self.checksum is not None and self.checksum != Checksum(SHA256, sha256):
            records.append("bootflow.published=%s" % full_text(self.checksum))
        return [checked_tag(tag) for tag in records]

    def address_tags(self) -> list[str]:
        """Return the record of an entry that has the checksum which this address says now."""
        return ["bootflow.address=%s" % self.address] if self.address and self.checksum is not None else []


def published_image(source: ImageSource, checksum: Checksum | None) -> PublishedImage:
    """Return the file of this image. :arg checksum: with the digest; None if it is not known.

    :raises InvalidDiskFormat, ImageUnacceptable: what the catalogue says is not valid.
    """
    address = ""
    wanted = image_checks.checksum_of(source.checksum, source.label)
    if wanted is not None and wanted.address:
        # The name of the image's file selects the digest.
        text = "%s %s" % (wanted, checksums.file_name(name_of_file(source)))
        address = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    return PublishedImage(source.id, image_checks.driver_of(source.disk_format, source.label), checksum, address)


def catalogue_checksum(source: ImageSource, ask: bool) -> Checksum | None:
    """Return the checksum of an image with its digest; None if it has none, or has an address that does not answer.

    :arg ask: read the address.
    :raises ImageUnacceptable: it is not valid.
    """
    wanted = image_checks.checksum_of(source.checksum, source.label)
    if wanted is None or not wanted.address:
        return wanted
    return known_digest(wanted, name_of_file(source), source.access, source.label) if ask else None


def full_text(checksum: Checksum) -> str:
    """Return ``ALGORITHM:DIGEST``, also of a sha256."""
    return "%s:%s" % (checksum.algorithm, checksum.digest)


def published_checksums(tags: t.Collection[str]) -> frozenset[Checksum]:
    """Return the recorded checksums. A record that this collection does not write is ignored."""
    recorded_checksums = set()
    for text in tag_values(tags, "published"):
        try:
            checksum = checksums.parse_checksum(text)
        except InvalidInput:
            continue
        if checksum.digest and full_text(checksum) == text:
            recorded_checksums.add(checksum)
    return frozenset(recorded_checksums)


def published_addresses(tags: t.Collection[str]) -> frozenset[str]:
    """Return the recorded addresses."""
    return frozenset(value for value in tag_values(tags, "address") if _DIGEST.match(value))


def published_driver(tags: t.Collection[str]) -> str:
    """Return the recorded driver; "" for an entry of which none was recorded. Several, or an unknown one, equal no driver."""
    return ",".join(tag_values(tags, "driver"))
