# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fetching an image that a host made of an instance into a store of the controller: verified before the file gets its name."""

from __future__ import annotations

import contextlib
import os
import shutil
import typing as t

from ansible.errors import AnsibleConnectionFailure

from ...module_utils.core import errors
from ...module_utils.core.images.stores.store_kind import ImageStore
from ..run import tables
from ..run.ledger_action import LedgerAction
from .export_image import PART, fetch, own_file, sync
from .import_images import sha256_of

LOGIN = 60.0  # seconds
Answer = t.Mapping[str, t.Any]


def login_user(action: LedgerAction) -> int:
    """Return the number of the user that logs in to the current host and is to read the file; 0: root, or a user without privilege escalation.

    :raises HostUnreachable, HostTimeout: the host does not answer.
    """
    if action._connection.become is None:
        return 0
    try:
        with action.within(LOGIN, "id"):
            answer = action._low_level_execute_command("id -u", sudoable=False)
    except AnsibleConnectionFailure as e:
        raise errors.HostUnreachable(host=action.task_vars["inventory_hostname"], reason=str(e)) from e
    with contextlib.suppress(ValueError, IndexError):
        return int(str(answer["stdout"]).split()[0])
    return 0


def fetch_snapshot(action: LedgerAction, store: ImageStore, image_id: str, name: str, answer: Answer) -> None:
    """Fetch the file of an image from the current host. :arg answer: of the host: ``path``, ``size`` and ``checksum`` of the file

    :raises RemoteError: the directory of the store is missing. :raises DiskFull: it has no room. :raises ImageChecksumMismatch: other bytes came.
    :raises HostUnreachable, HostTimeout, ImageNotReadable: see fetch().
    """
    path, size = store.file_of(image_id), int(answer["size"])
    part = path + PART
    _check_room(store, size)
    tables.say(
        action._display,
        "%s: fetching image %s (%s)" % (action.task_vars["inventory_hostname"], name, tables.amount(size)),
    )
    try:
        with own_file(part, path, name):
            fetch(action, str(answer["path"]), part, name)
            arrived = os.path.getsize(part)
            if arrived != size:
                raise errors.ImageChecksumMismatch(
                    message="Image %s is unacceptable: its file has %d bytes, its host says %d" % (name, arrived, size),
                    remedy="It was changed on its way: make the snapshot again.",
                )
            checksum = sha256_of(part)
            if checksum != answer["checksum"]:
                raise errors.ImageChecksumMismatch(
                    message="Image %s is unacceptable: its file has the sha256 %s, its host says %s"
                    % (name, checksum, answer["checksum"]),
                    remedy="It was changed on its way: make the snapshot again.",
                )
            os.chmod(part, int(store.kind.mode, 8))
            sync(part)
            os.rename(part, path)
            sync(os.path.dirname(path))
    except OSError as e:
        raise errors.DiskFull(host="the controller", path=store.path, reason=str(e.strerror)) from None


def remove_half(store: ImageStore, image_id: str) -> None:
    """Remove what a store of the controller has of an image, whole or half."""
    for path in (store.file_of(image_id), store.file_of(image_id) + PART):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _check_room(store: ImageStore, size: int) -> None:
    if not os.path.isdir(store.path):
        raise errors.RemoteError(
            reason="the directory %s of the image store %s does not exist on the controller" % (store.path, store.name),
            remedy="Make it, or mount what belongs there.",
        )
    free = shutil.disk_usage(store.path).free
    if size > free:
        reason = "the image needs %d MiB, and %d MiB are free" % (size >> 20, free >> 20)
        raise errors.DiskFull(host="the controller", path=store.path, reason=reason)
