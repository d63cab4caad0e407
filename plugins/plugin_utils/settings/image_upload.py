# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images that are files on the controller: copied to the current host for the module that works there, gone with it.

A run that is killed leaves its copies, in Ansible's folder of the user that it logged in as; the next one that copies to the host removes them.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import posixpath
import shlex
import typing as t
from dataclasses import asdict
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ...module_utils.core import errors
from ...module_utils.core.disks.image_urls import host_and_path, local_source
from ...module_utils.core.model import Image
from ...module_utils.core.reading.setting import Values
from ...module_utils.core.settings.run import TIME_LIMITS
from ..run import host_settings, tables
from ..run.ledger_action import LedgerAction

REMOVING = 60.0  # seconds
SMALL = 64 * 1024**2  # bytes: copied in half a second by 1 Gbit/s
PIPED = 32 * 1024**2  # bytes: the fork that copies an image holds it in memory


def is_local(action: LedgerAction) -> bool:
    """Whether the current host is the controller: it has the file already."""
    return getattr(action._connection, "transport", "") == "local"


def is_small(image: Image) -> bool:
    """Whether the controller's file is copied in no time, unlike one that is not there."""
    with contextlib.suppress(OSError):
        return os.path.getsize(os.path.expanduser(image.path)) <= SMALL
    return False


def file_missing(image: Image) -> errors.BootflowError:
    """The error of an image whose file is not on the controller."""
    return errors.ImageUnacceptable(
        image_id=image.name,
        reason="the file %s is not on the controller" % os.path.expanduser(image.path),
        remedy="Correct its path in bootflow_images. If it is an image of the ledger, its store has lost the file: delete it, and import it again.",
    )


def module_image(image: Image, local: bool, host: str) -> dict[str, t.Any]:
    """An element of the host-side modules' option ``images``.

    :arg local: the host is the controller. :arg host: its name; files of its stores are read there
    """
    store_host, path = host_and_path(image.url)
    return {
        "id": image.id,
        "name": image.name,
        "url": local_source(path) if store_host and store_host == host else image.url or None,
        "path_on_host": os.path.expanduser(image.path) if image.path and local else None,
        "checksum": image.checksum or None,
        "version": _version(image),
        "disk_format": image.disk_format,
        "size": image.size,
        **asdict(image.access),
        # As one text: of a mapping Ansible takes each value for a secret, and cuts it out of all that the module returns.
        "headers": json.dumps(dict(image.access.headers)) if image.access.headers else None,
        "url_password": image.access.url_password or None,
    }


def _version(image: Image) -> str:
    """Path, size and time of the controller's file: without a checksum, another file is known by them; "" for images from elsewhere."""
    with contextlib.suppress(OSError):
        if image.path:
            path = os.path.expanduser(image.path)
            status = os.stat(path)
            return json.dumps([path, status.st_size, status.st_mtime_ns])
    return ""


def fetch_arguments(settings: Values) -> dict[str, t.Any]:
    """The limits of the current host, as arguments of these modules."""
    return {name: getattr(settings, name) for name in ("image_max_gb", "image_fetch_timeout", "vmdk_allowed_types")}


@contextlib.contextmanager
def uploaded(
    action: LedgerAction, images: t.Iterable[Image]
) -> t.Iterator[tuple[dict[str, str], dict[str, errors.BootflowError]]]:
    """Copy files of the controller to the current host, until the block ends. Yields image id -> path there, and image id -> why it was not
    copied.
    """
    uploads: dict[str, str] = {}
    refused: dict[str, errors.BootflowError] = {}
    try:
        for image in images:
            try:
                uploads[image.id] = upload(action, image)
            except errors.BootflowError as e:
                refused[image.id] = e
        yield uploads, refused
    finally:
        if uploads:
            remove_uploads(action)


def upload(action: LedgerAction, image: Image) -> str:
    """Copy the controller's file to the current host. Returns its path there.

    :raises ImageUnacceptable: it is not on the controller. :raises HostUnreachable: :raises ImageDownloadFailed:
    :raises DiskFull: Ansible's folder has no room for it; nothing was written.
    """
    host = action.task_vars["inventory_hostname"]
    source = os.path.expanduser(image.path)
    if not os.path.isfile(source):
        raise file_missing(image)
    try:
        limits = host_settings.values(action, TIME_LIMITS)
        with action.within(limits.copy_timeout, "copying image %s" % image.name):
            size_mib = -(-os.path.getsize(source) >> 20)
            tables.say(action._display, "%s: copying image %s (%d MiB)" % (host, image.name, size_mib))
            name = "image-%s" % image.id
            shell = action._connection._shell
            if not shell.tmpdir:
                tidy = _removal_of_dead_copies(shell.get_option("remote_tmp"), limits)
                if _copied_at_once(action, source, name, tidy):
                    return posixpath.join(shell.tmpdir, name)
                _check_room(action, shell.get_option("remote_tmp"), tidy, source)
                shell.tmpdir = _temporary_folder(action)
            target = posixpath.join(shell.tmpdir, name)
            action._transfer_file(source, target)
    except AnsibleConnectionFailure as e:
        raise errors.HostUnreachable(host=host, reason=str(e)) from e
    except AnsibleError as e:
        raise errors.ImageDownloadFailed(image_id=image.name, url=source, reason=str(e)) from e
    return target


