# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read one image from a web server, in a separate process, see fetch.py.

A separate process can be ended whatever the server does, and Ansible's open_url installs its opener for the whole process: in
threads the certificate rules of one image would hold for another.

stdin: JSON {url, pause, access, look, begin}. stdout: a line of JSON {total: bytes or null, version}, then the content from the byte ``begin`` on
unless ``look``. After a failure: exit code 1, and a line of JSON {reason, retryable} on stderr.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
import time
import typing as t
import urllib.error
import urllib.parse

from ansible.module_utils.urls import open_url

ATTEMPTS = 3
REDIRECTS = 10
TIMEOUT = 30.0  # seconds of one connect, or of one read
CHUNK = 1024 * 1024
_PORTS = {"http": 80, "https": 443}
_FILES = ("ca_path", "client_cert", "client_key")


class Refused(Exception):
    """The image cannot be read. ``retryable``: another host may read it."""

    def __init__(self, reason: str, retryable: bool = True):
        super().__init__(reason)
        self.retryable = retryable


def main() -> None:
    """Read the task from stdin, and do it."""
    task = json.load(sys.stdin)
    try:
        for name in _FILES:
            if task["access"][name] and not os.path.isfile(task["access"][name]):
                raise Refused("%s %s is not a file of this host" % (name, task["access"][name]))
        begin = int(task.get("begin") or 0)
        if begin:
            task["access"]["headers"] = {**task["access"]["headers"], "Range": "bytes=%d-" % begin}
        _send(_patiently(task["url"], task["access"], task["pause"]), bool(task.get("look")), begin)
    except (OSError, ValueError, http.client.HTTPException, Refused) as error:
        reason = str(getattr(error, "reason", "") or error) or type(error).__name__
        json.dump({"reason": reason, "retryable": getattr(error, "retryable", True)}, sys.stderr)
        raise SystemExit(1) from error


def _patiently(url: str, access: t.Mapping[str, t.Any], pause: float) -> t.Any:
    """Return the response. Temporary errors are retried, while nothing was read."""
    attempt = 1
    while True:
        try:
            return _open(url, access)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500 or attempt == ATTEMPTS:
                raise Refused("HTTP %d %s" % (error.code, error.reason)) from None
        except (OSError, http.client.HTTPException) as error:
            if attempt == ATTEMPTS or isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError):
                raise
        time.sleep(pause)
        attempt += 1


def _open(url: str, access: t.Mapping[str, t.Any]) -> t.Any:
    """Return the response, after redirects. What identifies us to one server is not sent to another, nor without TLS."""
    at, ours = url, True
    for _redirect in range(REDIRECTS):
        try:
            return open_url(
                at,
                headers={"Accept-Encoding": "identity", **(access["headers"] if ours else {})},
                http_agent="bootflow.compute",
                timeout=TIMEOUT,
                use_proxy=access["use_proxy"],
                validate_certs=access["validate_certs"],
                ca_path=access["ca_path"] or None,
                client_cert=(access["client_cert"] or None) if ours else None,
                client_key=(access["client_key"] or None) if ours else None,
                url_username=(access["url_username"] or None) if ours else None,
                url_password=(access["url_password"] or None) if ours else None,
                force_basic_auth=True,
                follow_redirects="none",
                decompress=False,
            )
        except urllib.error.HTTPError as error:
            target = error.headers.get("Location")
            if error.code not in (301, 302, 303, 307, 308) or not target:
                raise
            error.close()
            next_url = urllib.parse.urljoin(at, target)
            _check_redirect(at, next_url, error.code)
            at, ours = next_url, ours and _server(next_url) == _server(url)
    raise Refused("more than %d redirects" % REDIRECTS)


def _check_redirect(at: str, next_url: str, code: int) -> None:
    current_scheme, scheme = urllib.parse.urlsplit(at).scheme.lower(), urllib.parse.urlsplit(next_url).scheme.lower()
    if scheme not in _PORTS:
        raise Refused("the server redirects (HTTP %d) to a URL that is not http or https" % code, retryable=False)
    if current_scheme == "https" and scheme == "http":
        raise Refused("the server redirects (HTTP %d) from https to http" % code, retryable=False)


def _server(url: str) -> tuple[str, t.Optional[str], t.Optional[int]]:
    parts = urllib.parse.urlsplit(url)
    scheme = parts.scheme.lower()
    return scheme, parts.hostname, parts.port or _PORTS.get(scheme)


def _send(response: t.Any, look: bool = False, begin: int = 0) -> None:
    """Write the response to stdout as it comes. :arg look: its first line only. :arg begin: the byte of the file from which on"""
    length = response.headers.get("Content-Length")
    total = int(length) if length and length.isdigit() else None
    if begin and response.status == 206:
        sent = str(response.headers.get("Content-Range") or "")
        if not sent.startswith("bytes %d-" % begin):
            raise Refused("HTTP 206: the server sent another part of the file")
        total, skipped = None if total is None else begin + total, begin
    elif response.status == 200:
        skipped = 0
    else:
        raise Refused("HTTP %d: the server sent a part of the file, or something else" % response.status)
    out = sys.stdout.buffer
    words = [response.headers.get(name) for name in ("ETag", "Last-Modified")]
    version = json.dumps([*words, total]) if any(words) else ""
    out.write(json.dumps({"total": total, "version": version}).encode() + b"\n")
    out.flush()
    if look:
        return
    remaining = None if total is None else total - skipped
    while remaining is None or remaining > 0:
        chunk = response.read1(CHUNK if remaining is None else min(CHUNK, remaining))
        if not chunk:
            break
        out.write(chunk[max(0, begin - skipped) :])
        out.flush()
        skipped = min(begin, skipped + len(chunk))
        remaining = None if remaining is None else remaining - len(chunk)
