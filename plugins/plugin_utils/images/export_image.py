# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Exporting an image of the ledger to a file of the controller: in one stream, verified before the file gets its name."""

from __future__ import annotations

import contextlib
import fcntl
import os
import typing as t

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ...module_utils.core import errors
from ...module_utils.core.images import life
from ...module_utils.core.images.stores.store_kind import ImageStore
from ...module_utils.core.settings.run import TIME_LIMITS
from ...module_utils.ledger.images import image_views
from ..run import host_settings, inventory_hosts, tables
from ..run.ledger_action import LedgerAction
from ..run.results import diff
from ..run.stage_results import CONTROLLER, StageResults
from ..settings.ledger_images import stores_of
from .import_images import CHUNK, sha256_of

View = t.Mapping[str, t.Any]
#: Ends the name of a file that is being written.
PART = ".part"


class ImageExport:
    """The export of one image, by the options of the action. The controller writes images of its stores, a play of a store's host the others: what
    that does is in the result of the first task, in the folder of the run, as no host's task opens the ledger.
    """

    def __init__(self, action: LedgerAction):
        self.action = action
        self.results = StageResults(action, "image_export")
        self.dest = ""

    def on_controller(self) -> dict[str, t.Any]:
        """Export the image, or name the host from which its file is to be fetched. Returns the result of the task."""
        done = self.results.begin("begin", self._begin)
        return {name: value for name, value in done.items() if name != "path"}

    def _begin(self) -> dict[str, t.Any]:
        self.dest = os.path.abspath(self.action.options["dest"])
        view, store = self._chosen()
        path = store.file_of(view["id"])
        result = {"changed": False, "image": view, "dest": self.dest, "storage": [], "path": path}
        if self._is_there(view):
            self._show("%s has the image %s already." % (self.dest, view["name"]))
            return result
        old = "%s\n" % self.dest if os.path.exists(self.dest) else ""
        line = "%s: image %s %s, %s\n" % (self.dest, view["name"], view["id"], tables.amount(view["size"]))
        result.update(changed=True, diff=diff("files", old, line))
        if self.action.check_mode:
            self._show("Would write " + line.strip())
        elif store.host != CONTROLLER:
            result["storage"] = inventory_hosts.in_inventory(self.action, [store.host])
        else:
            self._write(view, lambda part: _copy(path, part, view))
        return result

    def on_host(self) -> dict[str, t.Any]:
        """Fetch the file from this host, whose store has it. Returns the result of the task."""
        begun = self.results.begun()
        if self.action.check_mode or self.action.task_vars["inventory_hostname"] not in begun.get("storage", ()):
            return {"changed": False, "skipped": True}
        view, self.dest = begun["image"], begun["dest"]
        if self._is_there(view):
            return {"changed": False, "skipped": True}
        self._write(view, lambda part: fetch(self.action, begun["path"], part, view["name"]))
        return {"changed": True, "image": view, "dest": self.dest}

    def _chosen(self) -> tuple[View, ImageStore]:
        """The image, and the store that it is read from. :raises InvalidInput: not one image is named. :raises ImageNotReadable:"""
        options, stores = self.action.options, stores_of(self.action)
        words = [*(options["image_ids"] or ()), *(options["image_names"] or ())]
        if len(words) != 1:
            raise errors.InvalidInput(
                message="%d images are named" % len(words),
                remedy="Name one with bootflow_image_names or bootflow_image_ids.",
            )
        view = self.action.open_ledger().inspect(image_views.image_view, words[0], options["project"])
        if view["status"] != life.ACTIVE:
            raise errors.ImageNotActive(image_id=view["name"], remedy="Its status is %s." % view["status"])
        if not view["stores"]:
            raise errors.ImageNotReadable(
                image_id=view["name"],
                reason="it has no bytes: it is of an instance whose root is a volume",
                remedy="Boot an instance from it, or make volumes of the snapshots that its property block_device_mapping names.",
            )
        known = stores.known(view["stores"])
        if not known:
            raise errors.ImageNotReadable(
                image_id=view["name"],
                reason="bootflow_image_stores has none of its stores (%s)" % ", ".join(view["stores"]),
                remedy="Declare the store again, under the name that it had.",
            )
        return view, min(known, key=lambda store: store.host != CONTROLLER)

    def _is_there(self, view: View) -> bool:
        """Whether the file has the bytes of the image. :raises InvalidInput: it has others, and may not be replaced"""
        try:
            if os.path.isfile(self.dest) and os.path.getsize(self.dest) == view["size"]:
                if sha256_of(self.dest) == view["checksum"]:
                    return True
        except OSError as e:
            raise _unwritable(self.dest, str(e.strerror)) from None
        if os.path.isdir(self.dest) or not os.path.isdir(os.path.dirname(self.dest)):
            raise _unwritable(
                self.dest, "it is a directory" if os.path.isdir(self.dest) else "its directory is missing"
            )
        if os.path.exists(self.dest) and not os.path.isfile(self.dest):  # a file would take the place of a device
            raise _unwritable(self.dest, "it is not a regular file")
        if os.path.lexists(self.dest) and not self.action.options["overwrite"]:
            raise errors.InvalidInput(
                message="%s exists with other content" % self.dest,
                remedy="Name another file, or set bootflow_image_overwrite: true.",
            )
        return False

    def _write(self, view: View, write: t.Callable[[str], None]) -> None:
        """Write the bytes to another name, and give the file its name when they are verified.

        :raises ImageChecksumMismatch: the bytes are not the image. :raises ImageInUse: another run writes the file.
        :raises InvalidInput: the file cannot be written.
        """
        part = self.dest + PART
        try:
            with own_file(part, self.dest, view["name"]):
                write(part)
                actual = sha256_of(part)
                if actual != view["checksum"]:
                    raise errors.ImageChecksumMismatch(
                        message="Image %s is unacceptable: its file has the sha256 %s, the ledger says %s"
                        % (view["name"], actual, view["checksum"]),
                        remedy="The file in the store was changed: delete the image, and import it again.",
                    )
                sync(part)
                os.rename(part, self.dest)
                sync(os.path.dirname(self.dest))
        except OSError as e:
            raise _unwritable(self.dest, str(e.strerror)) from None
        self._show("Wrote image %s to %s." % (view["name"], self.dest))

    def _show(self, line: str) -> None:
        if self.action.options["print_table"]:
            tables.show(self.action.ports.display, [line])


