# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of the module image_relay: start the processes that distribute images, tell them whom to ask, and wait for their end."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
import typing as t

from ...core.errors import BootflowError, DiskFull, ImageDownloadFailed, ImageNotReadable, InvalidInput, from_dict
from ...core.relay.talk import RECEIVES
from ..copies.server import HERE, Place, started
from ..images.fetch import check_size
from ..images.images import ImageSource, cached_image, fetched_file, is_as_fetched
from ..os.batch import progress
from ..os.locks import InheritedLock
from ..os.paths import base_dir, make_dirs
from .desk import Desk
from .relay import Relay
from .store import Store

TAKES_OVER = 5.0  # seconds that a process has to end whose run is gone
LOOK = 0.2  # seconds between two looks at whether it has ended
_NOWHERE = Place(HERE, 0, "")


def offer(
    image: ImageSource,
    instances_path: str,
    name: str,
    size: int,
    token: str,
    stop: str,
    ports: tuple[int, int],
    seconds: float,
    serves: bool = False,
    begins: float = 0.0,
) -> dict[str, t.Any]:
    """Begin to receive an image that this host lacks, or, where it ``serves``, to give one that it has, also in a store: {state, bytes, port,
    fingerprint}.

    ``state``: has (the host has the image), whole (its file has the catalogue's bytes, too, so that it can be given), busy (another run fetches it), lacks.
    :arg name: of this host. :arg size: bytes of the image's file; 0: unknown. :arg begins: seconds until hosts know whom to ask; 0: a few minutes
    :raises DiskFull, ImageUnacceptable: there is no room for it, or the limits do not allow it: nothing was written.
    :raises ImageNotReadable: the file in the store is not there, or has another size.
    """
    if serves and image.path:
        fd = _opened(image)
        try:
            relay = Relay(name, image, instances_path, Store(fd, is_ours=False), token, stop, seconds, begins=begins)
            return _answer("whole", os.fstat(fd).st_size, started(relay, ports))
        finally:
            os.close(fd)
    cached = cached_image(image, instances_path)
    if cached is not None:
        is_whole = bool(image.checksum) and is_as_fetched(image, instances_path)
        if not (serves and is_whole):
            return _answer("whole" if is_whole else "has", cached.virtual_size, _NOWHERE)
        fd = os.open(cached.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        relay = Relay(name, image, instances_path, Store(fd, is_ours=False), token, stop, seconds, begins=begins)
        place = started(relay, ports)
        os.close(fd)
        return _answer("whole", cached.virtual_size, place)
    make_dirs(base_dir(instances_path))
    lock = _lock(instances_path, image.id)
    if lock is None:
        return _answer("busy", 0, _NOWHERE)
    return _begin(image, instances_path, name, size, token, stop, ports, seconds, lock, begins)


def _opened(image: ImageSource) -> int:
    """Open the file of an image in a store. :raises ImageNotReadable: it is not there, or has another size"""
    fd = -1
    try:
        fd = os.open(image.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        status = os.fstat(fd)
        declared = image.limits.declared
        if not stat.S_ISREG(status.st_mode):
            reason = "is not a file"
        elif declared is not None and status.st_size != declared:
            reason = "has %d bytes, not %d" % (status.st_size, declared)
        else:
            return fd
    except OSError as error:
        reason = str(error.strerror).lower()
    if fd >= 0:
        os.close(fd)
    raise ImageNotReadable(
        image_id=image.label,
        reason="%s of host %s: %s" % (image.path, os.uname().nodename, reason),
        remedy="Mount or repair the store; if the file is lost, delete the image and import it again.",
    )


def _lock(instances_path: str, image_id: str) -> InheritedLock | None:
    """The lock of an image; None: another process holds it. One that gets the image from nowhere any more, as its run was killed, ends."""
    desk, until = Desk(instances_path, image_id), time.monotonic()
    while True:
        try:
            return InheritedLock(instances_path, "image-" + image_id)
        except BlockingIOError:
            if desk.status().get("adrift") and not desk.is_to_end():
                desk.end()
                until += TAKES_OVER
            if time.monotonic() >= until:
                return None
        time.sleep(0.1)


def _begin(
    image: ImageSource,
    instances_path: str,
    name: str,
    size: int,
    token: str,
    stop: str,
    ports: tuple[int, int],
    seconds: float,
    lock: InheritedLock,
    begins: float,
) -> dict[str, t.Any]:
    desk, path, fd = Desk(instances_path, image.id), fetched_file(instances_path, image.id), -1
    try:
        if cached_image(image, instances_path) is not None:  # fetched meanwhile
            lock.end()
            return _answer("has", 0, _NOWHERE)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        reached = os.fstat(fd).st_size
        _check_room(image, instances_path, size, os.fstat(fd).st_blocks * 512)
        progress.mark_changed()
        desk.make(token)
        desk.tell({"state": RECEIVES, "bytes": 0})  # the controller may ask before the process says more
        relay = Relay(name, image, instances_path, Store(fd), token, stop, seconds, lock, begins)
        if image.url:
            relay.code = _code()
        place = started(relay, ports)
    except BaseException:
        desk.remove()
        if fd >= 0 and not os.fstat(fd).st_size:
            os.unlink(path)
        lock.end()
        raise
    finally:
        if fd >= 0:
            os.close(fd)
    lock.leave()
    return _answer("lacks", min(reached, size) if size else reached, place)


def _check_room(image: ImageSource, instances_path: str, size: int, present: int) -> None:
    """:arg present: bytes that the file has on its file system already"""
    folder = base_dir(instances_path)
    try:
        check_size(image.label, image.path or image.url, folder, size, present, image.limits)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        reason = "image %s needs %d MiB" % (image.label, size >> 20)
        raise DiskFull(host=os.uname().nodename, path=folder, reason=reason) from None


def _code() -> list[int]:
    """The files of Python's modules that Ansible removes after this module has ended, open; none where these are in folders."""
    from ..images import web  # noqa: F401  # loaded by now: what it needs is in these files

    return [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in sys.path if os.path.isfile(path)]


def _answer(state: str, size: int, place: Place) -> dict[str, t.Any]:
    return {
        "state": state,
        "bytes": size,
        "port": place.port,
        "fingerprint": place.fingerprint,
        "changed": state == "lacks",
    }


def connect(instances_path: str, image_id: str, token: str, tasks: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Tell the process whom to ask. :arg tasks: root, sha256, may_fetch, and before, after and origins: {name, address, port, fingerprint} of hosts

    :raises InvalidInput: it has ended.
    """
    desk = Desk(instances_path, image_id)
    if not desk.is_of(token) or desk.has_ended():
        raise InvalidInput(reason="the process that receives image %s has ended" % image_id)
    desk.assign(tasks)
    return {"changed": False}


def collect(image: ImageSource, instances_path: str, seconds: float, token: str = "") -> dict[str, t.Any]:
    """Wait until the image is here: {changed, bytes, wrong, left, source}.

    :arg token: of the run. The process of another run ends by itself, when that run knows how it ended.

    :raises BootflowError: it did not come, and why: what has arrived of it stays for the next run.
    """
    desk, until = Desk(instances_path, image.id), time.monotonic() + seconds
    looks = 0
    while not desk.has_ended() and time.monotonic() < until:
        if looks % 10 == 0 and not _is_held(instances_path, image.id):
            break
        looks += 1
        time.sleep(LOOK)
    status, cached = desk.status(), cached_image(image, instances_path)
    if (cached is not None or desk.has_ended()) and (not token or desk.is_of(token)):
        desk.remove()
    result = {name: status.get(name) for name in ("bytes", "wrong", "left", "source")}
    if cached is not None:
        return {"changed": True, **result}
    error: BootflowError
    if status.get("error"):
        error = from_dict(status["error"])
    else:
        error = ImageDownloadFailed(image_id=image.label, url="other hosts", reason="its process ended")
    error.details.update({name: value for name, value in result.items() if name in ("wrong", "left")})
    raise error


def _is_held(instances_path: str, image_id: str) -> bool:
    """Whether a process fetches the image."""
    try:
        InheritedLock(instances_path, "image-" + image_id).end()
    except BlockingIOError:
        return True
    return False
