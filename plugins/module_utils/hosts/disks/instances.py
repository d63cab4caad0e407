# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removes an instance from this host: its domain, logical volumes and directory; and clears its whole disks. Nothing else.

The controller does not know what the host has: its ledger may be older, where it was restored from a backup. So the host refuses an instance that it
has already, removes for a move that failed only what was made for that move, and for a build whose run died no guest that is built.
"""

from __future__ import annotations

import os
import shutil
import stat
import typing as t
from dataclasses import dataclass

from ...core.disks.stores.registry import is_shared
from ...core.errors import Conflict, InvalidInput
from ...core.instances.move_mark import began_at
from ..libvirt.domains import remove_domain
from ..libvirt.running import find_domain
from ..os.batch import progress
from ..os.locks import host_lock, take_back
from ..os.ownership import MARKS, check_owner, has_arrived, ledger_of_folder, made_for, mark_incomplete
from ..os.paths import instance_dir
from .stores.disk_info import records_of
from .stores.group import NO_GROUP, Group
from .stores.removal import remove_volumes, volumes_of
from .unused_images import mark_bases_used
from .whole.clear import clear_disk

#: What becomes of the images of an instance in a pool: they go with it; they stay; they stay without what was kept of them before a move.
REMOVED, LEFT, CONFIRMED = "removed", "left", "confirmed"


@dataclass(frozen=True)
class Condition:
    """Limits of the removal of an instance: what was made for this move only; nothing that was made after ``due_at``; no guest that is built,
    where its ledger has its build as not ended (``unfinished``); and no guest that has power (``without_power``).

    ``images``: what becomes of its images in a pool, which another host may have. After a move that failed they are LEFT in any case.

    ``due_at`` is in seconds since the epoch, by the ledger's clock, as in the mark; 0.0: no condition.
    """

    made_for: str = ""
    due_at: float = 0.0
    unfinished: bool = False
    without_power: bool = False
    images: str = REMOVED


ANY = Condition()


@dataclass(frozen=True)
class Disks:
    """The whole disks of an instance on this host ({path, serial}) to clear.

    ``used_by`` returns real path -> domain for the disks of other instances at the time of the call. Unless ``always``, they are
    cleared only if the domain exists, because otherwise no guest of this build has run.
    """

    disks: t.Sequence[t.Mapping[str, str]] = ()
    used_by: t.Callable[[], t.Mapping[str, t.Mapping[str, t.Any]]] = dict
    always: bool = True


def remove_instance(
    connection: t.Any,
    instances_path: str,
    uuid: str,
    check_mode: bool = False,
    disks: Disks = Disks(),
    local: Group = NO_GROUP,
    defined_again: bool = False,
    condition: Condition = ANY,
) -> dict[str, t.Any]:
    """Remove domain, logical volumes and directory of one instance, clear its whole disks; {changed, removed: [texts and paths]},
    and ``kept`` (true) where the condition does not hold.

    Does nothing for a missing instance. The domain is stopped first, so that the directory of a running guest is never removed. It is
    undefined only after its disks are cleared, so that an interrupted removal clears them when it is repeated.

    :arg defined_again: see domains.remove_domain
    :arg condition: without it nothing is removed.

    :raises Conflict: the domain or the directory belongs to another ledger, the guest has power where it must not, or see is_removable(); nothing is changed.
    :raises InvalidInput: ``uuid`` is not valid, or a file system of something else is mounted inside the directory.
    :raises LibvirtError, HypervisorUnavailable: libvirt fails or is not running; the directory is kept.
    :raises CommandFailed: a disk could not be cleared, then domain (stopped) and directory are kept; or a logical volume could
        not be cleared, then it and the directory are kept.
    :raises VolumeIsBusy, DriverNotInitialized: see stores/removal.py.
    :raises DiskOpenElsewhere, StorageClusterUnavailable: see stores/rbd.py; the directory is kept.
    """
    folder = instance_dir(instances_path, uuid)
    uuid = os.path.basename(folder)
    if check_mode or not os.path.isdir(os.path.dirname(folder)):
        return _remove(connection, folder, uuid, check_mode, disks, local, defined_again, condition)
    with host_lock(instances_path, "instance-" + uuid):
        return _remove(connection, folder, uuid, check_mode, disks, local, defined_again, condition)


def _remove(
    connection: t.Any,
    folder: str,
    uuid: str,
    check_mode: bool,
    disks: Disks,
    local: Group,
    defined_again: bool,
    condition: Condition,
) -> dict[str, t.Any]:
    check_owner("folder %s" % folder, ledger_of_folder(folder), local.ledger_id)
    if not is_removable(connection, folder, condition, local.vg, local.ledger_id):
        return {"changed": False, "removed": [], "kept": True}
    cleared: list[str] = []

    def begin() -> None:
        if not check_mode:
            mark_incomplete(folder)

    def clear() -> None:
        begin()  # not before the guest is known to be off, where that is the condition
        used_by = disks.used_by() if disks.disks else {}
        cleared.extend(clear_disk(disk, used_by, check_mode=check_mode) for disk in disks.disks)

    if not condition.without_power:
        begin()
    removed = remove_domain(
        connection, uuid, check_mode, clear, local.ledger_id, defined_again, condition.without_power
    )
    begin()
    if not cleared and (disks.always or (removed and check_mode)):
        clear()  # without a domain: the host was reinstalled, or the domain was removed by hand
    removed += ["data of disk %s" % path for path in cleared]
    if not check_mode:
        take_back(uuid)
        mark_bases_used(folder)
    volumes = remove_volumes(folder, uuid, local, check_mode)
    removed += volumes.words
    removed += _remove_images(folder, uuid, local, condition, check_mode)
    removed += remove_tree(folder, check_mode, volumes.places if check_mode else ())
    return {"changed": bool(removed), "removed": removed}


def _remove_images(folder: str, uuid: str, local: Group, condition: Condition, check_mode: bool) -> list[str]:
    """See stores.rbd.remove_images() and leave_images(). A pool is only asked where the instance has disks in one, or nothing here says what it has."""
    if os.path.isdir(folder):
        if not any(is_shared(record) for record in records_of(folder).values()):
            return []
    elif local.pool is None:
        return []
    if condition.made_for or condition.images == LEFT:
        return []
    from .stores.rbd import leave_images, remove_images

    work = leave_images if condition.images == CONFIRMED else remove_images
    return work(folder, uuid, local.pool, local.ledger_id, check_mode)


def remove_tree(folder: str, check_mode: bool = False, unmounted: t.Collection[str] = ()) -> list[str]:
    """Remove a directory without following links or crossing into other file systems; returns the removed paths.

    If the directory itself is a link, only the link is removed.

    :arg unmounted: mount points that would be unmounted by then (check mode).
    :raises InvalidInput: something is mounted inside.
    """
    try:
        status = os.lstat(folder)
    except FileNotFoundError:
        return []
    if not stat.S_ISDIR(status.st_mode):
        if not check_mode:
            progress.mark_changed()
            os.unlink(folder)
        return [folder]
    paths = _contents(folder, status.st_dev, unmounted)
    if not check_mode:
        progress.mark_changed()
        shutil.rmtree(folder)
    return paths + [folder]


def _contents(folder: str, device: int, unmounted: t.Collection[str]) -> list[str]:
    paths = []
    for parent, folders, files in os.walk(folder):
        for name in list(folders):
            path = os.path.join(parent, name)
            if os.path.realpath(path) in unmounted:
                folders.remove(name)
            elif os.path.ismount(path) or os.lstat(path).st_dev != device:
                raise InvalidInput(reason="%s is a mount point" % path, remedy="Unmount it first.")
        paths += [os.path.join(parent, name) for name in sorted(files)]
    return paths


# --- what there is of an instance


def refuse_present(connection: t.Any, folder: str, volume_group: str = "", ledger_id: str = "") -> None:
    """Refuse an instance of which this host has something already. Writes nothing.

    :arg folder: of the instance. :arg volume_group: of the host's local disks; "": none
    :raises Conflict: there is a domain, a folder, or logical volumes of it.
    """
    parts = _parts(connection, folder, volume_group, ledger_id)
    if parts:
        raise Conflict(
            message="host %s already has %s of instance %s, which was left alone"
            % (os.uname().nodename, parts[0], os.path.basename(folder)),
            remedy="Run bootflow.compute.audit to see what the host has of the instance. If the ledger was restored from a backup, the instance may run there.",
        )


def _parts(connection: t.Any, folder: str, volume_group: str, ledger_id: str) -> list[str]:
    """Return the parts of the instance that exist, in words."""
    parts = []
    if find_domain(connection, os.path.basename(folder)) is not None:
        parts.append("a domain")
    if os.path.lexists(folder):
        parts.append("a folder")
    names = volumes_of(os.path.basename(folder), Group(volume_group, ledger_id))
    return parts + (["the logical volume %s" % names[0]] if names else [])


def is_removable(
    connection: t.Any, folder: str, condition: Condition, volume_group: str = "", ledger_id: str = ""
) -> bool:
    """Return whether this host has the instance and may remove it. Writes nothing.

    :raises Conflict: the instance was built here, or moved here, after its cleanup was due; or its build has ended, which the ledger has as unfinished.
    """
    mark = made_for(folder)
    if condition.unfinished and has_arrived(folder, find_domain(connection, os.path.basename(folder)) is not None):
        raise Conflict(
            message="the build of instance %s has ended on %s, and nothing of it was removed"
            % (os.path.basename(folder), os.uname().nodename),
            remedy="The ledger has it as a build whose run died. If it was restored from a backup, the instance may have run here since: save what is needed"
            " of its disks. Then delete the instance, or run the same boot again: both have it removed here.",
        )
    if condition.made_for:
        return mark == condition.made_for or _is_empty(connection, folder, volume_group, ledger_id)
    if condition.due_at and began_at(mark) > condition.due_at:
        raise Conflict(
            message="instance %s came to %s after this cleanup was due, and nothing of it was removed"
            % (os.path.basename(folder), os.uname().nodename),
            remedy="The ledger is older than the host: it may have been restored from a backup. Check whether the instance runs there, and remove"
            " by hand what is not needed: the domain (virsh undefine) and its folder.",
        )
    return True


def _is_empty(connection: t.Any, folder: str, volume_group: str, ledger_id: str) -> bool:
    """Whether the host has no more of the instance than an empty folder, as a move leaves it that dies at once."""
    if [what for what in _parts(connection, folder, volume_group, ledger_id) if what != "a folder"]:
        return False
    try:
        return set(os.listdir(folder)) <= set(MARKS)
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        return False
