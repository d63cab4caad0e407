# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of a pool that are local disks of guests, and the images of the catalogue from which they are cloned.

An image of the catalogue comes into the pool once, by the first host that needs it: ``rbd import`` makes ``incomplete.NAME`` or fails as another host has
made it. Others wait while a client has that open. It gets its name when it is whole, with a protected snapshot. What a killed host left is removed by the
next one that waits.

source: Nova's imagebackend.Rbd and rbd_utils (names, clone, resize, rollback)
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import time
import typing as t

from ...core.amounts import MIB
from ...core.errors import DiskOpenElsewhere, OtherCluster, RbdFailed, VolumeIsBusy
from ...core.volumes.disk_pool import DiskPool
from ...core.volumes.rbd_names import BASE_SNAPSHOT, INCOMPLETE, base_image
from ..os.batch import progress
from ..os.ownership import check_owner
from .cluster import Cluster, ClusterState
from .images import FEATURES, LONG, WATCH_TIMEOUT, Images
from .plan import LEDGER, SOURCE

#: The options of modules that work on local disks in a pool.
DISK_POOL_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "disk_pool": {
        "type": "dict",
        "options": {
            "pool": {"type": "str", "required": True},
            "monitors": {"type": "list", "elements": "str", "required": True},
            "user": {"type": "str", "required": True},
            "key": {"type": "str", "required": True, "no_log": True},
            "fsid": {"type": "str", "required": True},
        },
    }
}
#: Beginning of the name of the snapshot of a disk as it was before its instance moved or was resized.
_BEFORE_MOVE, _DIGITS = "bootflow-move-", 16
#: The mark of a resize on the host of the instance, see before_move().
HERE = "here"
_POLL = 1.0


def pool_of(arguments: t.Mapping[str, t.Any]) -> DiskPool | None:
    """Return the pool in the options of a module; None: its host has none. :raises InvalidInput: a field has another form"""
    given = arguments.get("disk_pool")
    return DiskPool.checked(given) if given else None


@contextlib.contextmanager
def disk_images(pool: DiskPool, ledger_id: str = "", writing: bool = True) -> t.Iterator[DiskImages]:
    """Open a pool whose cluster answers.

    :raises StorageClusterUnavailable: it does not, or has no such pool. :raises OtherCluster: it is another cluster.
    :raises StorageClusterFull: the pool is full, and ``writing`` says that it is to be written to.
    """
    with Cluster(pool.pool, pool.monitors, pool.user, pool.key) as cluster:
        check_cluster(pool, cluster.checked(writing))
        yield DiskImages(cluster, ledger_id)


def check_cluster(pool: DiskPool, state: ClusterState) -> ClusterState:
    """Return the state. :raises OtherCluster: it is of another cluster than the settings of the host name."""
    if state.fsid != pool.fsid:
        raise OtherCluster(pool=pool.pool, found=state.fsid, fsid=pool.fsid)
    return state


