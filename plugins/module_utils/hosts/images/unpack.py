# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compressed images: unpacked to a new file within the limits of a fetch, and zeros kept sparse."""

from __future__ import annotations

import bz2
import contextlib
import lzma
import os
import subprocess
import typing as t
import zlib

from ...core.disks import image_checks
from ...core.errors import ImageUnacceptable
from ..os import command
from .fetch import CHUNK, FetchLimits, Unpacked

#: Bytes of memory that one compressed file may make us use.
_MEMORY = 512 * 1024**2


class _Decompressor(t.Protocol):
    """The protocol of the decompressors of bz2 and lzma."""

    eof: bool
    needs_input: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    """The same for gzip."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)
        self._tail, self._full = b"", False

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._tail and not self._full

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        out = self._zlib.decompress(self._tail + data, max_length)
        self._tail, self._full = self._zlib.unconsumed_tail, len(out) == max_length
        return out


_KINDS: t.Mapping[str, t.Callable[[], t.Any]] = {
    "gzip": _Gzip,
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY),
}


def compression_of(path: str) -> str:
    """Return the compression of a file; "" if it is not compressed."""
    with open(path, "rb") as file:
        return image_checks.compression_of(file.read(8))


def unpack(path: str, target: str, kind: str, image_id: str, limits: FetchLimits) -> int:
    """Write the content of the compressed file to the new file ``target`` (mode 0600); returns its bytes.

    :arg kind: see compression_of().
    :raises ImageUnacceptable: the file is damaged or cut off, or its content is larger than the limits.
    :raises OSError: ENOSPC: the content is larger than the room of the folder.
    """
    copy = Unpacked(path, target, image_id, limits)
    try:
        with contextlib.closing(_zstd(path) if kind == "zstd" else _content(path, kind)) as parts:
            return copy.write(_whole(parts), None)
    except (EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise _damaged(image_id, kind, str(error)) from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise _damaged(image_id, kind, str(error)) from None  # bz2 has no separate error


def _damaged(image_id: str, kind: str, reason: str) -> ImageUnacceptable:
    return ImageUnacceptable(
        image_id=image_id,
        reason="the file cannot be unpacked (%s): %s" % (kind, reason),
        remedy="The file is damaged or incomplete: fetch it again where it comes from.",
    )


def _content(path: str, kind: str) -> t.Generator[bytes, None, None]:
    """Yield the content in parts of at most CHUNK bytes."""
    with open(path, "rb") as file:
        data = file.read(CHUNK)
        while data:
            stream: _Decompressor = _KINDS[kind]()
            while not stream.eof:
                if stream.needs_input and not data:
                    data = file.read(CHUNK)
                    if not data:
                        raise EOFError("the file ends too early")
                yield stream.decompress(data, CHUNK)
                data = b""
            # Compressed files may be joined; zeros that fill up the last block are not content.
            data = stream.unused_data or file.read(CHUNK)
            while data and not data.strip(b"\0"):
                data = file.read(CHUNK)


def _zstd(path: str) -> t.Generator[bytes, None, None]:
    argv = [command.program("zstd", "zstd"), "--decompress", "--stdout", "--memory=%dMB" % (_MEMORY >> 20), "--", path]
    process = command.start(argv, stderr=subprocess.PIPE)
    out, errors = t.cast(t.IO[bytes], process.stdout), t.cast(t.IO[bytes], process.stderr)
    try:
        while True:
            data = out.read(CHUNK)
            if not data:
                break
            yield data
        if process.wait() != 0:
            raise ValueError(errors.read()[-300:].decode("utf-8", "replace").strip())
    finally:
        command.kill_group(process)
        process.wait()
        out.close()
        errors.close()


def _whole(parts: t.Iterable[bytes]) -> t.Iterator[bytes]:
    """Yield the parts as chunks of CHUNK bytes, the last one with the rest."""
    buffer = bytearray()
    for part in parts:
        buffer += part
        while len(buffer) >= CHUNK:
            yield bytes(buffer[:CHUNK])
            del buffer[:CHUNK]
    if buffer:
        yield bytes(buffer)


def unpacked(path: str, target: str, image_id: str, limits: FetchLimits) -> str:
    """Return ``path``, or ``target`` with its content if it is compressed.

    :raises: see unpack().
    """
    kind = compression_of(path)
    if not kind:
        return path
    with contextlib.suppress(FileNotFoundError):
        os.unlink(target)
    unpack(path, target, kind, image_id, limits)
    return target
