# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of an image while it arrives, piece by piece in order: no piece is kept, or given on, that is not the image's."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
import typing as t

from ...core.relay.pieces import PIECE, ZEROS, Pieces, count

_VERSION = "user.bootflow.version"  # attribute of the file: see images.fetch.look()


class WrongPiece(Exception):
    """The data that arrived are not the image's."""


class Store:
    """An open file. Threads add to it, and others read from it; ``changed`` tells them.

    ``have``: pieces that are there, and right
    """

    def __init__(self, fd: int, is_ours: bool = True):
        """:arg is_ours: the file is written; else it is a whole one that is only read"""
        self.fd = fd
        self._is_ours = is_ours
        self.pieces = Pieces()
        self.changed = threading.Condition()
        self.have = 0
        self.version = self._saved_version()
        self._left_size = os.fstat(fd).st_size  # bytes that an earlier run has left
        self._digest = hashlib.sha256()
        self._writes = threading.RLock()  # one thread at a time

    @property
    def is_whole(self) -> bool:
        return self.pieces.size is not None and self.have == count(self.pieces.size)

    @property
    def size(self) -> int:
        """Bytes that are there, and right."""
        return min(self.have * PIECE, self.pieces.size if self.pieces.size is not None else self.have * PIECE)

    def sha256(self) -> str:
        """Return the SHA-256 of the pieces that the file has."""
        return self._digest.hexdigest()

    # --- what the file is to have ---------------------------------------------------------------------------------------

    def expect(self, pieces: Pieces) -> None:
        """These are all pieces of the file. What an earlier run has left of it stays."""
        with self.changed:
            self.pieces = pieces
            self.changed.notify_all()
        self.keep_left()

    def learn(self, digests: bytes, size: int | None = None) -> None:
        """Note the next pieces of the file. :arg size: bytes of the file; None: more follow. :raises WrongPiece: they cannot be its pieces"""
        try:
            with self.changed:
                self.pieces.add(digests)
                if size is not None:
                    self.pieces.end(size)
                    self._end_file()
                self.changed.notify_all()
        except ValueError as error:
            raise WrongPiece(str(error)) from None
        self.keep_left()

    # --- what it has ------------------------------------------------------------------------------------------------------

    def keep_left(self) -> None:
        """Take over what an earlier run has left, as far as it is right and its pieces are known. The rest goes when other data come."""
        with self._writes:
            while self._left_size > self.have * PIECE and self.have < len(self.pieces):
                number = self.have
                data = os.pread(self.fd, self.pieces.length(number), number * PIECE)
                if not self.pieces.is_right(number, data):
                    self._left_size = 0
                    return
                self._count(data)

    @property
    def reusable(self) -> int:
        """Bytes of the whole pieces that an earlier run has left, without the last one, which may be the file's."""
        return max(0, self._left_size - 1) // PIECE * PIECE

    def keep_all_left(self, end: int) -> None:
        """Take over all of it until ``end``: whoever asks compares the whole file later."""
        while self.have * PIECE < end:
            data = os.pread(self.fd, PIECE, self.have * PIECE)
            self.learn(hashlib.sha256(data).digest())

    def own(self, digest: bytes, size: int | None) -> None:
        """The next piece of a file that is only read. :arg size: bytes of the file, with the last piece"""
        with self.changed:
            self.pieces.add(digest)
            if size is not None:
                self.pieces.end(size)
            self.have += 1
            self.changed.notify_all()

    def add(self, number: int, data: bytes) -> None:
        """A piece has arrived; another thread may have added it before.

        :raises WrongPiece: it is not the image's. :raises OSError: it cannot be written.
        """
        if number >= len(self.pieces) or not self.pieces.is_right(number, data):
            raise WrongPiece("piece %d is wrong" % number)
        with self._writes:
            if number < self.have:
                return
            if number > self.have:
                raise WrongPiece("piece %d after %d" % (number, self.have))
            if data == ZEROS:
                self._lengthen(number)
            else:
                self._write(data, number * PIECE)
            self._left_size = 0
            self._count(data)

    def begin_anew(self, version: str) -> None:
        """Forget what is there. :arg version: of the file that comes"""
        with self._writes, self.changed:
            os.ftruncate(self.fd, 0)
            self.pieces, self.have, self._left_size, self._digest = Pieces(), 0, 0, hashlib.sha256()
        self.note_version(version)

    def note_version(self, version: str) -> None:
        """A later run may go on where this one ends if the file has the same version then."""
        self.version = version
        with contextlib.suppress(OSError):  # the file system keeps no attributes
            os.setxattr(self.fd, _VERSION, version.encode())

    def wait(self, ready: t.Callable[[], bool], seconds: float) -> bool:
        """Wait until something is so. Returns whether it is."""
        with self.changed:
            return self.changed.wait_for(ready, seconds)

    def read(self, number: int) -> bytes:
        """A piece that is there."""
        return os.pread(self.fd, self.pieces.length(number), number * PIECE)

    def _saved_version(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            return os.getxattr(self.fd, _VERSION).decode()
        return ""

    def _lengthen(self, number: int) -> None:
        """A hole, for a piece of zeros."""
        end = number * PIECE
        if os.fstat(self.fd).st_size > end:
            os.ftruncate(self.fd, end)  # what an earlier run has left there
        os.ftruncate(self.fd, end + PIECE)

    def _write(self, data: bytes, offset: int) -> None:
        view = memoryview(data)
        while view:
            done = os.pwrite(self.fd, view, offset)
            if not done:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            view, offset = view[done:], offset + done

    def _count(self, data: bytes) -> None:
        """The next piece is there."""
        self._digest.update(data)
        with self.changed:
            self.have += 1
            self._end_file()
            self.changed.notify_all()

    def _end_file(self) -> None:
        if self.is_whole and self._is_ours:
            os.ftruncate(self.fd, self.pieces.size or 0)
