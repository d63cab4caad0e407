# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checksums of images: ``ALGORITHM:DIGEST``, or ``ALGORITHM:ADDRESS`` of a file with checksums, as ansible.builtin.get_url takes them."""

from __future__ import annotations

import posixpath
import re
import typing as t
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ..errors import InvalidInput

SHA256 = "sha256"
#: Algorithm -> hexadecimal digits of a digest.
ALGORITHMS: t.Mapping[str, int] = {SHA256: 64, "sha384": 96, "sha512": 128}

_ADDRESS = re.compile(r"(?:https?|file)://", re.IGNORECASE)
_HEX = re.compile(r"[0-9a-fA-F]+\Z")
# "SHA256 (NAME) = DIGEST" of BSD's programs, which Fedora, Rocky and CentOS publish.
_BSD = re.compile(r"[A-Za-z0-9-]+\s*\((.+)\)\s*=\s*([0-9a-fA-F]+)\Z")
# "DIGEST  NAME" or "DIGEST *NAME" of GNU's.
_GNU = re.compile(r"([0-9a-fA-F]+)[ \t]+\*?(\S.*)\Z")


@dataclass(frozen=True)
class Checksum:
    """The expected digest of a file, lower-case; or the address of a file that has it."""

    algorithm: str
    digest: str = ""
    address: str = ""

    def __str__(self) -> str:
        """As images store it: a sha256 as its digits only."""
        if self.address:
            return "%s:%s" % (self.algorithm, self.address)
        return self.digest if self.algorithm == SHA256 else "%s:%s" % (self.algorithm, self.digest)


def parse_checksum(text: str) -> Checksum:
    """The checksum in a text; digits without an algorithm are a sha256.

    :raises InvalidInput: another algorithm, or neither a digest of its length nor an address.
    """
    text = text.strip()
    kind, colon, rest = text.partition(":")
    if not colon or _ADDRESS.match(text):
        kind, rest = SHA256, text
    kind, rest = kind.lower(), rest.strip()
    if kind not in ALGORITHMS:
        raise InvalidInput(
            message="must be a %s, not %s" % (" or ".join(ALGORITHMS), kind[:40]),
            remedy="Write sha256:<hex> as sha256sum prints it, or sha512:<hex> as sha512sum does.",
        )
    if _ADDRESS.match(rest):
        if any(ord(char) <= 32 or ord(char) == 127 for char in rest):
            raise InvalidInput(message="the address of the checksums has blanks or control characters")
        return Checksum(kind, address=rest)
    if not _HEX.match(rest) or len(rest) != ALGORITHMS[kind]:
        raise InvalidInput(
            message="a %s has %d hexadecimal digits" % (kind, ALGORITHMS[kind]),
            remedy="Write %s:<hex> as %ssum prints it, or %s:<address of the file with checksums>."
            % (kind, kind, kind),
        )
    return Checksum(kind, digest=rest.lower())


def file_name(source: str) -> str:
    """The last part of a path or URL."""
    return posixpath.basename(unquote(urlsplit(source).path)) if _ADDRESS.match(source) else posixpath.basename(source)


def digest_in(text: str, checksum: Checksum, name: str) -> str:
    """Return the digest of the file ``name`` in a file with checksums; "" if it has none.

    Lines are in the form of sha256sum or of BSD's programs; a file with one digest and no name is of any file.
    """
    length = ALGORITHMS[checksum.algorithm]
    bare = []
    for line in text.splitlines():
        line = line.strip()
        match = _BSD.match(line)
        pair = (match.group(1), match.group(2)) if match else None
        if pair is None:
            other = _GNU.match(line)
            pair = (other.group(2), other.group(1)) if other else None
        if pair is None:
            bare += [line] if _HEX.match(line) and len(line) == length else []
        elif len(pair[1]) == length and posixpath.basename(pair[0].strip()) == name:
            return pair[1].lower()
    return bare[0].lower() if len(bare) == 1 else ""
