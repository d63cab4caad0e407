# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs on this host: argument lists, never a shell, in their own session, optionally under limits."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import typing as t
from dataclasses import dataclass
from types import MappingProxyType

from ...core.errors import OUT_OF_MEMORY, CommandFailed, DiskFull, MissingLibrary

#: Exit code of a program that did not end in time (as of timeout(1)).
TIMED_OUT = 124

#: Seconds that a killed program has to end. A program in a system call ends when the call returns, which may be never.
GRACE = 10.0

# For hosts without util-linux's prlimit. preexec_fn would do the same but is not safe in a process with threads.
_LIMITER = (
    "import os, resource, sys\n"
    "cpu, memory = int(sys.argv[1]), int(sys.argv[2])\n"
    "if cpu: resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))\n"
    "if memory: resource.setrlimit(resource.RLIMIT_AS, (memory, memory))\n"
    "os.execvp(sys.argv[3], sys.argv[3:])\n"
)


# prctl(PR_SET_PDEATHSIG, SIGKILL) holds over exec; the parent may have died before it.
_TIED = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None, use_errno=True).prctl(1, 9, 0, 0, 0)\n"
    "if os.getppid() != int(sys.argv[1]): sys.exit(143)\n"
    "os.execvp(sys.argv[2], sys.argv[2:])\n"
)


@dataclass(frozen=True)
class Completed:
    """Result of a program: exit code (negative: killed by that signal), stdout and stderr."""

    rc: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class User:
    """The user and the groups that a process runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Limits:
    """Limits of one process: CPU time in seconds, address space in bytes; 0 means no limit."""

    cpu_seconds: int = 0
    address_space: int = 0


#: Limits for programs that read untrusted images. source: Nova's QEMU_IMG_LIMITS
UNTRUSTED_IMAGE = Limits(cpu_seconds=30, address_space=1024**3)


# What runs now. The lock is held while a program starts: one that is not among them yet could not be killed.
_running: set[subprocess.Popen[bytes]] = set()
_starting = threading.Lock()


def _forget_lock() -> None:
    """Replace the lock in a child process, whose parent may have been starting a program in another thread."""
    global _starting
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def program(name: str, package: str) -> str:
    """Return the path of ``name``.

    :raises MissingLibrary: the program is not installed; the remedy names the Debian ``package``.
    """
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin")
    if path is None:
        raise MissingLibrary(name=name, package=package, where="host")
    return path


def limited(argv: t.Sequence[str], limits: Limits) -> list[str]:
    """Return ``argv`` with a prefix that applies ``limits``."""
    if not limits.cpu_seconds and not limits.address_space:
        return list(argv)
    prlimit = shutil.which("prlimit")
    if prlimit is None:
        return [sys.executable, "-c", _LIMITER, str(limits.cpu_seconds), str(limits.address_space)] + list(argv)
    options = [("--cpu=%d", limits.cpu_seconds), ("--as=%d", limits.address_space)]
    return [prlimit, *(option % most for option, most in options if most), "--", *argv]


def tied(argv: t.Sequence[str]) -> list[str]:
    """Return ``argv`` with a prefix that has the kernel kill the program when this process, or the thread that starts it, ends for any reason."""
    return [sys.executable, "-I", "-c", _TIED, str(os.getpid()), *argv]


def start(
    argv: t.Sequence[str],
    stdin: int = subprocess.DEVNULL,
    stdout: int | t.IO[bytes] = subprocess.PIPE,
    stderr: int | t.IO[bytes] = subprocess.PIPE,
    cwd: str | None = None,
    descriptors: t.Mapping[str, int] = MappingProxyType({}),
    user: User | None = None,
    **environment: str,
) -> subprocess.Popen[bytes]:
    """Start ``argv`` in a separate session, with the C locale and ``environment`` in addition to this process's variables.

    :arg descriptors: file descriptors that the program inherits, by the names of the environment variables with their numbers.
    :arg user: whom the program runs as; None: the user of this process. Only root can become another one.

    Every program that runs on a host is started here: AnsibleModule.run_command has no limit of time, and no streams to read meanwhile.
    """
    return subprocess.Popen(  # pylint: disable=ansible-bad-function
        argv,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        pass_fds=tuple(descriptors.values()),
        env={**os.environ, "LC_ALL": "C", "LANG": "C", **environment, **{k: str(v) for k, v in descriptors.items()}},
        start_new_session=True,
        user=user.uid if user else None,
        group=user.gid if user else None,
        extra_groups=user.groups if user else None,
    )


def run(
    argv: t.Sequence[str],
    limits: Limits = Limits(),
    timeout: float | None = None,
    check: bool = True,
    path: str = "",
    stdin: str = "",
    outlives: bool = True,
    report: str = "",
) -> Completed:
    """Run ``argv`` and wait for it, at most ``timeout`` seconds (then its whole process group is killed).

    A process that does not end even then is left behind, and the result says so.

    :arg path: the file that the program writes, for the message of DiskFull.
    :arg stdin: the input of the program.
    :arg outlives: false: the program ends when this process is killed. For all that writes or reads for long: it would have disks in use that
        the next module starts a guest with, or removes. Not for what the kernel or LVM has in hand meanwhile.
    :arg report: the environment variable in which the program expects the number of a file descriptor for its report. ``stdout`` of the
        result is that report then, and ``stderr`` has all other output.
    :raises DiskFull: the program failed because no space was left.
    :raises CommandFailed: the program failed; only with ``check``.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(os.memfd_create("report"), "rb")) if report else None
        done = _run(limited(argv, limits), timeout, stdin, outlives, {report: file.fileno()} if file else {})
        if file:
            file.seek(0)
            done = Completed(done.rc, file.read().decode("utf-8", "replace"), done.stderr + done.stdout)
    if check and done.rc != 0:
        reason = done.stderr.strip() or done.stdout.strip()
        if "No space left on device" in reason or "Disk quota exceeded" in reason:
            raise DiskFull(host=socket.gethostname(), path=path or argv[-1], reason=reason[-500:])
        raise failed(argv, done.rc, reason)
    return done


