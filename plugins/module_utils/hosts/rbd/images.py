# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of a pool, one at a time: made, filled, cloned, grown, removed with what only served them.

An image gets its name when it is complete: a killed run leaves ``incomplete.NAME`` only, which the next one removes. An image that takes the place
of another one does so by two renames; a run that is killed between them leaves ``NAME.former``, which the next one settles.

source: Cinder's RBD driver (create_cloned_volume, delete_volume, delete_snapshot)
"""

from __future__ import annotations

import contextlib
import errno
import subprocess
import time
import typing as t

from ...core.errors import ImageCopyFailure, RbdFailed, SnapshotIsBusy, VolumeIsBusy
from ...core.volumes.rbd_names import CLONE_SNAPSHOT, DELETED, FORMER, INCOMPLETE, clone_snapshot, snapshot_name
from ..os import command
from ..os.batch import progress
from .cluster import Cluster
from .plan import LEDGER, PROJECT, SOURCE, Image, Parent, Plan, depth, is_ended

#: As many ancestors as an image may have; the next clone is flattened. source: Cinder's rbd_max_clone_depth
MAX_CLONE_DEPTH = 5
#: The features that librbd has by default: a host's ceph.conf, which is not read, might say otherwise.
FEATURES = "layering,exclusive-lock,object-map,fast-diff,deep-flatten"
#: A client that was killed has an image open for as long as 30 s.
WATCH_TIMEOUT = 35.0
LONG = 6 * 3600.0
_CHUNK = 4 * 1024**2


class Images:
    """The images of one pool. :arg ledger_id: written into their metadata. :arg watch_timeout: how long to wait for clients that were killed"""

    def __init__(self, cluster: Cluster, ledger_id: str = "", watch_timeout: float = WATCH_TIMEOUT):
        self.cluster, self.ledger_id, self.watch_timeout = cluster, ledger_id, watch_timeout

    # --- clients ----------------------------------------------------------------------------------------------

    def users(self, name: str, expected: int = 0) -> list[str]:
        """Return the clients that have the image open, if these are more than expected; wait for clients that were killed."""
        end = time.monotonic() + self.watch_timeout
        while True:
            watchers = self.cluster.watchers(name)
            if len(watchers) <= expected:
                return []
            if time.monotonic() >= end:
                return watchers
            time.sleep(1.0)

    def check_unused(self, name: str) -> None:
        """:raises VolumeIsBusy: a client has the image open."""
        watchers = self.users(name)
        if watchers:
            raise VolumeIsBusy(
                message="%s is in use at %s" % (name, ", ".join(watchers)),
                remedy="Detach the volume, and end what has it open.",
            )

    # --- creation -----------------------------------------------------------------------------------------------------

    def create(self, made: Plan, raw: str, images: t.Mapping[str, Image], verify: bool = True) -> None:
        """Make a volume. One that is there keeps its place until the new one is complete. :arg raw: the file that it is filled with; "": none"""
        unfinished = INCOMPLETE + made.image
        progress.mark_changed()
        if unfinished in images:
            self.remove_unfinished(unfinished)
        try:
            flat = self._fill(made, unfinished, raw, images, verify)
            info = self.cluster.info(unfinished)
            if info is not None and int(info["size"]) < made.size:
                self.cluster.resize(unfinished, made.size)
            facts = {LEDGER: self.ledger_id, PROJECT: made.desired.project, SOURCE: made.desired.source}
            self.cluster.set_metadata(unfinished, {key: value for key, value in facts.items() if value})
            if flat:
                self.cluster.rbd("flatten", "--no-progress", self.cluster.image(unfinished), timeout=LONG)
                self.release_parent(flat)
            if made.image in images:
                self.rename(made.image, made.image + FORMER)
            self.rename(unfinished, made.image)
        except Exception:
            with contextlib.suppress(Exception):
                if made.image in images:
                    self.settle_exchange(made.image)
            with contextlib.suppress(Exception):
                self.remove_unfinished(unfinished)
            raise

    def _fill(self, made: Plan, name: str, raw: str, images: t.Mapping[str, Image], verify: bool) -> Parent | None:
        """Make the image. Returns the snapshot that it is to be made independent of."""
        target = self.cluster.image(name)
        image, snapshot = made.origin
        if raw:
            self.cluster.rbd("import", "--no-progress", "--image-feature", FEATURES, raw, target, timeout=LONG)
            if verify:
                self._compare(raw, name, made.desired.image_id)
        elif not image:
            self.cluster.rbd("create", "--size", "%dM" % (made.size // 1024**2), "--image-feature", FEATURES, target)
        elif snapshot:
            self._clone(image, snapshot, target)
        else:
            snapshot = clone_snapshot(made.desired.id)
            if snapshot in images[image].snapshots:  # a killed run's, with the data of that moment
                self.drop_snapshot(image, snapshot)
            self.cluster.rbd("snap", "create", "--no-progress", self.cluster.image(image, snapshot))
            self.protect(image, snapshot)
            self._clone(image, snapshot, target)
            if depth(images, image, self.cluster.pool) + 1 > MAX_CLONE_DEPTH:
                return Parent(self.cluster.pool, image, snapshot)
        return None

    def _clone(self, image: str, snapshot: str, target: str) -> None:
        self.cluster.rbd("clone", "--image-feature", FEATURES, self.cluster.image(image, snapshot), target)

    def _compare(self, raw: str, name: str, image_id: str) -> None:
        """Read the image back. :raises ImageCopyFailure: it differs from the file."""
        argv = self.cluster.argv("rbd", "export", "--no-progress", self.cluster.image(name), "-")
        process = command.start(command.tied(argv), stderr=subprocess.DEVNULL)
        try:
            with open(raw, "rb") as file:
                while True:
                    wanted = file.read(_CHUNK)
                    actual = t.cast("t.IO[bytes]", process.stdout).read(len(wanted) or _CHUNK)
                    if wanted != actual[: len(wanted)] or actual[len(wanted) :].strip(b"\0"):
                        raise ImageCopyFailure(reason="image %s in the pool differs from its file" % image_id)
                    if not wanted and not actual:
                        break
            if process.wait(timeout=60) != 0:
                raise ImageCopyFailure(reason="image %s could not be read back" % image_id)
        finally:
            command.kill_group(process)
            process.wait()

    def remove_unfinished(self, name: str) -> None:
        """Remove what a run left of an image that it did not complete."""
        info = self.cluster.info(name)
        if info is not None:
            self.cluster.remove(name)
            self.release_parent(_parent_of(info))

    # --- changes ------------------------------------------------------------------------------------------------------

    def write_again(self, made: Plan, raw: str, images: t.Mapping[str, Image], verify: bool) -> None:
        """Write a volume again: a new image takes its place when it is complete."""
        self.check_unused(made.image)
        self.create(made, raw, images, verify)
        self.settle_exchange(made.image)

    def settle_exchange(self, name: str) -> None:
        """End an exchange of images: the former one is removed, or has its name again if the new one did not take its place."""
        former = self.cluster.info(name + FORMER)
        if former is None:
            return
        progress.mark_changed()
        if self.cluster.info(name) is None:
            self.rename(name + FORMER, name)
            return
        self.cluster.remove(name + FORMER)
        self.release_parent(_parent_of(former))

    def rename(self, name: str, new: str) -> None:
        self.cluster.rbd("rename", self.cluster.image(name), self.cluster.image(new))

    def snapshot(self, made: Plan) -> None:
        """Make a snapshot, also of a volume that a guest writes to, and protect it: volumes are cloned from it."""
        progress.mark_changed()
        name = snapshot_name(made.desired.id)
        self.cluster.rbd("snap", "create", "--no-progress", self.cluster.image(made.image, name))
        self.protect(made.image, name)

    def protect(self, image: str, snapshot: str) -> None:
        """Protect a snapshot, unless it is."""
        with _allowing(errno.EBUSY):
            self.cluster.rbd("snap", "protect", self.cluster.image(image, snapshot))

    # --- removal ------------------------------------------------------------------------------------------------------

    def remove_volume(self, made: Plan, images: t.Mapping[str, Image]) -> None:
        """Remove a volume. One that others were cloned from is kept under another name, until they are gone.

        :raises VolumeIsBusy: a client has it open, or it has a snapshot that did not only serve a clone.
        """
        name = made.image
        info = self.cluster.info(name)
        progress.mark_changed()
        if INCOMPLETE + name in images:
            self.remove_unfinished(INCOMPLETE + name)
        if info is None:
            return
        self.check_unused(name)
        snapshots = self.cluster.snapshots(name)
        others = sorted(snapshot for snapshot in snapshots if not snapshot.endswith(CLONE_SNAPSHOT))
        if others:
            raise VolumeIsBusy(
                message="deleting volume %s that has snapshot (%s)" % (name, ", ".join(others)),
                remedy="Delete the snapshots first. Remove a snapshot of another program with rbd snap rm.",
            )
        for snapshot in snapshots:
            self.drop_snapshot(name, snapshot)
        if self.cluster.snapshots(name):
            self.rename(name, name + DELETED)
            return
        self.cluster.remove(name)
        self.release_parent(_parent_of(info))

    def remove_snapshot(self, made: Plan) -> None:
        """Remove a snapshot. Volumes that were made from it are made independent of it first.

        :raises SnapshotIsBusy: an image of another pool was cloned from it.
        """
        progress.mark_changed()
        name = snapshot_name(made.desired.id)
        for child in self.cluster.children(made.image, name):
            if child.partition("/")[0] != self.cluster.pool:
                raise SnapshotIsBusy(
                    message="deleting snapshot %s that has dependent volumes (%s)" % (name, child),
                    remedy="Flatten or remove this image of the other pool.",
                )
            self.cluster.rbd("flatten", "--no-progress", child, timeout=LONG)
        if not self.drop_snapshot(made.image, name):
            raise SnapshotIsBusy(snapshot_name=name, remedy="Delete the volumes that were made from it.")

    def drop_snapshot(self, image: str, snapshot: str) -> bool:
        """Remove a snapshot from which nothing is cloned. Returns whether it is gone."""
        where = self.cluster.image(image, snapshot)
        try:
            with _allowing(errno.EINVAL, errno.ENOENT):  # it is not protected, or it is gone
                self.cluster.rbd("snap", "unprotect", where)
            with _allowing(errno.ENOENT):
                self.cluster.rbd("snap", "rm", "--no-progress", where)
        except RbdFailed as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True

    def release_parent(self, parent: Parent | None) -> None:
        """Remove a snapshot that only served a clone, and deleted volumes from which nothing is cloned any more, up the chain."""
        while parent is not None and parent.pool == self.cluster.pool and parent.snapshot.endswith(CLONE_SNAPSHOT):
            if not self.drop_snapshot(parent.image, parent.snapshot):
                return
            info = self.cluster.info(parent.image)
            if info is None:
                return
            ancestor = Image(parent.image, int(info["size"]), dict.fromkeys(self.cluster.snapshots(parent.image), 0))
            if not is_ended(ancestor):
                return
            self.cluster.remove(parent.image)
            parent = _parent_of(info)


def _parent_of(info: t.Mapping[str, t.Any]) -> Parent | None:
    row = info.get("parent")
    return Parent(str(row["pool"]), str(row["image"]), str(row["snapshot"])) if row else None


@contextlib.contextmanager
def _allowing(*numbers: int) -> t.Iterator[None]:
    try:
        yield
    except RbdFailed as error:
        if error.errno not in numbers:
            raise
