# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An image in pieces, each with its SHA-256: what arrives is compared piece by piece, before it is kept or given on."""

from __future__ import annotations

import hashlib
import typing as t

PIECE = (
    256 * 1024
)  # bytes. A host gives a piece on when it is whole: with larger ones each host of a long chain waits longer
DIGEST = 32  # bytes
ZEROS = bytes(PIECE)
_OF_ZEROS = hashlib.sha256(ZEROS).digest()


class Pieces:
    """The SHA-256 of each piece of a file, in their order. While a file is still read, only the first ones are known."""

    def __init__(self) -> None:
        self._digests = bytearray()
        self.size: int | None = None  # bytes of the file; None: more may follow

    def __len__(self) -> int:
        return len(self._digests) // DIGEST

    def __getitem__(self, number: int) -> bytes:
        return bytes(self._digests[number * DIGEST : (number + 1) * DIGEST])

    def add(self, digests: bytes) -> None:
        """:raises ValueError: no whole digests, or more than the file has."""
        if len(digests) % DIGEST or (self.size is not None and len(self) + len(digests) // DIGEST > count(self.size)):
            raise ValueError("no digests of pieces")
        self._digests += digests

    def end(self, size: int) -> None:
        """The file has ``size`` bytes. :raises ValueError: so many pieces are not known"""
        if count(size) != len(self):
            raise ValueError("%d bytes do not have %d pieces" % (size, len(self)))
        self.size = size

    def digests(self, begin: int, end: int) -> bytes:
        """Return the digests of the pieces from ``begin`` to ``end``."""
        return bytes(self._digests[begin * DIGEST : end * DIGEST])

    def root(self) -> str:
        """One SHA-256 for all of them, and the size: who knows it can tell whether others are right."""
        return root_of(self.size or 0, self._digests)

    def is_right(self, number: int, data: bytes) -> bool:
        """Whether ``data`` is that piece. :raises IndexError: it is not known yet"""
        if not 0 <= number < len(self):
            raise IndexError(number)
        fits = len(data) == self.length(number) or (
            self.size is None and 0 < len(data) < PIECE
        )  # it may be the last one
        return fits and hashlib.sha256(data).digest() == self[number]

    def is_zero(self, number: int) -> bool:
        """Whether a piece has zeros only: it is not sent, and becomes a hole."""
        return number < len(self) and self.length(number) == PIECE and self[number] == _OF_ZEROS

    def length(self, number: int) -> int:
        """Bytes of a piece, the last of which may be short."""
        return PIECE if self.size is None else min(PIECE, self.size - number * PIECE)


def count(size: int) -> int:
    """The pieces of a file of ``size`` bytes."""
    return -(-size // PIECE)


def root_of(size: int, digests: bytes | bytearray) -> str:
    """See Pieces.root()."""
    return hashlib.sha256(b"%d:" % size + digests).hexdigest()


def read_pieces(read: t.Callable[[int], bytes], *also: t.Any) -> Pieces:
    """The pieces of a file. :arg also: hash objects that get its content, too"""
    pieces, size = Pieces(), 0
    for data in iter(lambda: read(PIECE), b""):
        pieces.add(hashlib.sha256(data).digest())
        for digest in also:
            digest.update(data)
        size += len(data)
    pieces.end(size)
    return pieces
