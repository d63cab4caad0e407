# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks against the lab and a real Ceph. The third host of the lab is the storage host: it has ceph-common, and no file of Ceph."""

from __future__ import annotations

import contextlib
import json
import typing as t
from pathlib import Path

import ceph_lab
from flow import Flow

POOL, BACKEND = "volumes", "ceph"
STORAGE = "compute3"
ROOM = "/run/bootflow"


class CephFlow(Flow):
    """A new ledger, compute1 and compute2, and compute3 as the storage host of a pool."""

    pool = POOL

    def __init__(self, lab: t.Any, folder: Path, image: Path, ceph: ceph_lab.CephLab, key: str):
        super().__init__(lab, folder, image)
        self.ceph, self.key = ceph, key
        host = lab.host(STORAGE)
        self.inventory = str(folder / "ceph.json")
        backend = {
            "name": BACKEND,
            "driver": "rbd",
            "rbd_pool": POOL,
            "rbd_user": ceph_lab.USER,
            "rbd_monitors": ceph.monitors,
        }
        variables = {
            "bootflow_storage_backends": [backend],
            "bootflow_rbd_keys": {BACKEND: key},
            "bootflow_storage_ip": host.address,
        }
        hosts = {"bootflow_storage": {"hosts": {STORAGE: variables}}}
        Path(self.inventory).write_text(json.dumps(hosts))
        self.variables.update(bootflow_allow_forced_host=True, bootflow_facts_max_age=0)

    def arguments(self, playbook: str, variables: dict, *options: str) -> list[str]:
        argv = super().arguments(playbook, variables, *options)
        return [*argv[:2], "-i", self.inventory, *argv[2:]]

    def must(self, playbook: str, *options: str, **variables: t.Any) -> str:
        done = self.run(playbook, *options, **variables)
        assert done.returncode == 0, done.output
        return done.output

    def create(self, *entries: dict[str, t.Any]) -> None:
        self.must("volume_create", bootflow_volumes=list(entries))

    def volumes(self) -> dict[str, t.Any]:
        return {row["name"]: row for row in self.query("SELECT * FROM volumes WHERE deleted = ''")}

    def image(self, name: str) -> str:
        """The image of a volume."""
        return "volume-%s" % self.volumes()[name]["id"]

    def size(self, name: str) -> int:
        return int(
            json.loads(self.ceph.sh("rbd", "info", "--format", "json", "%s/%s" % (POOL, self.image(name))))["size"]
        )

    def watchers(self, name: str) -> list[str]:
        return self.ceph.watchers(POOL, self.image(name))

    def secrets(self, host: str) -> list[str]:
        said = self.lab.host(host).run("virsh", "-q", "-c", "qemu:///system", "secret-list").stdout
        return [line.split()[0] for line in said.splitlines() if line.strip()]

    def virsh(self, host: str, *arguments: str, check: bool = True) -> str:
        return str(self.lab.host(host).run("virsh", "-q", "-c", "qemu:///system", *arguments, check=check).stdout)

    def domain(self, name: str) -> str:
        (row,) = self.query("SELECT domain_name FROM instances WHERE deleted = '0' AND display_name = ?", name)
        return str(row["domain_name"])

    def everything_written(self) -> str:
        """All that the runs left on the controller and in the ledger."""
        tables = self.query("SELECT name FROM sqlite_master WHERE type = 'table'")
        rows = [tuple(r) for table in tables for r in self.query("SELECT * FROM %s" % table["name"])]
        return json.dumps(rows, default=str)

    def key_files(self) -> list[str]:
        """Files with keys on the storage host."""
        said = self.lab.host(STORAGE).run("sh", "-c", "ls -d %s/ceph-* 2>/dev/null || true" % ROOM).stdout
        return str(said).split()

    def clear(self) -> None:
        """Remove what is left, so that the next test has an empty pool."""
        with contextlib.suppress(AssertionError):
            self.ceph.sh("ceph", "osd", "blocklist", "clear")
        for _attempt in range(3):
            for name in self.ceph.images(self.pool):
                target = "%s/%s" % (self.pool, name)
                for child in self.ceph.sh("rbd", "children", "--all", target, check=False).split():
                    self.ceph.sh("rbd", "flatten", "--no-progress", child, check=False)
                rows = json.loads(self.ceph.sh("rbd", "snap", "ls", "--format", "json", target) or "[]")
                for row in rows:
                    self.ceph.sh("rbd", "snap", "unprotect", "%s@%s" % (target, row["name"]), check=False)
                self.ceph.sh("rbd", "snap", "purge", "--no-progress", target, check=False)
                self.ceph.sh("rbd", "rm", "--no-progress", target, check=False)
