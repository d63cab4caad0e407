# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller sends an image to one host, by a separate connection of SSH: it is written in one place only, where it is to be."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import posixpath
import select
import shlex
import subprocess
import time
import typing as t

from ansible import constants

from ...module_utils.core import errors
from ...module_utils.core.disks.local import BASE
from ...module_utils.core.legible import legible
from ...module_utils.core.progress_lines import Pace, Speed, progress_line
from ...module_utils.core.relay.pieces import PIECE, Pieces
from ...module_utils.core.relay.talk import feed_head, relay_folder
from ..run.time_limits import end
from .file_pieces import FilePieces

CONNECTS = 30.0  # seconds that a host has to begin
SILENCE = 5.0  # seconds after which a host that takes nothing is left
ENDS = 60.0  # seconds that it has for what is on its way
AT_ONCE = 5.0  # seconds of a copy about which nothing is said

_UNCOMPRESSED = ("-o", "Compression=no")

Start = t.Callable[[t.Sequence[str]], "subprocess.Popen[bytes]"]
Report = t.Callable[[int], None]  # gets the bytes of the file that the host has


def program(host: str, variables: t.Mapping[str, t.Any], instances_path: str, image_id: str) -> list[str]:
    """The local program that takes an image for the process that receives it on a host, and first says how much of it is there.

    :arg variables: of the host, templated
    :raises HostUnreachable: its connection is not ssh, or a person has to type a password.
    """
    folder = shlex.quote(relay_folder(posixpath.join(instances_path, BASE), image_id))
    line = "cat %s/status && exec cat > %s/feed" % (folder, folder)
    become = variables.get("ansible_become", constants.DEFAULT_BECOME)
    if str(become).lower() in ("true", "yes", "1") and str(variables.get("ansible_user") or "") != "root":
        method = str(variables.get("ansible_become_method") or constants.DEFAULT_BECOME_METHOD)
        passwords = ("ansible_become_password", "ansible_become_pass", "ansible_sudo_pass")
        if method.rpartition(".")[2] != "sudo" or any(variables.get(name) for name in passwords):
            raise errors.HostUnreachable(host=host, reason="an image is sent with sudo, and without a password")
        line = "sudo -n -- /bin/sh -c %s" % shlex.quote(line)
    from ..transport import remote_programs  # of few runs

    words = remote_programs.program(host, variables, line)
    # Ansible's default compresses, which takes more time than a fast link; pieces of zeros are not sent. The first value that ssh is given counts.
    at = words.index("-o") if "-o" in words else len(words)
    return [*words[:at], *(_UNCOMPRESSED if at < len(words) else ()), *words[at:]]


def start(words: t.Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def send(
    words: t.Sequence[str], path: str, known: FilePieces, start: Start = start, report: Report = lambda done: None
) -> str:
    """Send what a host lacks of a file. Returns why it did not get all of it; "": it did.

    :arg words: see program(). :arg report: is called after each piece
    """
    process = start(words)
    inward, outward = t.cast(t.IO[bytes], process.stdin), t.cast(t.IO[bytes], process.stdout)
    try:
        reached = _reached(outward)
        if reached is None:
            return "it does not receive the image"
        begin = min(reached, known.pieces.size or 0) // PIECE * PIECE
        os.set_blocking(inward.fileno(), False)
        head = feed_head(begin, known.pieces.size or 0, known.pieces.digests(0, len(known.pieces)))
        with open(path, "rb") as file:
            for end_of_piece, data in itertools.chain([(begin, head)], _data(file, known.pieces, begin // PIECE)):
                if not _write(inward.fileno(), data):
                    return "it took nothing for %d s" % SILENCE
                report(end_of_piece)
        inward.close()
        return "" if process.wait(ENDS) == 0 else "the connection ended"
    except (BrokenPipeError, subprocess.TimeoutExpired):
        return "the connection ended"
    finally:
        with contextlib.suppress(OSError):
            inward.close()
        if process.poll() is None:
            end([process.pid])
        process.wait()
        outward.close()


def reporter(subject: str, size: int, say: t.Callable[[str], None]) -> Report:
    """Return a function for send() that says how far a copy is, where it takes longer than a moment.

    :arg size: of the file, in bytes. :arg say: gets the lines
    """
    pace, speed, begun = Pace(), Speed(), time.monotonic()

    def report(done: int) -> None:
        now = time.monotonic()
        if now - begun < AT_ONCE or not size:
            return
        percent = 100 * done // size
        if pace.is_due(percent, now):
            remaining = "%d of %d MiB" % ((size - done) >> 20, size >> 20)
            say(legible(progress_line(subject, percent, now - begun, remaining, speed.since_last(done, now))))

    return report


def _data(file: t.IO[bytes], pieces: Pieces, first: int) -> t.Iterator[tuple[int, bytes]]:
    """Yield the pieces of a file, but for pieces of zeros, each with the place in the file at which it ends."""
    for number in range(first, len(pieces)):
        if not pieces.is_zero(number):
            file.seek(number * PIECE)
            data = file.read(PIECE)
            yield number * PIECE + len(data), data


def _reached(outward: t.IO[bytes]) -> int | None:
    """Return the bytes that the host has; None: no answer."""
    text, until = b"", time.monotonic() + CONNECTS
    while b"}\n" not in text and len(text) < 1024**2:
        seconds = until - time.monotonic()
        if seconds <= 0 or not select.select([outward], [], [], seconds)[0]:
            return None
        more = os.read(outward.fileno(), 65536)
        if not more:
            return None
        text += more
    for line in text.splitlines():  # a shell of the login may have greeted before
        with contextlib.suppress(ValueError):
            status = json.loads(line)
            if isinstance(status, dict) and isinstance(status.get("bytes"), int) and status["bytes"] >= 0:
                return t.cast(int, status["bytes"])
    return None


def _write(fd: int, data: bytes) -> bool:
    """Write all of it. Returns whether the other side took something every few seconds."""
    view = memoryview(data)
    while view:
        if not select.select([], [fd], [], SILENCE)[1]:
            return False
        with contextlib.suppress(BlockingIOError):
            view = view[os.write(fd, view) :]
    return True
