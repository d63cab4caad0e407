# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the collection's playbooks against the lab as a user would, and looks at what is left where."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import typing as t
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("BOOTFLOW_CACHE", ROOT / ".cache"))
PLAYBOOK = str(Path(sys.executable).parent / "ansible-playbook")

# Its private half was thrown away.
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKnMZ7zpKone94Qf1WdxfLIwlVeHizLtLkO1VfU4fAVz ops@example.org"
FLAVORS = [
    {"name": "tiny", "vcpus": 1, "memory_mb": 192, "root_gb": 1},
    {"name": "full", "vcpus": 1, "memory_mb": 192, "root_gb": 1, "ephemeral_gb": 1, "swap": 64},
    {"name": "huge", "vcpus": 1, "memory_mb": 9000000, "root_gb": 1},
]
GUEST_NETWORK = {
    "name": "guests",
    "type": "network",
    "source": "bf-guests",
    "manage": True,
    "subnets": [
        {
            "name": "guests-v4",
            "cidr": "10.77.0.0/24",
            "allocation_pools": [{"start": "10.77.0.10", "end": "10.77.0.250"}],
            "dns_nameservers": ["10.77.0.1"],
        }
    ],
}


def build_guest_image(*options: str) -> Path:
    """The qcow2 that scripts/build-guest-image makes; its sha256 is in the file beside it (.sha256)."""
    argv = [str(ROOT / "scripts" / "build-guest-image"), str(CACHE / "guest"), *options]
    return Path(subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())


def image_file(image: Path) -> dict[str, str]:
    """What an entry of bootflow_images says of a file that has its checksum beside it."""
    return {"path": str(image), "checksum": "sha256:" + Path(str(image) + ".sha256").read_text().split()[0]}


