# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Locks of this host: one process at a time works on an item, however many runs there are."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import time
import typing as t

from ...core.errors import WaitTimeout
from .paths import LOCKS, checked_id, checked_instances_path, own_folder

#: Directory of the locks of this host's storage and guests: volume groups, targets, sessions, domains. All runs share them. Only root can
#: make it, or files in it: not below /run/lock, where everybody may.
LOCK_ROOT = "/run/bootflow"

#: The places of builds, see host_place().
BUILDS = "build"

_WORK = re.compile("work-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-[0-9]+")  # the locks of at_work(): UUID, process


@contextlib.contextmanager
def host_lock(instances_path: str, name: str, timeout: float = 600.0) -> t.Iterator[None]:
    """Hold the lock ``name`` (of this host and instances_path); it ends with the process and leaves no file.

    :arg timeout: seconds to wait for another holder.
    :raises WaitTimeout: another process held it longer.
    """
    path = os.path.join(checked_instances_path(instances_path), LOCKS)
    with own_folder(path, 0o700 if instances_path == LOCK_ROOT else 0o711) as folder:
        fd = _take(folder, os.path.join(path, checked_id(name, "lock name")), timeout)
        try:
            yield
        finally:
            release(folder, name, fd)


class InheritedLock:
    """The lock ``name`` as host_lock() has it, for a process that this one starts, which inherits it.

    :raises BlockingIOError: another process holds it.
    """

    def __init__(self, instances_path: str, name: str):
        self._folder, self._name = (
            os.path.join(checked_instances_path(instances_path), LOCKS),
            checked_id(name, "lock name"),
        )
        with own_folder(self._folder) as folder:
            self._fd = take(folder, self._name, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def leave(self) -> None:
        """It is the other process's."""
        os.close(self._fd)

    def end(self) -> None:
        with own_folder(self._folder) as folder:
            release(folder, self._name, self._fd)


@contextlib.contextmanager
def host_place(instances_path: str, name: str, count: int, timeout: float = 600.0) -> t.Iterator[None]:
    """Hold one of the ``count`` places ``name`` of this host, as soon as one is free; all processes share them. 0: no limit.

    :arg timeout: seconds to wait for one.
    :raises WaitTimeout: none became free.
    """
    if count <= 0:
        yield
        return
    pause, deadline = 0.005, time.monotonic() + timeout
    with contextlib.ExitStack() as held:
        while True:
            for number in range(count):
                try:
                    held.enter_context(host_lock(instances_path, "%s-%d" % (name, number), timeout=0))
                except WaitTimeout:
                    continue
                yield
                return
            if time.monotonic() >= deadline:
                raise WaitTimeout(
                    what="release of one of the %d places %s in %s" % (count, name, instances_path),
                    seconds=int(timeout),
                    host=os.uname().nodename,
                    remedy="Other runs build on that host: wait for them, raise bootflow_build_place_timeout or"
                    " bootflow_max_concurrent_builds.",
                )
            time.sleep(pause)
            pause = min(pause * 2, 0.2)


@contextlib.contextmanager
def guest_lock(uuid: str, timeout: float = 600.0) -> t.Iterator[None]:
    """Hold the guest of an instance while it is defined, started or stopped. Others that do so wait: the ledger keeps runs that live
    from that, but the module of a run that was killed works on until it ends.

    :arg timeout: seconds to wait for another holder.
    :raises WaitTimeout: another process held it longer.

    source: Nova's utils.synchronized(instance.uuid)
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(host_lock(LOCK_ROOT, "guest-" + uuid, timeout))
        except WaitTimeout:
            raise WaitTimeout(
                what="release of guest %s by the module of another run" % uuid,
                seconds=int(timeout),
                host=os.uname().nodename,
                remedy="That run may have been killed, and its module ends later. Run the same command again then.",
            ) from None
        yield


@contextlib.contextmanager
def at_work(uuids: t.Iterable[str], check_mode: bool = False) -> t.Iterator[None]:
    """Let guests_at_work() report that this process works on the guests of these instances. Nothing waits for that.

    :raises InvalidInput: a UUID could not be a file name.
    """
    with contextlib.ExitStack() as held:
        for uuid in () if check_mode else sorted({uuid.lower() for uuid in uuids}):
            held.enter_context(host_lock(LOCK_ROOT, "work-%s-%d" % (uuid, os.getpid())))
        yield


def guests_at_work() -> set[str]:
    """Return the UUIDs of the instances on whose guests a module works now, be it one of a run that was killed."""
    uuids: set[str] = set()
    path = os.path.join(LOCK_ROOT, LOCKS)
    if not os.path.isdir(path):
        return uuids
    with own_folder(path, 0o700) as folder:
        for name in os.listdir(path):
            match = _WORK.fullmatch(name)
            if match is None:
                continue
            try:
                release(folder, name, take(folder, name, fcntl.LOCK_EX | fcntl.LOCK_NB))  # its process was killed
            except BlockingIOError:
                uuids.add(match.group(1))
    return uuids


class Offered:
    """A process offers the disks of an instance to another host, and has them open, until whoever needs them takes them back or it ends.

    It is made before that process, which inherits it.
    """

    def __init__(self, uuid: str):
        self._name = "offer-%s-%s" % (uuid.lower(), secrets.token_hex(8))
        with own_folder(os.path.join(LOCK_ROOT, LOCKS), 0o700) as folder:
            self._fd = take(folder, self._name, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def leave(self) -> None:
        """Leave the lock to the other process."""
        os.close(self._fd)

    def is_wanted_back(self) -> bool:
        """Return whether another process removed the file of the lock."""
        return os.fstat(self._fd).st_nlink == 0

    def end(self) -> None:
        """End the lock. To be called when the disks are closed."""
        with own_folder(os.path.join(LOCK_ROOT, LOCKS), 0o700) as folder:
            release(folder, self._name, self._fd)


def take_back(uuid: str, timeout: float = 15.0) -> None:
    """Have the processes end that offer the disks of this instance to another host: the run that started them is gone, or has lost the instance.

    :arg timeout: seconds to wait for them. What is open still is not removed by whoever asks.
    """
    path = os.path.join(LOCK_ROOT, LOCKS)
    if not os.path.isdir(path):
        return
    deadline = time.monotonic() + timeout
    with own_folder(path, 0o700) as folder:
        for name in os.listdir(path):
            if not name.startswith("offer-%s-" % uuid.lower()):
                continue
            with contextlib.suppress(FileNotFoundError):  # it has just ended
                fd = os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
                try:
                    os.unlink(name, dir_fd=folder)
                    _wait(fd, deadline)
                finally:
                    os.close(fd)


def _wait(fd: int, deadline: float) -> None:
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.05)


def _take(folder: int, path: str, timeout: float) -> int:
    deadline = time.monotonic() + timeout
    pause = 0.005
    while True:
        try:
            return take(folder, os.path.basename(path), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise WaitTimeout(
                    what="release of the lock %s" % path, seconds=int(timeout), host=os.uname().nodename
                ) from None
        time.sleep(pause)
        pause = min(pause * 2, 0.2)


def take(folder: int, name: str, how: int) -> int:
    """Return a descriptor with the lock ``how`` (see flock(2)) of the file ``name`` in the folder, see own_folder().

    :raises BlockingIOError: another process has it, and ``how`` does not wait.
    """
    while True:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        try:
            fcntl.flock(fd, how)
            # Not found, or another file: the previous holder removed it.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=folder, follow_symlinks=False)):
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def release(folder: int, name: str, fd: int) -> None:
    """End an exclusive lock, and remove its file while it is held: take() notices that it is gone."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    os.close(fd)
