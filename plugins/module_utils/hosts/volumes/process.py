# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Long-running programs that write a volume: they end with their run, and report their progress.

A program that outlived its run would continue to write while the next run creates the same volume again.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import threading
import time
import typing as t

from ...core.errors import CommandFailed
from ..os import command
from ..os.files import read_json, write_json
from ..os.paths import checked_id, make_dirs

#: Directory of progress files. A restart of the host removes them, as it ends the work.
PROGRESS = "/run/bootflow/progress"

#: Called with percent done, 0 to 100.
OnPercent = t.Callable[[float], None]

_PERCENT = re.compile(rb"\(\s*([0-9.]+)/100%\)")


def run_tied(argv: t.Sequence[str], on_percent: OnPercent | None = None, timeout: float | None = None) -> str:
    """Run ``argv`` and return its output. The program is killed when this process ends for any reason.

    :arg on_percent: called with the percentages that ``qemu-img -p`` prints.
    :raises CommandFailed: the program failed, or did not finish within ``timeout`` seconds.
    """
    process = _start(argv)
    stdout, stderr = t.cast(t.IO[bytes], process.stdout), t.cast(t.IO[bytes], process.stderr)
    late = threading.Event()

    def end() -> None:
        late.set()
        command.kill_group(process)

    timer = threading.Timer(timeout, end) if timeout else None
    errors: list[bytes] = []
    reader = threading.Thread(target=lambda: errors.append(stderr.read()), daemon=True)
    try:
        if timer is not None:
            timer.daemon = True
            timer.start()
        reader.start()
        out = _read(t.cast(io.BufferedReader, stdout), on_percent)
        rc = process.wait()
        reader.join()
    except BaseException:
        command.kill_group(process)
        process.wait()
        raise
    finally:
        if timer is not None:
            timer.cancel()
        stdout.close()
    said = b"".join(errors).decode("utf-8", "replace").strip()
    stderr.close()
    if rc != 0:
        if late.is_set():
            said += " killed: not finished after %d s" % int(timeout or 0)
            raise CommandFailed(cmd=os.path.basename(argv[0]), rc=rc, stderr=said[-2000:])
        raise command.failed(argv, rc, said)
    return out.decode("utf-8", "replace")


@contextlib.contextmanager
def tied_lines(argv: t.Sequence[str]) -> t.Iterator[t.Iterator[bytes]]:
    """Yield the output lines of ``argv`` as they are printed; the program is killed if the caller stops reading.

    :raises CommandFailed: the program failed, after its last line.
    """
    process = _start(argv, errors=subprocess.DEVNULL)
    stdout = t.cast(t.IO[bytes], process.stdout)

    def lines() -> t.Iterator[bytes]:
        yield from stdout
        rc = process.wait()
        if rc != 0:
            raise CommandFailed(cmd=os.path.basename(argv[0]), rc=rc, stderr="")

    try:
        yield lines()
    finally:
        command.kill_group(process)
        process.wait()
        stdout.close()


def _start(argv: t.Sequence[str], errors: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    return command.start(command.tied(argv), stderr=errors)


def _read(stdout: io.BufferedReader, on_percent: OnPercent | None) -> bytes:
    tail = b""
    while True:
        chunk = stdout.read1(65536)
        if not chunk:
            return tail
        tail = (tail + chunk)[-65536:]
        if on_percent is not None:
            numbers = _PERCENT.findall(chunk)
            if numbers:
                on_percent(float(numbers[-1]))


class Steps:
    """Progress of a volume or image in a small file that storage_backend_info reads; removed when the work is done."""

    def __init__(self, item_id: str):
        make_dirs(PROGRESS, 0o700)
        self._item = checked_id(item_id)
        self._path = os.path.join(PROGRESS, self._item + ".json")
        self._step = ""
        self._written = 0.0

    def at(self, step: str, percent: float = 0.0) -> None:
        """Write the percentage, at most once per second, and with each new step."""
        now = time.monotonic()
        if step == self._step and now - self._written < 1.0:
            return
        self._step, self._written = step, now
        with contextlib.suppress(OSError):
            data = {
                "id": self._item,
                "step": step,
                "percent": round(percent, 1),
                "pid": os.getpid(),
                "at": int(time.time()),
            }
            write_json(self._path, data)

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, *dummy_args: object) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)


def work_at_hand() -> list[dict[str, t.Any]]:
    """Return the current progress of all runs of this host; leftovers of killed runs are ignored."""
    progress_of_runs = []
    try:
        names = sorted(os.listdir(PROGRESS))
    except FileNotFoundError:
        return []
    for name in names:
        data = read_json(os.path.join(PROGRESS, name))
        if isinstance(data, dict) and os.path.exists("/proc/%s" % data.get("pid")):
            progress_of_runs.append(data)
    return progress_of_runs
