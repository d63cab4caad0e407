# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The form in which a file goes from host to host: its size, then what is not a hole, then the SHA-256 of all that.

What arrives is input: every number is checked before it is used.
"""

from __future__ import annotations

import array
import errno
import hashlib
import hmac
import json
import os
import stat
import struct
import typing as t

CHUNK = 1024**2
SECTOR = 512  # bytes; what is not a hole begins and ends at one, or at the end of the file
LONGEST_LINE = 4096
_FRAME = struct.Struct(">QI")  # offset and length in bytes; a length of 0 ends the file
_ZEROS = bytes(CHUNK)


class Garbled(Exception):
    """The data was changed on the way, or does not have this form."""


class Stream(t.Protocol):
    """A connection, as socket.makefile("rwb") gives it."""

    def read(self, size: int, /) -> bytes: ...

    def readline(self, size: int, /) -> bytes: ...

    def write(self, data: bytes, /) -> int: ...

    def flush(self) -> None: ...


def send_line(stream: Stream, data: t.Mapping[str, t.Any]) -> None:
    stream.write(json.dumps(data).encode() + b"\n")
    stream.flush()


def read_line(stream: Stream) -> dict[str, t.Any]:
    """Read a mapping. :raises Garbled: it is not a mapping, too long, or the other side is gone."""
    line = stream.readline(LONGEST_LINE)
    try:
        data = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise Garbled("the connection ended" if not line else "not a line of JSON")
    return data


def send_file(stream: Stream, fd: int, size: int) -> None:
    """Send the data of an open file of ``size`` bytes: holes, and blocks of zeros, are left out."""
    digest = hashlib.sha256()
    for begin, end in _extents(fd, size):
        for offset in range(begin, end, CHUNK):
            data = os.pread(fd, min(CHUNK, end - offset), offset)
            if data and data != _ZEROS[: len(data)]:
                head = _FRAME.pack(offset, len(data))
                digest.update(head)
                digest.update(data)
                stream.write(head)
                stream.write(data)
    stream.write(_FRAME.pack(size, 0))
    stream.write(digest.digest())
    stream.flush()


def _extents(fd: int, size: int) -> t.Iterator[tuple[int, int]]:
    """Yield (begin, end) of each part that is not a hole."""
    position = 0
    while position < size:
        try:
            begin = os.lseek(fd, position, os.SEEK_DATA)
            end = os.lseek(fd, begin, os.SEEK_HOLE)
        except OSError as e:
            if e.errno == errno.ENXIO:  # only a hole is left
                return
            begin, end = position, size  # the file system knows no holes
        yield begin, min(end, size)
        position = end


def receive_file(
    stream: Stream, fd: int, size: int, expected: int | None = None, check_rest: t.Callable[[int], None] | None = None
) -> str:
    """Write what arrives to a new, empty file of ``size`` bytes, or to a device of zeros. Returns its SHA-256, which was compared with
    the sender's, and with what the file has.

    :arg expected: bytes of data that the sender has announced. :arg check_rest: called before more than these are written, with all bytes that may
        still come; raises where they have no room
    :raises Garbled: it is not the whole file. :raises OSError: of the file, or of the connection.
    """
    if stat.S_ISREG(os.fstat(fd).st_mode):
        os.ftruncate(fd, size)
    frames = array.array("Q")  # offset and length of each: the sender decides how many there are
    digest, reached, written_bytes = hashlib.sha256(), 0, 0
    while True:
        head = _exactly(stream, _FRAME.size)
        offset, length = _FRAME.unpack(head)
        if length == 0:
            break
        if length > CHUNK or offset < reached or offset + length > size:
            raise Garbled("data beyond the end, or twice")
        if offset % SECTOR or (length % SECTOR and offset + length != size):
            raise Garbled("data that is not whole sectors")
        written_bytes += length
        if expected is not None and check_rest is not None and written_bytes > expected:
            check_rest(size - offset)
            expected = None  # all that may still come has room
        data = _exactly(stream, length)
        digest.update(head)
        digest.update(data)
        _write(fd, data, offset)
        frames.extend((offset, length))
        reached = offset + length
    if offset != size or not hmac.compare_digest(_exactly(stream, digest.digest_size), digest.digest()):
        raise Garbled("the checksum differs")
    os.fsync(fd)
    written = hashlib.sha256()
    for offset, length in zip(frames[::2], frames[1::2]):
        written.update(_FRAME.pack(offset, length))
        written.update(os.pread(fd, length, offset))
    if written.digest() != digest.digest():
        raise Garbled("what was written differs")
    return digest.hexdigest()


def _write(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done


def _exactly(stream: Stream, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise Garbled("the connection ended")
    return data