def rounded(size: int) -> int:
    """Return the size of a disk in whole MiB: QEMU counts sectors."""
    return -(-size // MIB) * MIB


def before_move(mark: str) -> str:
    """Return the name of the snapshot of a disk before a move. :arg mark: of the move, see core.instances.move_mark; or HERE"""
    return _BEFORE_MOVE + hashlib.sha256(mark.encode()).hexdigest()[:_DIGITS]


def _former(name: str, mark: str) -> str:
    """Return the name of a disk that another one has taken the place of by this move."""
    return "%s.%s" % (name, before_move(mark))


def is_former(name: str) -> bool:
    """Return whether an image is a disk that another one has taken the place of."""
    return _BEFORE_MOVE in name


class DiskImages:
    """The local disks in one pool. :arg ledger_id: written into their metadata. :arg watch_timeout: how long to wait for clients that were killed"""

    def __init__(self, cluster: Cluster, ledger_id: str = "", watch_timeout: float = WATCH_TIMEOUT):
        self.cluster, self.ledger_id = cluster, ledger_id
        self.images = Images(cluster, ledger_id, watch_timeout)

    # --- what there is ------------------------------------------------------------------------------------------------

    def of_instance(self, uuid: str) -> list[str]:
        """Return the names of the images of an instance, also of unfinished ones of a killed run. source: Nova's cleanup_volumes"""
        return sorted(n for n in self.cluster.names() if n.startswith((uuid + "_", INCOMPLETE + uuid + "_")))

    def size(self, name: str) -> int | None:
        """Return the bytes of an image; None: it is not in the pool."""
        info = self.cluster.info(name)
        return None if info is None else int(info["size"])

    def check_closed(self, names: t.Iterable[str]) -> None:
        """Check that no client has these images open, after clients that were killed are forgotten. :raises DiskOpenElsewhere: one has"""
        for name in names:
            watchers = self.images.users(name)
            if watchers:
                raise DiskOpenElsewhere(disk=self.cluster.image(name), watchers=", ".join(watchers))

    # --- creation -----------------------------------------------------------------------------------------------------

    def make(self, name: str, size: int, base: str = "", raw: str = "", source: str = "") -> None:
        """Make a disk, whole under its name or not there: a clone of ``base``, an image of the catalogue in the pool, or filled from the file ``raw``.

        :arg size: bytes, see rounded(). :arg source: what it is made of, for the metadata
        """
        unfinished = INCOMPLETE + name
        progress.mark_changed()
        self.images.remove_unfinished(unfinished)
        try:
            target = self.cluster.image(unfinished)
            if base:
                origin = self.cluster.image(base, BASE_SNAPSHOT)
                self.cluster.rbd("clone", "--image-feature", FEATURES, origin, target)
            else:
                self.cluster.rbd("import", "--no-progress", "--image-feature", FEATURES, raw, target, timeout=LONG)
            if (self.size(unfinished) or 0) < size:
                self.cluster.resize(unfinished, size)
            facts = {LEDGER: self.ledger_id, SOURCE: source}
            self.cluster.set_metadata(unfinished, {key: value for key, value in facts.items() if value})
            self.images.rename(unfinished, name)
        except Exception:
            with contextlib.suppress(Exception):
                self.images.remove_unfinished(unfinished)
            raise

    def base(self, path: str, image_id: str) -> str:
        """Return the name of an image of the catalogue in the pool, where it comes to once. :arg path: of its raw file in the cache of this host"""
        name = base_image(path.rpartition("/")[2])
        unfinished = INCOMPLETE + name
        while self.cluster.info(name) is None:
            try:
                self._import(path, unfinished, name, image_id)
            except RbdFailed as error:
                if error.errno != errno.EEXIST:
                    raise
                self._wait_for(unfinished)
        if BASE_SNAPSHOT not in self.cluster.snapshots(name):
            # An image with this name is complete. A host that waited too briefly removed its snapshot.
            with contextlib.suppress(RbdFailed):  # another host makes it
                self.cluster.rbd("snap", "create", "--no-progress", self.cluster.image(name, BASE_SNAPSHOT))
            self.images.protect(name, BASE_SNAPSHOT)
        return name

    def _import(self, path: str, unfinished: str, name: str, image_id: str) -> None:
        target = self.cluster.image(unfinished)
        self.cluster.rbd("import", "--no-progress", "--image-feature", FEATURES, path, target, timeout=LONG)
        progress.mark_changed()
        try:
            size = self.size(unfinished) or 0
            if size % MIB:
                self.cluster.resize(unfinished, rounded(size))
            self.cluster.set_metadata(unfinished, {SOURCE: "image/%s" % image_id})
            self.cluster.rbd("snap", "create", "--no-progress", self.cluster.image(unfinished, BASE_SNAPSHOT))
            self.images.protect(unfinished, BASE_SNAPSHOT)
            self.images.rename(unfinished, name)
        except Exception:
            with contextlib.suppress(Exception):
                self._remove_base(unfinished)
            raise

    def _wait_for(self, unfinished: str) -> None:
        """Wait until another host has completed an image, or has left it: no client has had it open for as long as one that was killed counts."""
        quiet_since: float | None = None
        while True:
            try:
                if self.cluster.info(unfinished) is None:
                    return
                watched = bool(self.cluster.watchers(unfinished))
            except RbdFailed as error:  # it went in between
                if error.errno != errno.ENOENT:
                    raise
                return
            now = time.monotonic()
            quiet_since = None if watched else now if quiet_since is None else quiet_since
            if quiet_since is not None and now - quiet_since >= self.images.watch_timeout:
                self._remove_base(unfinished)
                return
            time.sleep(_POLL)

    def _remove_base(self, unfinished: str) -> None:
        if self.cluster.info(unfinished) is not None:
            self.images.drop_snapshot(unfinished, BASE_SNAPSHOT)
            self.cluster.remove(unfinished)

    # --- moves and resizes --------------------------------------------------------------------------------------------

    def keep_before_move(self, name: str, mark: str) -> None:
        """Keep a disk as it is now, until its move is confirmed or reverted, in place of what an earlier move kept.

        :arg mark: of the move. source: Nova's RESIZE_SNAPSHOT_NAME
        """
        snapshot = before_move(mark)
        present = self._move_snapshots(name)
        for other in present - {snapshot}:
            self.images.drop_snapshot(name, other)
        if snapshot not in present:
            progress.mark_changed()
            self.cluster.rbd("snap", "create", "--no-progress", self.cluster.image(name, snapshot))

    def put_away(self, name: str, mark: str) -> None:
        """Give a disk another name, so that a new one has its name until the move is confirmed or reverted. See keep_before_move().

        :raises DiskOpenElsewhere: a client has it open.
        """
        names = self.cluster.names()
        if name not in names:
            return
        self.check_closed([name])
        progress.mark_changed()
        former = _former(name, mark)
        for other in names:
            if other.startswith(_former(name, "")[:-_DIGITS]) and other != former:
                self.cluster.remove(other)
        if former in names:  # of a killed run, which made the other one
            self.cluster.remove(name)
        else:
            self.images.rename(name, former)

    def is_kept(self, uuid: str, mark: str) -> bool:
        """Return whether a disk of the instance is kept as it was before this move."""
        snapshot = before_move(mark)
        return any(n.endswith(snapshot) or snapshot in self._move_snapshots(n) for n in self._complete(uuid))

    def roll_back(self, uuid: str, mark: str) -> bool:
        """Bring the disks of an instance back to what they were before this move. Returns whether something was kept.

        :raises DiskOpenElsewhere: a client has one open; nothing was changed.
        """
        names, end = self._complete(uuid), _former("", mark)
        with_snapshot = [name for name in names if before_move(mark) in self._move_snapshots(name)]
        disk_of_former = {name: name[: -len(end)] for name in names if name.endswith(end)}
        self.check_closed(
            [*with_snapshot, *disk_of_former, *(disk for disk in disk_of_former.values() if disk in names)]
        )
        for name in with_snapshot:
            progress.mark_changed()
            place = self.cluster.image(name, before_move(mark))
            self.cluster.rbd("snap", "rollback", "--no-progress", place, timeout=LONG)
            self.images.drop_snapshot(name, before_move(mark))
        for former, disk in disk_of_former.items():
            progress.mark_changed()
            if disk in names:
                self.cluster.remove(disk)
            self.images.rename(former, disk)
        return bool(with_snapshot or disk_of_former)

    def forget_before_move(self, uuid: str) -> bool:
        """Remove what was kept of the disks of an instance. Returns whether there was any."""
        changed = False
        for name in self._complete(uuid):
            if is_former(name):
                changed = True
                progress.mark_changed()
                self.cluster.remove(name)
                continue
            for snapshot in self._move_snapshots(name):
                changed = True
                progress.mark_changed()
                self.images.drop_snapshot(name, snapshot)
        return changed

    def _complete(self, uuid: str) -> list[str]:
        return [name for name in self.of_instance(uuid) if not name.startswith(INCOMPLETE)]

    def _move_snapshots(self, name: str) -> set[str]:
        return {snapshot for snapshot in self.cluster.snapshots(name) if snapshot.startswith(_BEFORE_MOVE)}

    # --- removal ------------------------------------------------------------------------------------------------------

    def remove(self, uuid: str, check_mode: bool = False) -> list[str]:
        """Remove the images of an instance. Returns their names.

        :raises Conflict: one belongs to another ledger. :raises DiskOpenElsewhere: a client has one open. :raises VolumeIsBusy: one has a snapshot of others.
        Nothing was removed then.
        """
        names = self.of_instance(uuid)
        for name in names:
            owner = self.cluster.metadata(name).get(LEDGER, "")
            check_owner("image %s" % self.cluster.image(name), owner, self.ledger_id)
            others = sorted(set(self.cluster.snapshots(name)) - self._move_snapshots(name))
            if others:
                raise VolumeIsBusy(
                    message="image %s has snapshots (%s)" % (self.cluster.image(name), ", ".join(others)),
                    remedy="Another program made them. Remove them (rbd snap rm), then run the playbook again.",
                )
        if check_mode:
            return names
        self.check_closed(names)
        for name in names:
            progress.mark_changed()
            for snapshot in self._move_snapshots(name):
                self.images.drop_snapshot(name, snapshot)
            self.cluster.remove(name)
        return names
