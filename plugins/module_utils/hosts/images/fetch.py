# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copies an image from a URL or a file of this host to a new file, hashes it meanwhile, and keeps zeros sparse.

A server that ends neither its answer nor its silence costs no more than the limits say: bytes, time, and the room of the folder.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import stat
import subprocess
import sys
import tempfile
import time
import typing as t
import urllib.parse
from dataclasses import asdict, dataclass, replace

from ...core.amounts import GIB
from ...core.disks.image_checks import VMDK_CREATE_TYPES
from ...core.disks.image_urls import host_of, local_source
from ...core.errors import BootflowError, ImageDownloadFailed, ImageNotReadable, ImageUnacceptable
from ...core.image_access import ImageAccess
from ..os import command
from ..os.files import opened

#: Called with (bytes so far, bytes in all or None).
Progress = t.Callable[[int, t.Optional[int]], None]

CHUNK = 1024 * 1024
#: A server that sends less than SLOW_BYTES in SLOW_SECONDS has stalled.
SLOW_SECONDS = 60.0
SLOW_BYTES = 60 * 1024
#: Bytes that stay free in the folder, or a twentieth of a small file system.
KEPT_FREE = GIB


@dataclass(frozen=True)
class FetchLimits:
    """How much one image may cost its host, and which VMDK files it takes.

    ``declared``: bytes of the file as the catalogue says; 0, None: no limit.
    """

    max_bytes: int = 0
    seconds: float = 0
    declared: int | None = None
    vmdk_types: tuple[str, ...] = VMDK_CREATE_TYPES


UNLIMITED = FetchLimits()
OPEN = ImageAccess()


def local_path(url: str) -> str | None:
    """Return the path of a file:// URL; None for other URLs."""
    parts = urllib.parse.urlsplit(url)
    path = urllib.parse.unquote(parts.path)
    if parts.scheme.lower() != "file" or parts.netloc not in ("", "localhost") or not path.startswith("/"):
        return None
    return path


def shown_url(url: str) -> str:
    """Return the URL without password and query, which may contain a signature."""
    parts = urllib.parse.urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", ""))


def fetch(
    url: str,
    target: str,
    image_id: str,
    on_bytes: t.Callable[[bytes], t.Any],
    on_progress: Progress | None = None,
    pause: float = 1.0,
    access: ImageAccess = OPEN,
    limits: FetchLimits = UNLIMITED,
) -> int:
    """Write the content of ``url`` to the new file ``target`` (mode 0600); returns the number of bytes.

    Temporary server errors are retried while nothing was read, so ``on_bytes`` only gets the bytes of the successful
    attempt; an interrupted transfer is an error immediately.

    :raises ImageDownloadFailed: not reachable, refused, cut off, stalled, too slow, not a regular file, or a scheme other than
        http, https and file.
    :raises ImageUnacceptable: larger than the limits.
    :raises ImageNotReadable: another host has it in a store, and did not give it.
    :raises OSError: ENOSPC: larger than the room of the folder.
    """
    if host_of(url):
        raise ImageNotReadable(
            image_id=image_id,
            reason="only a store of host %s has it, and it did not come from there" % host_of(url),
            remedy="Run bootflow.compute.image_precache for the image, which says why, or export it and import the file into another store.",
        )
    copy = _Copy(url, target, image_id, on_bytes, on_progress, limits)
    scheme = urllib.parse.urlsplit(url).scheme.lower()
    if scheme == "file":
        return _fetch_file(copy)
    if scheme not in ("http", "https"):
        raise copy.failed("the scheme must be http, https or file", retryable=False)
    with _reader(copy, access, pause) as source:
        total = t.cast("t.Optional[int]", source.begin()["total"])
        done = copy.write(source.chunks(), total)
    if total is not None and done != total:
        raise copy.failed("cut off after %d of %d bytes" % (done, total))
    return done


@contextlib.contextmanager
def url_content(
    url: str,
    folder: str,
    image_id: str,
    access: ImageAccess,
    limits: FetchLimits,
    begin: int = 0,
    version: str = "",
    paths: t.Sequence[str] = (),
) -> t.Iterator[tuple[int | None, str, t.Iterator[bytes]]]:
    """The content at a URL from ``begin`` on, as (bytes of the whole file or None, its version, chunks of at most CHUNK bytes).

    :arg folder: where it is to have room. :arg version: of which what precedes ``begin`` is, see look()
    :arg paths: where Python finds the modules of the process that reads, instead of ours
    :raises ImageDownloadFailed, ImageUnacceptable, OSError: see fetch(); the file has another version than what precedes.
    """
    copy = _Copy(url, os.path.join(folder, "content"), image_id, lambda _bytes: None, None, limits)
    with contextlib.ExitStack() as stack:
        total: int | None
        if local_path(url) is not None:
            file = stack.enter_context(_opened_file(copy))
            status = os.fstat(file.fileno())
            total, current = status.st_size, "%d %d" % (status.st_size, status.st_mtime_ns)
            file.seek(begin)
            content: t.Iterator[bytes] = iter(lambda: file.read(CHUNK), b"")
        else:
            source = stack.enter_context(_reader(copy, access, 1.0, begin=begin, paths=paths))
            head = source.begin()
            total, current = head["total"], str(head.get("version") or "")
            content = source.chunks()
        if begin and not current == version != "":
            raise copy.failed("the file has changed")
        copy.add_room(begin)
        copy.check_size(total or 0)

        def chunks() -> t.Iterator[bytes]:
            done = begin
            for chunk in content:
                done += len(chunk)
                copy.check_size(done)
                copy.seconds_left()
                yield chunk
            if total is not None and done != total:
                raise copy.failed("cut off after %d of %d bytes" % (done, total))

        yield total, current, chunks()