def family_of(pid: int) -> list[int]:
    """A process and all that it started, and those in turn."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    family = [pid]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family


def kill_run(process: subprocess.Popen) -> None:
    """SIGKILL to a run and its workers, which are in sessions of their own and would go on."""
    for pid in family_of(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def run_plainly(folder: Path, *arguments: str, timeout: float = 120, **environment: str) -> tuple[int, str]:
    """ansible-playbook with these arguments. Returns its exit code and output."""
    done = subprocess.run(
        [PLAYBOOK, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
        env={
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": os.environ["PYTHONPATH"].split(os.pathsep)[0],
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
            **environment,
        },
    )
    return done.returncode, done.stdout


@dataclass
class Run:
    returncode: int
    output: str


class Flow:
    """One ledger, one catalogue, the lab's hosts."""

    def __init__(self, lab, folder: Path, image: Path):
        self.lab = lab
        self.folder = folder
        self.ledger_path = folder / "ledger.db"
        self.calls = 0
        self.variables = {
            "bootflow_ledger_url": "sqlite:///%s" % self.ledger_path,
            "bootflow_virt_type": "qemu",
            "bootflow_flavors": FLAVORS,
            "bootflow_networks": [GUEST_NETWORK],
            "bootflow_images": [
                {
                    "name": "guest",
                    **image_file(image),
                    "disk_format": "qcow2",
                    "min_disk": 1,
                    "min_ram": 128,
                }
            ],
            "bootflow_keypairs": [{"name": "ops", "public_key": PUBLIC_KEY}],
        }

    def arguments(self, playbook: str, variables: dict, *options: str) -> list[str]:
        self.calls += 1
        path = self.folder / ("variables-%d.json" % self.calls)
        path.write_text(json.dumps({**self.variables, **variables}))
        return [
            PLAYBOOK,
            "bootflow.compute.%s" % playbook,
            "-i",
            self.lab.inventory,
            "-e",
            "@%s" % path,
            *options,
        ]

    def environment(self, **more: str) -> dict[str, str]:
        tree = os.environ["PYTHONPATH"].split(os.pathsep)[0]
        return {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": tree,
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
            "ANSIBLE_NOCOLOR": "1",
            "PYTHONUNBUFFERED": "1",  # watch is read while it runs
            "ANSIBLE_FORKS": "10",
            "ANSIBLE_TIMEOUT": "5",
            **more,
        }

    def run(self, playbook: str, *options: str, timeout: int = 600, **variables) -> Run:
        done = subprocess.run(
            self.arguments(playbook, variables, *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment(),
            cwd=self.folder,
            timeout=timeout,
            check=False,
        )
        return Run(done.returncode, done.stdout)

    def run_together(self, *runs: tuple[t.Any, ...], timeout: int = 600) -> list[Run]:
        """Playbooks, all at once. :arg runs: (playbook, variables, *options)"""
        begun = [
            subprocess.Popen(
                self.arguments(*run),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=self.environment(),
                cwd=self.folder,
            )
            for run in runs
        ]
        try:
            outputs = [process.communicate(timeout=timeout)[0] for process in begun]
        finally:
            for process in begun:
                if process.poll() is None:
                    self.kill(process)
        return [Run(process.returncode, output) for process, output in zip(begun, outputs)]

    def boot(self, *entries: dict, options: tuple[str, ...] = (), expect: int = 0, **variables) -> Run:
        done = self.run("boot", *options, bootflow_instances=list(entries), **variables)
        assert done.returncode == expect, done.output
        return done

    def delete(self, *names: str, expect: int = 0, **variables) -> Run:
        done = self.run("delete", bootflow_names=list(names), bootflow_missing_ok=True, **variables)
        assert done.returncode == expect, done.output
        return done

    def start(self, playbook: str, variables: dict, **environment: str) -> subprocess.Popen:
        """The playbook in a process group of its own, to be killed."""
        return subprocess.Popen(
            self.arguments(playbook, variables),
            stdout=(self.folder / "killed.log").open("wb"),
            stderr=subprocess.STDOUT,
            env=self.environment(**environment),
            cwd=self.folder,
            start_new_session=True,
        )

    @staticmethod
    def kill(process: subprocess.Popen) -> None:
        """SIGKILL to the run and all of its workers, as a machine that dies would."""
        kill_run(process)

    # --- what is where ------------------------------------------------------------------------------------------------

    def query(self, sql: str, *arguments) -> list[sqlite3.Row]:
        if not self.ledger_path.exists():
            return []
        connection = sqlite3.connect("file:%s?mode=ro" % self.ledger_path, uri=True, timeout=30)
        connection.row_factory = sqlite3.Row
        try:
            return connection.execute(sql, arguments).fetchall()
        finally:
            connection.close()

    def instances(self) -> dict[str, sqlite3.Row]:
        return {r["display_name"]: r for r in self.query("SELECT * FROM instances WHERE deleted = ''")}

    def wait_for(self, sql: str, timeout: float, process: subprocess.Popen) -> None:
        """Until the query has an answer; an error when the run ends before."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            try:
                if self.query(sql):
                    return
            except sqlite3.OperationalError:
                pass
            if process.poll() is not None:
                raise AssertionError("the run ended first:\n" + (self.folder / "killed.log").read_text()[-3000:])
            time.sleep(0.02)
        raise AssertionError("never true: %s" % sql)

    def console(self, host: str, uuid: str) -> str:
        return self.lab.host(host).run("cat", "/var/lib/bootflow/instances/%s/console.log" % uuid).stdout

    def residue(self) -> dict[str, object]:
        """What is left of instances, on every host and in the ledger; empty when there is nothing."""
        return {**self.left_on_hosts(), **self.left_in_the_ledger()}

    def left_on_hosts(self) -> dict[str, object]:
        """Domains and files of instances."""
        found: dict[str, object] = {}
        for host in self.lab.hosts:
            domains = host.run("virsh", "-q", "-c", "qemu:///system", "list", "--all", "--name").stdout.split()
            files = [
                name
                for name in host.run("sh", "-c", "ls -A /var/lib/bootflow/instances 2>/dev/null || true").stdout.split()
                if not name.startswith("_") and name != "locks"
            ]
            if domains:
                found["domains on %s" % host.name] = domains
            if files:
                found["files on %s" % host.name] = files
        return found

    def left_in_the_ledger(self) -> dict[str, object]:
        """Rows and usage of instances."""
        found: dict[str, object] = {}
        for table in ("claims", "ports", "ip_allocations", "cleanups", "block_device_mappings"):
            rows = self.query("SELECT count(*) AS n FROM %s" % table)
            if rows and rows[0]["n"]:
                found[table] = rows[0]["n"]
        for row in self.query(
            "SELECT host, memory_mb_used - reserved_memory_mb AS m, local_gb_used - reserved_disk_gb AS d,"
            " vcpus_used - reserved_vcpus AS c, num_instances AS n FROM compute_nodes"
        ):
            if any((row["m"], row["d"], row["c"], row["n"])):
                found["usage of %s" % row["host"]] = tuple(row)
        living = self.query("SELECT display_name FROM instances WHERE deleted = ''")
        if living:
            found["instances"] = [r["display_name"] for r in living]
        return found

    def check_ledger(self) -> None:
        """Laws that hold at any time: usage is what is reserved plus the sum of the claims; one owner per address."""
        for row in self.query(
            "SELECT n.host, n.memory_mb_used - n.reserved_memory_mb AS m, n.local_gb_used - n.reserved_disk_gb AS d,"
            " n.vcpus_used - n.reserved_vcpus AS c, coalesce(sum(k.memory_mb), 0) AS km, coalesce(sum(k.disk_gb), 0) AS kd,"
            " coalesce(sum(k.vcpus), 0) AS kc FROM compute_nodes n LEFT JOIN claims k ON k.compute_node_id = n.id GROUP BY n.id"
        ):
            assert (row["m"], row["d"], row["c"]) == (row["km"], row["kd"], row["kc"]), tuple(row)


def entry(name: str, **fields) -> dict:
    """An entry of bootflow_instances with the usual flavor, image and network."""
    return {"name": name, "flavor": "tiny", "image": "guest", "networks": [{"network": "guests"}], **fields}


@contextlib.contextmanager
def settings_of_host(lab, host: str, **variables) -> t.Iterator[None]:
    """Inventory variables of one host, in host_vars beside the lab's inventory."""
    path = Path(lab.inventory).parent / "host_vars" / ("%s.yml" % host)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(variables))
    try:
        yield
    finally:
        path.unlink()
        path.parent.rmdir()