def _run(
    argv: t.Sequence[str], timeout: float | None, stdin: str, outlives: bool, descriptors: t.Mapping[str, int]
) -> Completed:
    """Run ``argv`` to its end, at most ``timeout`` seconds. See run() and start() for the arguments."""
    try:
        with _starting:
            process = start(
                argv if outlives else tied(argv),
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                descriptors=descriptors,
            )
            _running.add(process)
    except FileNotFoundError:
        raise CommandFailed(cmd=argv[0], rc=127, stderr="not found") from None
    try:
        out, err = process.communicate(stdin.encode() or None, timeout=timeout)
        rc = process.returncode
    except subprocess.TimeoutExpired:
        out, err = _end(process)
        rc = TIMED_OUT
        err = b"killed: not finished after %d s%s" % (int(timeout or 0), err)
    except BaseException:
        _end(process)
        raise
    finally:
        _running.discard(process)
    return Completed(rc, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def failed(argv: t.Sequence[str], rc: int, reason: str) -> CommandFailed:
    """Return the error of a program that ended with ``rc`` by itself."""
    killed = rc == -signal.SIGKILL
    return CommandFailed(
        cmd=os.path.basename(argv[0]),
        rc=rc,
        stderr=(reason or ("killed (SIGKILL)" if killed else ""))[-2000:],
        remedy=OUT_OF_MEMORY if killed else None,
    )


def kill_all() -> None:
    """Kill the process groups of all programs that run now. No other one starts: this process ends next."""
    _starting.acquire(timeout=GRACE)  # and never released
    for process in list(_running):
        kill_group(process)


def _end(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Kill the process group; returns the output so far, and a text about the end."""
    kill_group(process)
    try:
        out, err = process.communicate(timeout=GRACE)
    except subprocess.TimeoutExpired as late:
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        alive = process.poll() is None
        why = b"the kernel holds process %d" % process.pid if alive else b"what it started has its output open"
        return late.output or b"", b"; " + why
    return out, b"; " + err if err else b""


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the program and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