def check_size(image_id: str, source: str, folder: str, size: int, present: int, limits: FetchLimits) -> None:
    """Whether a file of ``size`` bytes, of which the folder has some already, may come to it.

    :raises ImageUnacceptable: larger than the limits. :raises OSError: ENOSPC: larger than the room of the folder.
    """
    copy = _Copy(source, os.path.join(folder, "content"), image_id, lambda _bytes: None, None, limits)
    copy.add_room(present)
    copy.check_size(size)


def look(url: str, access: ImageAccess = OPEN, seconds: float = 30.0) -> str:
    """Ask the server for the version of a file (ETag, Last-Modified, length) without its content; "" if it reports none.

    :raises ImageDownloadFailed: it does not answer.
    """
    copy = _Copy(
        url, os.path.join(tempfile.gettempdir(), "look"), "", lambda _bytes: None, None, FetchLimits(seconds=seconds)
    )
    with _reader(copy, access, 0.1, look=True) as source:
        return str(source.begin().get("version") or "")


class _Copy:
    """One copy, with its limits."""

    def __init__(
        self,
        url: str,
        target: str,
        image_id: str,
        on_bytes: t.Callable[[bytes], t.Any],
        on_progress: Progress | None,
        limits: FetchLimits,
    ):
        self.url, self.target, self.image_id = url, target, image_id
        self._on_bytes, self._on_progress = on_bytes, on_progress
        self._limits = limits
        self._started = time.monotonic()
        file_system = os.statvfs(os.path.dirname(target))
        free = file_system.f_bavail * file_system.f_frsize
        self._room = max(0, free - min(KEPT_FREE, file_system.f_blocks * file_system.f_frsize // 20))

    def failed(self, reason: str, retryable: bool = True) -> ImageDownloadFailed:
        error = ImageDownloadFailed(image_id=self.image_id, url=shown_url(self.url), reason=reason)
        error.retryable = retryable
        return error

    def seconds_left(self) -> float:
        """Return the seconds that are left. :raises ImageDownloadFailed: none"""
        if not self._limits.seconds:
            return SLOW_SECONDS
        remaining = self._started + self._limits.seconds - time.monotonic()
        if remaining <= 0:
            error = self.failed("not complete after %g s" % self._limits.seconds)
            error.remedy = "Raise bootflow_image_fetch_timeout, or choose a faster server."
            raise error
        return remaining

    def write(self, chunks: t.Iterable[bytes], total: int | None) -> int:
        """Write the chunks, each of CHUNK bytes but the last."""
        done = 0
        zeros = bytes(CHUNK)
        self.check_size(total or 0)
        fd = os.open(self.target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            for chunk in chunks:
                self.check_size(done + len(chunk))
                self._on_bytes(chunk)
                if chunk == zeros:
                    file.seek(CHUNK, os.SEEK_CUR)
                else:
                    file.write(chunk)
                done += len(chunk)
                if self._on_progress is not None:
                    self._on_progress(done, total)
                self.seconds_left()
            file.truncate(done)
        return done

    def add_room(self, present: int) -> None:
        """The folder has so many bytes of the file already."""
        self._room += present

    def check_size(self, size: int) -> None:
        if self._limits.declared is not None and size > self._limits.declared:
            raise self._too_large(
                "the size that the catalogue says (%d bytes)" % self._limits.declared,
                "Correct its size in bootflow_images.",
            )
        if self._limits.max_bytes and size > self._limits.max_bytes:
            raise self._too_large("bootflow_image_max_gb (%g GiB)" % (self._limits.max_bytes / GIB), "Raise the limit.")
        if size > self._room:
            words = "No space left on device for %d bytes" % size
            raise OSError(errno.ENOSPC, words, os.path.dirname(self.target))

    def _too_large(self, limit: str, remedy: str) -> BootflowError:
        return ImageUnacceptable(
            image_id=self.image_id,
            reason="the file at %s is larger than %s" % (shown_url(self.url), limit),
            remedy=remedy,
        )


class Unpacked(_Copy):
    """The content of a compressed file, under the limits of a fetch; the size in the catalogue is that of the compressed file."""

    def __init__(self, path: str, target: str, image_id: str, limits: FetchLimits):
        super().__init__(
            local_source(path), target, image_id, lambda _bytes: None, None, replace(limits, declared=None)
        )

    def _too_large(self, limit: str, remedy: str) -> BootflowError:
        reason = "the content of the compressed file is larger than %s" % limit
        return ImageUnacceptable(image_id=self.image_id, reason=reason, remedy=remedy)


# --- from a file of this host -------------------------------------------------------------------------------------------


def _fetch_file(copy: _Copy) -> int:
    with _opened_file(copy) as source:
        return copy.write(iter(lambda: source.read(CHUNK), b""), os.fstat(source.fileno()).st_size)


@contextlib.contextmanager
def _opened_file(copy: _Copy) -> t.Iterator[t.BinaryIO]:
    """:raises ImageDownloadFailed: this host has no such file, or it is not a regular one."""
    path = local_path(copy.url)
    if path is None:
        raise copy.failed("not a file of this host", retryable=False)
    with contextlib.ExitStack() as stack:
        try:
            # O_NONBLOCK: opening a FIFO must not wait for a writer
            fd = stack.enter_context(opened(path, os.O_RDONLY | os.O_NONBLOCK))
        except OSError as error:
            raise copy.failed(str(error.strerror)) from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise copy.failed("not a regular file")
        yield stack.enter_context(open(fd, "rb", closefd=False))


# --- from a web server --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _reader(
    copy: _Copy, access: ImageAccess, pause: float, look: bool = False, begin: int = 0, paths: t.Sequence[str] = ()
) -> t.Iterator[_Source]:
    """Yield the content, read by a process that ends with this block. :arg look: without the content. :arg paths: see url_content()

    :raises ImageDownloadFailed: for any reason.
    """
    path = os.pathsep.join(paths or [os.path.abspath(path) for path in sys.path if path])
    from . import web  # so that Ansible copies it to the host

    reader = [sys.executable, "-S", "-c", "from %s import main; main()" % web.__name__]
    process = command.start(reader, stdin=subprocess.PIPE, cwd="/", PYTHONPATH=path, PYTHONSAFEPATH="1")
    pipes = [t.cast(t.IO[bytes], pipe) for pipe in (process.stdin, process.stdout, process.stderr)]
    try:
        with contextlib.suppress(BrokenPipeError), pipes[0]:
            pipes[0].write(
                json.dumps(
                    {"url": copy.url, "pause": pause, "access": asdict(access), "look": look, "begin": begin}
                ).encode()
            )
        yield _Source(copy, process, pipes[1].fileno(), pipes[2])
    finally:
        command.kill_group(process)
        process.wait()
        for pipe in pipes:
            pipe.close()


class _Source:
    """The output of the process that reads the image."""

    def __init__(self, copy: _Copy, process: subprocess.Popen[bytes], fd: int, errors: t.IO[bytes]):
        self._copy, self._process, self._fd, self._errors = copy, process, fd, errors
        self._poll = select.poll()  # select() takes no descriptors from 1024 on, and a process may serve more hosts
        self._poll.register(fd, select.POLLIN)
        self._buffer = b""
        self._waited, self._arrived = 0.0, 0

    def begin(self) -> dict[str, t.Any]:
        """Return the first line: the length of the content (total), and its version."""
        while b"\n" not in self._buffer:
            more = self._more()
            if not more:
                raise self._copy.failed("the process that reads it ended")
            self._buffer += more
        line, _newline, self._buffer = self._buffer.partition(b"\n")
        return t.cast("dict[str, t.Any]", json.loads(line))

    def chunks(self) -> t.Iterator[bytes]:
        """Yield the content."""
        parts, size = [self._buffer], len(self._buffer)
        while True:
            more = self._more()
            parts.append(more)
            size += len(more)
            if size >= CHUNK or not more:
                whole = b"".join(parts)
                for start in range(0, len(whole) - CHUNK + 1, CHUNK):
                    yield whole[start : start + CHUNK]
                rest = whole[len(whole) // CHUNK * CHUNK :]
                if not more:
                    if rest:
                        yield rest
                    return
                parts, size = [rest], len(rest)

    def _more(self) -> bytes:
        """Return the next bytes; none at the end of the content."""
        while True:
            began = time.monotonic()
            ready = bool(self._poll.poll(1000 * min(self._copy.seconds_left(), 1.0)))
            self._waited += time.monotonic() - began  # not the time in which the disk keeps us busy
            data = os.read(self._fd, CHUNK) if ready else b""
            self._arrived += len(data)
            if self._waited >= SLOW_SECONDS:
                if self._arrived < SLOW_BYTES and not (ready and not data):
                    raise self._copy.failed("the server sent %d bytes in %g s" % (self._arrived, SLOW_SECONDS))
                self._waited, self._arrived = 0.0, 0
            if ready:
                if not data:
                    self._check_end()
                return data

    def _check_end(self) -> None:
        """Check the end of the process. :raises ImageDownloadFailed: it failed."""
        if self._process.wait() == 0:
            return
        words = self._errors.read().decode("utf-8", "replace").strip()
        try:
            process_error = json.loads(words[words.rfind("\n") + 1 :])
        except ValueError:
            process_error = {"reason": words[-500:] or "the process that reads it ended", "retryable": True}
        raise self._copy.failed(process_error["reason"], process_error["retryable"])
