# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Ceph cluster as seen by one of its users: the programs ``rbd`` and ``ceph``, each with time limits. Nothing else here runs them.

No file of the host is read but the programs: monitors, user and key are arguments of the module. A cluster that is away would have the programs wait
for minutes or for ever, so each gives its connection and each request five seconds, and is killed at its own limit.

source: Ceph 16 and 18 as tried; the programs read their key file more than once, so it is a file, in a folder of this process alone
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import tempfile
import typing as t
from dataclasses import dataclass

from ...core.errors import (
    BootflowError,
    RbdFailed,
    StorageClusterFull,
    StorageClusterUnavailable,
    VolumeBackendAPIException,
)
from ...core.volumes.rbd_names import checked_key, checked_pool, checked_user, monitor
from ..os import command
from ..os.locks import LOCK_ROOT
from ..os.paths import make_dirs

PACKAGE = "ceph-common"
#: Seconds that a program waits for the monitors, and for an answer of an OSD.
PATIENCE = 5
#: Seconds after which a program that only asks, or changes what is not data, is killed.
SHORT = 60.0
#: For how long a client is fenced: five years. source: ceph-csi (blocklistTime)
FENCE_SECONDS = "157784760"
_ERRNO = re.compile(r"\((\d{1,3})\) ")
_OPTIONS = ("--client_mount_timeout", str(PATIENCE), "--rados_osd_op_timeout", str(PATIENCE))
_MIB = 1024**2

CLUSTER_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "monitors": {"type": "list", "elements": "str", "required": True},
    "user": {"type": "str", "required": True},
    "key": {"type": "str", "required": True, "no_log": True},
}


@dataclass(frozen=True)
class ClusterState:
    """The state of a cluster and of one pool. ``full``: why writes to the pool wait; ``figures``: whether a manager counts what is stored."""

    fsid: str
    full: str
    figures: bool


