# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copies an image from a URL or a file of this host to a new file, hashes it meanwhile, and keeps zeros sparse."""

from __future__ import annotations

import http.client
import os
import stat
import time
import typing as t
import urllib.error
import urllib.parse
import urllib.request

from ...core.errors import ImageDownloadFailed

#: Called with (bytes so far, bytes in all or None).
Progress = t.Callable[[int, t.Optional[int]], None]

CHUNK = 1024 * 1024
SOCKET_TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 3


def local_source(path: str) -> str:
    """A path of this host as a file:// URL."""
    return "file://" + urllib.parse.quote(path)


def local_path(url: str) -> str | None:
    """The path of a file:// URL; None for other URLs."""
    parts = urllib.parse.urlsplit(url)
    path = urllib.parse.unquote(parts.path)
    if parts.scheme.lower() != "file" or parts.netloc not in ("", "localhost") or not path.startswith("/"):
        return None
    return path


def shown_url(url: str) -> str:
    """The URL without password and query, which may contain a signature."""
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
) -> int:
    """Write the content of ``url`` to the new file ``target`` (mode 0600); returns the number of bytes.

    Temporary server errors are retried while nothing was read, so ``on_bytes`` only gets the bytes of the successful
    attempt; an interrupted transfer is an error immediately.

    :raises ImageDownloadFailed: not reachable, refused, cut off, not a regular file, or a scheme other than
        http, https and file.
    """
    scheme = urllib.parse.urlsplit(url).scheme.lower()
    if scheme == "file":
        return _fetch_file(url, target, image_id, on_bytes, on_progress)
    if scheme not in ("http", "https"):
        raise _failed(image_id, url, "the scheme must be http, https or file", retryable=False)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            response = _opener().open(_request(url), timeout=SOCKET_TIMEOUT)
            break
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500 or attempt == ATTEMPTS:
                raise _failed(image_id, url, "HTTP %d %s" % (error.code, error.reason)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            if attempt == ATTEMPTS or isinstance(error, ValueError):
                raise _failed(image_id, url, str(getattr(error, "reason", error))) from None
        time.sleep(pause)
    with response:
        length = response.headers.get("Content-Length")
        total = int(length) if length and length.isdigit() else None
        try:
            done = _copy(response, target, total, on_bytes, on_progress)
        except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
            raise _failed(image_id, url, "cut off: %s" % error) from None
    if total is not None and done != total:
        raise _failed(image_id, url, "cut off after %d of %d bytes" % (done, total))
    return done


def _fetch_file(
    url: str, target: str, image_id: str, on_bytes: t.Callable[[bytes], t.Any], on_progress: Progress | None
) -> int:
    path = local_path(url)
    if path is None:
        raise _failed(image_id, url, "not a file of this host", retryable=False)
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _failed(image_id, url, str(error.strerror)) from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise _failed(image_id, url, "not a regular file")
        source = os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise
    with source:
        return _copy(source, target, status.st_size, on_bytes, on_progress)


def _copy(
    source: t.Any,
    target: str,
    total: int | None,
    on_bytes: t.Callable[[bytes], t.Any],
    on_progress: Progress | None,
) -> int:
    done = 0
    zeros = bytes(CHUNK)
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        while True:
            chunk = source.read(CHUNK)
            if not chunk:
                break
            on_bytes(chunk)
            if chunk == zeros:
                file.seek(CHUNK, os.SEEK_CUR)
            else:
                file.write(chunk)
            done += len(chunk)
            if on_progress is not None:
                on_progress(done, total)
        file.truncate(done)
    return done


def _opener() -> urllib.request.OpenerDirector:
    """Uses the proxies of the environment; redirects to files of the host or to FTP are not possible."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.UnknownHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    return opener


def _request(url: str) -> urllib.request.Request:
    parts = urllib.parse.urlsplit(url)
    headers = {"User-Agent": "bootflow.compute", "Accept-Encoding": "identity"}
    if parts.username is not None:
        import base64

        words = "%s:%s" % (urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or ""))
        headers["Authorization"] = "Basic " + base64.b64encode(words.encode()).decode()
        url = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return urllib.request.Request(url, headers=headers)


def _failed(image_id: str, url: str, reason: str, retryable: bool = True) -> ImageDownloadFailed:
    error = ImageDownloadFailed(image_id=image_id, url=shown_url(url), reason=reason)
    error.retryable = retryable
    return error