def fetch(action: LedgerAction, path: str, part: str, name: str) -> None:
    """Copy a file of the current host to the file ``part``, which is there. :arg name: of the image, for messages

    :raises HostUnreachable, HostTimeout: the host does not answer. :raises ImageNotReadable: the user that logs in there cannot read it
    """
    host = action.task_vars["inventory_hostname"]
    try:
        limits = host_settings.values(action, TIME_LIMITS)
        with action.within(limits.copy_timeout, "fetching image %s" % name):
            action._connection.fetch_file(path, part)
    except AnsibleConnectionFailure as e:
        raise errors.HostUnreachable(host=host, reason=str(e)) from e
    except AnsibleError as e:
        raise errors.ImageNotReadable(
            image_id=name,
            reason="%s of %s: %s" % (path, host, " ".join(str(e).split())[:300]),
            remedy="The user that logs in to the host must be able to read the file: as root (ansible_user: root) it is.",
        ) from e


@contextlib.contextmanager
def own_file(part: str, dest: str, name: str) -> t.Iterator[None]:
    """Hold an empty file that only this user reads, and remove it unless it got another name. One that a killed run has left is used again.

    :arg name: of the image, for messages
    :raises ImageInUse: another run holds it. :raises OSError: it cannot be made.
    """
    while True:
        with contextlib.ExitStack() as opened:
            fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            opened.callback(os.close, fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise errors.ImageInUse(image_id=name, reason="another run writes %s" % dest) from None
            if not _has_name(fd, part):  # the other run has ended meanwhile
                continue
            os.fchmod(fd, 0o600)
            os.ftruncate(fd, 0)
            try:
                yield
                return
            finally:
                if _has_name(fd, part):
                    os.unlink(part)


def _has_name(fd: int, path: str) -> bool:
    """Whether the open file is the one at the path."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    return False


def _copy(source: str, target: str, view: View) -> None:
    """Copy a file of the controller in pieces. :raises ImageNotReadable: it cannot be read"""
    try:
        file = open(source, "rb")
    except OSError as e:
        raise errors.ImageNotReadable(
            image_id=view["name"],
            reason="%s: %s" % (source, e.strerror),
            remedy="Mount or repair the store; if the file is lost, delete the image and import it again.",
        ) from None
    with file:
        with open(target, "wb") as copy:
            for chunk in iter(lambda: file.read(CHUNK), b""):
                copy.write(chunk)


def sync(path: str) -> None:
    """Have the kernel write a file or folder to its disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unwritable(path: str, reason: str) -> errors.BootflowError:
    return errors.InvalidInput(
        message="%s cannot be written: %s" % (path, reason),
        remedy="Name a file in an existing directory with room for the image.",
    )