class Cluster:
    """One pool of a cluster. As a context manager it has the file with the key; it is gone afterwards.

    :raises InvalidInput: a monitor, the user, the key or the pool has no valid form.
    """

    def __init__(self, pool: str, monitors: t.Sequence[str], user: str, key: str, parent: str = LOCK_ROOT):
        self.pool = checked_pool(pool)
        self.monitors = [monitor(address) for address in monitors]
        self.user = checked_user(user)
        self._key = checked_key(key)
        self._parent = parent
        self._folder = ""

    def __enter__(self) -> Cluster:
        make_dirs(self._parent)
        self._folder = tempfile.mkdtemp(prefix="ceph-", dir=self._parent)
        try:
            fd = os.open(self._key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w", encoding="ascii") as file:
                file.write(self._key + "\n")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *dummy_args: object) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""

    @property
    def _key_file(self) -> str:
        return os.path.join(self._folder, "key")

    def image(self, name: str, snapshot: str = "") -> str:
        """Return POOL/IMAGE, or POOL/IMAGE@SNAPSHOT."""
        return "%s/%s%s" % (self.pool, name, "@" + snapshot if snapshot else "")

    # --- programs -----------------------------------------------------------------------------------------------------

    def argv(self, name: str, *arguments: str) -> list[str]:
        """Return the argument list of a program of Ceph."""
        path = command.program(name, PACKAGE)
        who = ("-c", os.devnull, "-m", ",".join(self.monitors), "--id", self.user, "--keyfile", self._key_file)
        return [path, *who, *_OPTIONS, *arguments]

    def rbd(self, *arguments: str, timeout: float = SHORT) -> str:
        """Run ``rbd``. Returns its output. :raises RbdFailed: it failed. :raises StorageClusterUnavailable: the cluster does not answer."""
        return self._run(self.argv("rbd", *arguments), timeout)

    def ceph(self, *arguments: str) -> t.Any:
        """Return what ``ceph`` answers, from its JSON."""
        return self._json("ceph " + arguments[0], self._ceph("--format", "json", *arguments))

    def _ceph(self, *arguments: str) -> str:
        return self._run(self.argv("ceph", "--connect-timeout", str(PATIENCE), *arguments), 4 * PATIENCE)

    def _run(self, argv: t.Sequence[str], timeout: float) -> str:
        done = command.run(argv, timeout=timeout, check=False, outlives=False)
        if done.rc == 0:
            return done.stdout
        said = [line for line in done.stderr.splitlines() if line.strip()]
        reason = next((line for line in reversed(said) if not _is_log(line)), said[-1] if said else "exit %d" % done.rc)
        numbers = [int(number) for number in _ERRNO.findall(done.stderr)]
        if done.rc == command.TIMED_OUT or errno.ETIMEDOUT in numbers or "couldn't connect" in done.stderr:
            if errno.EACCES in numbers or errno.EPERM in numbers:
                reason = "user %s is not admitted" % self.user
            elif done.rc == command.TIMED_OUT:
                reason = "no answer within %d s" % timeout
            raise StorageClusterUnavailable(pool=self.pool, reason=reason)
        failed = RbdFailed(command=os.path.basename(argv[0]), reason=reason[-500:])
        # The exit code is the number itself, of messages that have none.
        failed.errno = numbers[-1] if numbers else done.rc
        raise failed

    def _json(self, what: str, text: str) -> t.Any:
        try:
            return json.loads(text)
        except ValueError:
            raise VolumeBackendAPIException(data="%s answered no JSON" % what) from None

    def ask(self, *arguments: str) -> t.Any:
        """Return what ``rbd`` answers to a question, from its JSON."""
        text = self.rbd(*arguments, "--format", "json")
        return self._json("rbd " + arguments[0], text) if text.strip() else None  # an image without metadata

    # --- the cluster --------------------------------------------------------------------------------------------------

    def state(self) -> ClusterState:
        """Ask monitors and OSDs. :raises StorageClusterUnavailable: one of them does not answer, or the pool does not exist."""
        osds = self.ceph("osd", "dump")
        pools = [pool for pool in osds.get("pools") or () if pool.get("pool_name") == self.pool]
        if not pools:
            raise StorageClusterUnavailable(
                pool=self.pool, reason="the cluster has no pool of this name", remedy="Create it: ceph osd pool create."
            )
        self.names()  # an OSD that hangs is "up" for minutes
        status = self.ceph("status")
        figures = bool((status.get("mgrmap") or {}).get("available"))
        return ClusterState(str(osds["fsid"]), full_reason(osds, pools[0]), figures)

    def checked(self, writing: bool) -> ClusterState:
        """Return the state. :raises StorageClusterFull: the pool is full, and ``writing`` says that it is to be written to."""
        state = self.state()
        if writing and state.full:
            raise StorageClusterFull(pool=self.pool, reason=state.full)
        return state

    def figures(self) -> tuple[int, int, int]:
        """Return bytes that are stored in the pool, that can be, and that its quota allows; 0: no quota.

        :raises StorageClusterUnavailable: no manager has counted the pool.
        """
        answer = self.ceph("df")
        stats = next((p.get("stats") or {} for p in answer.get("pools") or () if p.get("name") == self.pool), None)
        if stats is None or "max_avail" not in stats:
            raise no_figures(self.pool)
        quota = self.ceph("osd", "pool", "get-quota", self.pool)
        return int(stats["stored"]), int(stats["max_avail"]), int(quota.get("quota_max_bytes") or 0)

    # --- images -------------------------------------------------------------------------------------------------------

    def names(self) -> set[str]:
        """Return the names of all images of the pool."""
        return {str(name) for name in self.ask("ls", self.pool) or ()}

    def rows(self) -> list[dict[str, t.Any]]:
        """Return all images and snapshots of the pool with their sizes and parents."""
        return list(self.ask("ls", "--long", self.pool) or ())

    def info(self, name: str, snapshot: str = "") -> dict[str, t.Any] | None:
        """Return what rbd knows of an image or snapshot; None: it is not in the pool, as a list of the pool says, too."""
        try:
            return dict(self.ask("info", self.image(name, snapshot)))
        except RbdFailed as error:
            if error.errno != errno.ENOENT:
                raise
        if name in self.names() and not snapshot:
            raise VolumeBackendAPIException(data="image %s is listed, and cannot be opened" % self.image(name))
        return None

    def metadata(self, name: str) -> dict[str, str]:
        """Return the metadata of an image."""
        return {str(k): str(v) for k, v in (self.ask("image-meta", "list", self.image(name)) or {}).items()}

    def set_metadata(self, name: str, values: t.Mapping[str, str]) -> None:
        for key, value in values.items():
            self.rbd("image-meta", "set", self.image(name), key, value)

    def snapshots(self, name: str) -> dict[str, dict[str, t.Any]]:
        """Return the snapshots of an image, by name."""
        return {str(row["name"]): row for row in self.ask("snap", "ls", self.image(name)) or ()}

    def children(self, name: str, snapshot: str) -> list[str]:
        """Return the clones of a snapshot, as POOL/IMAGE."""
        return ["%s/%s" % (row["pool"], row["image"]) for row in self.ask("children", self.image(name, snapshot)) or ()]

    def watchers(self, name: str) -> list[str]:
        """Return the addresses of the clients that have the image open."""
        return [str(row["address"]) for row in self.ask("status", self.image(name)).get("watchers") or ()]

    def lock_owners(self, name: str) -> list[str]:
        """Return the addresses of the clients that wrote to the image last: a client that lost its watch may come back to it."""
        return [str(row["address"]) for row in self.ask("lock", "ls", self.image(name)) or () if row.get("address")]

    def remove(self, name: str) -> None:
        """Remove an image, and look whether it is gone: of a full pool ``rbd rm`` may say "not found" and remove nothing.

        :raises VolumeBackendAPIException: it is still there.
        """
        try:
            self.rbd("rm", "--no-progress", self.image(name), timeout=3600.0)
        except RbdFailed as error:
            if error.errno != errno.ENOENT:
                raise
        if name in self.names():
            raise VolumeBackendAPIException(
                data="image %s is still in the pool after its removal" % self.image(name),
                remedy="Look whether the pool is full (ceph health detail), then delete the volume again.",
            )

    def resize(self, name: str, size: int) -> None:
        """Grow an image. Sizes are whole MiB: QEMU counts sectors."""
        self.rbd("resize", "--no-progress", "--size", "%dM" % (-(-size // _MIB)), self.image(name))

    def fence(self, address: str) -> None:
        """Have the cluster refuse a client, which has an image open, from now on.

        By default that ends after an hour, and a guest that did not write in this time would write again. A client that starts later has another address.
        """
        self._ceph("osd", "blocklist", "add", address, FENCE_SECONDS)


def no_figures(pool: str) -> BootflowError:
    return StorageClusterUnavailable(
        pool=pool,
        reason="it has no manager that counts what is stored, so its figures are none, or old",
        remedy="Start a manager (ceph-mgr). Volumes that exist can be used without one.",
    )


def full_reason(osds: t.Mapping[str, t.Any], pool: t.Mapping[str, t.Any]) -> str:
    """Return why writes to a pool wait, by `ceph osd dump`; "" if they do not."""
    flags = str(pool.get("flags_names") or "").split(",")
    if "full_quota" in flags:
        return "its quota is reached"
    if "full" in flags or "full" in str(osds.get("flags") or "").split(","):
        return "the disks of the cluster are full"
    return ""


def _is_log(line: str) -> bool:
    """Whether a line is one of the log, which begins with a time."""
    return bool(re.match(r"\d{4}-\d\d-\d\dT", line))


@contextlib.contextmanager
def opened(args: t.Mapping[str, t.Any]) -> t.Iterator[Cluster]:
    """Open the cluster of a module's arguments."""
    with Cluster(args["pool"], args["monitors"], args["user"], args["key"]) as cluster:
        yield cluster