def _removal_of_dead_copies(place: str, limits: Values) -> str:
    """A command that removes what killed runs copied: it is older than a run may last that uses it.

    :arg place: where Ansible's folders are.
    """
    minutes = math.ceil((2 * limits.copy_timeout + limits.clear_timeout) / 60)
    return (
        'find "$( echo %s )/" -mindepth 2 -maxdepth 2 -type f -path "*/ansible-tmp-*/image-*" -mmin +%d -delete 2> /dev/null'
        % (place, minutes)
    )


def _check_room(action: LedgerAction, place: str, before: str, source: str) -> None:
    """:arg place: where Ansible's folders are. :arg before: a command for the same session.

    :raises DiskFull: the file system there has no room for the file.
    """
    size = os.path.getsize(source)
    command = 'd="$( echo %s )"; while [ ! -d "$d" ]; do d="$( dirname "$d" )"; done; df -Pk "$d"' % place
    answer = action._low_level_execute_command("%s; %s" % (before, command), sudoable=False)
    with contextlib.suppress(ValueError, IndexError):  # a host without df: the copy shows it
        free = int(str(answer["stdout"]).splitlines()[-1].split()[3]) * 1024
        if size > free:
            host = action.task_vars["inventory_hostname"]
            reason = "image %s needs %d MiB there on its way, and %d MiB are free" % (source, size >> 20, free >> 20)
            raise errors.DiskFull(host=host, path=place, reason=reason)


def _copied_at_once(action: LedgerAction, source: str, name: str, before: str) -> bool:
    """Make Ansible's folder for the files of a task, with a copy of a file, in one session of SSH.

    :arg before: a command for the same session.
    Returns whether it did: not where the file is too large or empty, or the host is not reached so.

    :raises AnsibleError: the host could not write it.
    """
    if action._connection.transport != "ssh" or action._is_become_unprivileged():
        return False
    content = Path(source).read_bytes() if os.path.getsize(source) <= PIPED else b""
    if not content:
        return False
    shell = action._connection._shell
    folder, place = shell._generate_temp_dir_name(), _in_home(shell.get_option("remote_tmp"))
    # Ansible's own command, which prints the folder's path.
    made = shell.mkdtemp(folder, tmpdir=place)
    command = '%s; %s && cat > "$( echo %s/%s )"/%s' % (before, made, place, folder, shlex.quote(name))
    done = action._low_level_execute_command(command, sudoable=False, in_data=content)
    path = str(done["stdout"]).strip().rpartition("%s=" % folder)[2]
    if path.endswith("/" + folder):
        shell.tmpdir = path  # it goes with the task
    if done["rc"] or not shell.tmpdir:
        raise AnsibleError((str(done["stderr"]) or str(done["stdout"])).strip())
    return True


def _in_home(place: str) -> str:
    """A folder that the shell of the host can make: to ask what ``~`` is takes one more session of SSH."""
    return "$HOME" + place[1:] if place.startswith("~/") else place


def _temporary_folder(action: LedgerAction) -> str:
    """Ansible's folder for the files of a task."""
    shell = action._connection._shell
    place = shell.get_option("remote_tmp")
    if action._connection.transport == "ssh":
        shell.set_option("remote_tmp", _in_home(place))
    try:
        return str(action._make_tmp_path())
    finally:
        shell.set_option("remote_tmp", place)


def remove_uploads(action: LedgerAction) -> None:
    """Take the copies away again."""
    if action._connection._shell.tmpdir:
        with contextlib.suppress(errors.HostTimeout), action.within(REMOVING, "removing copies of images"):
            action._remove_tmp_path(action._connection._shell.tmpdir, force=True)


def forget_uploads(action: LedgerAction) -> None:
    """The module on the host removed the copies and Ansible's folder: nothing is left to remove."""
    action._connection._shell.tmpdir = None
