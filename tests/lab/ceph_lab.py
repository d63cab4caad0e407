# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real Ceph for tests: one monitor, one OSD whose data is in memory, and one manager, without systemd. Nothing of it is outside its folder.

Needs root and the Debian packages ceph-mon, ceph-osd, ceph-mgr and ceph-common (PACKAGES_CEPH of scripts/lib.sh).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path

PROGRAMS = ("ceph-mon", "ceph-osd", "ceph-mgr", "ceph", "rbd", "ceph-authtool", "monmaptool")
USER = "compute"

CONFIGURATION = """\
[global]
fsid = {fsid}
mon_host = [v2:{address}:3300,v1:{address}:6789]
public_addr = {address}
run_dir = {folder}/run
admin_socket = {folder}/run/$name.$pid.asok
keyring = {folder}/keyring
log_file = {folder}/run/$name.log
pid_file = {folder}/run/$type.pid
crash_dir = {folder}/run
osd_pool_default_size = 1
osd_pool_default_pg_autoscale_mode = off
auth_allow_insecure_global_id_reclaim = false
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
osd_crush_chooseleaf_type = 0
mgr_pool = false
[mon]
mon_data = {folder}/mon
mon_data_avail_warn = 1
mon_data_avail_crit = 1
mon_cluster_log_file = {folder}/run/cluster.log
paxos_propose_interval = 0.05
[osd]
osd_data = {folder}/osd
osd_objectstore = memstore
memstore_device_bytes = {size}
[mgr]
mgr_data = {folder}/mgr
mgr_stats_period = 1
mgr_initial_modules =
"""

#: Who a daemon or client is -> what it may.
CAPABILITIES = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "osd": "allow *", "mgr": "allow *"},
    "osd.0": {"mon": "allow profile osd", "osd": "allow *", "mgr": "allow profile osd"},
    "mgr.x": {"mon": "allow profile mgr", "osd": "allow *"},
}


class CephLab:
    """One cluster. :arg address: of this machine, where its monitor, OSD and manager listen."""

    def __init__(self, folder: str | Path, address: str = "127.0.0.1", size: int = 10 * 1024**3):
        self.folder = Path(folder).resolve()
        self.address, self.size = address, size
        self.fsid = ""
        self.monitors = ["%s:6789" % address]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "CEPH_CONF": str(self.folder / "ceph.conf"), "LC_ALL": "C"}

    def sh(self, *argv: str, check: bool = True, timeout: float = 60) -> str:
        """Run a program as the cluster's administrator. Returns what it wrote to its standard output."""
        done = subprocess.run(
            argv,
            cwd="/",  # an OSD of Debian 13 looks for its classes relative to its folder
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, "%s: exit %d: %s" % (" ".join(argv), done.returncode, done.stderr)
        return done.stdout

    def start(self, manager: bool = True) -> CephLab:
        """Make the cluster and start it."""
        lacking = [name for name in PROGRAMS if shutil.which(name) is None]
        assert not lacking, "not installed: %s (PACKAGES_CEPH of scripts/lib.sh)" % ", ".join(lacking)
        self.stop()
        for name in ("mon", "osd", "mgr", "run"):
            (self.folder / name).mkdir(parents=True, mode=0o700)
        self.fsid = str(uuid.uuid4())
        text = CONFIGURATION.format(fsid=self.fsid, address=self.address, folder=self.folder, size=self.size)
        (self.folder / "ceph.conf").write_text(text)
        keyring = self.folder / "keyring"
        keyring.touch(mode=0o600)
        keyring.write_text("".join(self._section(name, caps) for name, caps in CAPABILITIES.items()))
        where = "[v2:%s:3300,v1:%s:6789]" % (self.address, self.address)
        monmap = str(self.folder / "monmap")
        self.sh("monmaptool", "--create", "--fsid", self.fsid, "--addv", "a", where, monmap)
        self.sh("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", str(keyring))
        self.start_daemon("mon")
        osd = str(uuid.uuid4())
        self.sh("ceph", "osd", "new", osd)
        self.sh("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.start_daemon("osd")
        if manager:
            self.start_daemon("mgr")
        return self

    def _section(self, name: str, capabilities: dict[str, str]) -> str:
        lines = ["[%s]" % name, "\tkey = %s" % self.sh("ceph-authtool", "--gen-print-key").strip()]
        return "\n".join([*lines, *('\tcaps %s = "%s"' % cap for cap in capabilities.items()), ""])

    def start_daemon(self, kind: str) -> None:
        self.sh("ceph-%s" % kind, "-i", {"mon": "a", "osd": "0", "mgr": "x"}[kind])

    def kill_daemon(self, kind: str) -> None:
        """SIGKILL, and wait for its end. Without its OSD a cluster hangs; what a memstore had is gone."""
        self._kill(self.pid_of(kind))

    def pid_of(self, kind: str) -> int:
        return int((self.folder / "run" / ("%s.pid" % kind)).read_text() or 0)

    def freeze(self, kind: str) -> None:
        """Stop a daemon: the cluster hangs, and has all of its data when it is thawed."""
        os.kill(self.pid_of(kind), signal.SIGSTOP)

    def thaw(self, kind: str) -> None:
        os.kill(self.pid_of(kind), signal.SIGCONT)

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            end = time.monotonic() + 20
            while _runs(pid):
                assert time.monotonic() < end, "process %d did not end" % pid
                time.sleep(0.05)

    def stop(self) -> None:
        """Kill all daemons, and remove the folder."""
        for kind in ("mgr", "osd", "mon"):
            with contextlib.suppress(FileNotFoundError, ValueError):
                self.kill_daemon(kind)
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- pools and users ------------------------------------------------------------------------------------------------

    def pool(self, name: str) -> None:
        self.sh("ceph", "osd", "pool", "create", name, "8", "8")
        self.sh("rbd", "pool", "init", name)

    def user(self, *pools: str, name: str = USER) -> str:
        """Make a user of these pools, with the profile that clients of RBD need. Returns its key."""
        osd = ", ".join("profile rbd pool=%s" % pool for pool in pools)
        self.sh("ceph", "auth", "get-or-create", "client.%s" % name, "mon", "profile rbd", "osd", osd)
        return self.sh("ceph", "auth", "print-key", "client.%s" % name).strip()

    def images(self, pool: str) -> list[str]:
        return sorted(json.loads(self.sh("rbd", "ls", "--format", "json", pool)))

    def watchers(self, pool: str, image: str) -> list[str]:
        said = json.loads(self.sh("rbd", "status", "--format", "json", "%s/%s" % (pool, image)))
        return [watcher["address"] for watcher in said["watchers"]]

    def wait_for_figures(self, pool: str, timeout: float = 60) -> None:
        """Wait until the manager counts the pool."""
        end = time.monotonic() + timeout
        while True:
            said = json.loads(self.sh("ceph", "df", "--format", "json"))
            if any(p["name"] == pool and p["stats"].get("max_avail") for p in said["pools"]):
                return
            assert time.monotonic() < end, "the manager does not count pool %s: %s" % (pool, said)
            time.sleep(0.3)


def _runs(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        stat = Path("/proc/%d/stat" % pid).read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
