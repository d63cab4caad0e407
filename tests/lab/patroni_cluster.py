# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The PostgreSQL that fails over, of docs/failover.md: two database servers with Patroni and etcd, and etcd alone on a third.

A machine is an address of 127.0.0.0/8, so that all ports are those of the page, whose files are used: only addresses, folders and the
times of a failover differ. All of it is in one folder, and belongs to the user that PostgreSQL has, as it refuses to be root.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
import typing as t
import urllib.request

import psycopg
import yaml

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "failover.md"
# Of the lab: seconds in the place of the page's 30, 10, 10. Its machines are always fast.
TIMES = {"ttl": 15, "loop_wait": 2, "retry_timeout": 6}
PASSWORD = "ledgers-secret"  # of the role bootflow
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


def documented(path: str) -> str:
    """The file that the page shows: its block begins with a comment that names it."""
    found = re.search(r"^```\w*\n(# %s.*?)^```" % re.escape(path), PAGE.read_text(), re.S | re.M)
    assert found, "%s does not show %s" % (PAGE, path)
    return found[1]


class Machine:
    """One of the page's machines: etcd, and on a database server Patroni with its PostgreSQL."""

    def __init__(self, cluster: Cluster, name: str, address: str):
        self.cluster = cluster
        self.name = name
        self.address = address
        self.folder = os.path.join(cluster.folder, name)
        self.data = os.path.join(self.folder, "data")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def prepare(self) -> None:
        os.mkdir(self.folder)
        if self.name in DATABASES:
            pathlib.Path(self.folder, "patroni.yml").write_text(yaml.safe_dump(self._patroni()))
        for path in (self.folder, *glob.glob(self.folder + "/*")):
            if self.cluster.user:
                shutil.chown(path, self.cluster.user)

    def _etcd(self) -> dict[str, str]:
        lines = dict(line.split("=", 1) for line in self.cluster.here("/etc/default/etcd").splitlines() if "=" in line)
        own = {k: v.replace(self.cluster.addresses["db1"], self.address) for k, v in lines.items()}
        own["ETCD_INITIAL_CLUSTER"] = lines["ETCD_INITIAL_CLUSTER"]
        return {
            **own,
            "ETCD_NAME": self.name,
            "ETCD_DATA_DIR": os.path.join(self.folder, "etcd"),
            "ETCD_LOG_LEVEL": "warn",
        }

    def _patroni(self) -> dict[str, t.Any]:
        found: dict[str, t.Any] = yaml.safe_load(self.cluster.here("/etc/patroni/config.yml"))
        found["name"] = self.name
        for part in ("restapi", "postgresql"):
            for key in ("listen", "connect_address"):
                found[part][key] = found[part][key].replace(self.cluster.addresses["db1"], self.address)
        found["bootstrap"]["dcs"].update(TIMES)
        found["postgresql"].update(
            data_dir=self.data, bin_dir=self.cluster.programs, pgpass=os.path.join(self.folder, "pgpass")
        )
        found["postgresql"]["parameters"].update(
            unix_socket_directories=self.folder,
            fsync="off",  # no power is cut here
            dynamic_shared_memory_type="mmap",  # of a killed server, too, nothing is left
        )
        return found

    def start(self) -> None:
        self._run("etcd", ["etcd"], self._etcd())
        if self.name in DATABASES:
            self._run("patroni", ["patroni", os.path.join(self.folder, "patroni.yml")], {})

    def _run(self, name: str, command: list[str], environment: t.Mapping[str, str]) -> None:
        account: dict[str, t.Any] = {"user": self.cluster.user, "extra_groups": []} if self.cluster.user else {}
        with open(os.path.join(self.folder, name + ".log"), "ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
                env={**ENVIRONMENT, **environment}, **account,
            )  # fmt: skip

    def server_processes(self) -> list[int]:
        """PostgreSQL's first process, and all that it started."""
        try:
            first = int(pathlib.Path(self.data, "postmaster.pid").read_text().split()[0])
        except (OSError, IndexError, ValueError):
            return []
        found = [first]
        for path in glob.glob("/proc/[0-9]*/stat"):
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = pathlib.Path(path).read_text().rpartition(")")[2].split()
                if int(fields[1]) == first:
                    found.append(int(path.split("/")[2]))
        return found if os.path.exists("/proc/%d" % first) else []

    def power_off(self) -> None:
        """All of its processes are gone at once."""
        for pid in [*(p.pid for p in self.processes.values()), *self.server_processes()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.processes.values():
            process.wait()
        self.processes.clear()
        with contextlib.suppress(OSError, IndexError):  # as a machine that boots has lost it
            shared = pathlib.Path(self.data, "postmaster.pid").read_text().splitlines()[6].split()[1]
            subprocess.run(["ipcrm", "-m", shared], check=False, capture_output=True)

    def stop(self) -> None:
        """In order: Patroni stops PostgreSQL, which gives its shared memory back."""
        for name in ("patroni", "etcd"):
            process = self.processes.get(name)
            if process is not None and process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30)
        self.power_off()

    def ask(self, path: str) -> t.Any:
        """What Patroni's REST interface answers; None where it does not."""
        try:
            with urllib.request.urlopen("http://%s:8008%s" % (self.address, path), timeout=5) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    def connect(self, database: str = "postgres") -> t.Any:
        """As PostgreSQL's superuser."""
        password = self._patroni()["postgresql"]["authentication"]["superuser"]["password"]
        where = {"host": self.address, "dbname": database, "user": "postgres", "password": password}
        return psycopg.connect(**where, autocommit=True, connect_timeout=5)

    def log(self, name: str) -> str:
        return pathlib.Path(self.folder, name + ".log").read_text(errors="replace")


NUMBERS = {"db1": 11, "db2": 12, "witness": 13}
DATABASES = ("db1", "db2")


class Cluster:
    """The three machines; a context."""

    def __init__(self) -> None:
        for program in ("etcd", "patroni"):
            if shutil.which(program, path=ENVIRONMENT["PATH"]) is None:
                raise RuntimeError("%s is not installed: install the Debian packages patroni and etcd-server" % program)
        self.programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        self.user = "postgres" if os.getuid() == 0 else None
        self.folder = tempfile.mkdtemp(prefix="ledger-ha-", dir="/tmp")
        self.net = "127.%d.%d." % (random.randint(64, 250), random.randint(1, 250))
        self.addresses = {name: self.net + str(number) for name, number in NUMBERS.items()}
        self.machines = {name: Machine(self, name, address) for name, address in self.addresses.items()}
        self._proxy: subprocess.Popen[bytes] | None = None

    def here(self, path: str) -> str:
        """The file of the page with the addresses of this cluster."""
        # A connection to any address of 127.0.0.0/8 comes from 127.0.0.1.
        return documented(path).replace("10.0.0.0/24", "127.0.0.0/8").replace("10.0.0.", self.net)

    def __enter__(self) -> Cluster:
        try:
            os.chmod(self.folder, 0o755)
            for machine in self.machines.values():
                machine.prepare()
            for machine in self.machines.values():
                machine.start()
            self.wait_until_whole()
            with self.machines[t.cast(str, self.primary())].connect() as conn:
                conn.execute("CREATE ROLE bootflow LOGIN PASSWORD '%s'" % PASSWORD)
                conn.execute("CREATE DATABASE bootflow OWNER bootflow ENCODING 'UTF8' TEMPLATE template0")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._proxy is not None:
            self._proxy.kill()
            self._proxy.wait()
        for name in (*DATABASES, "witness"):
            self.machines[name].stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- addresses -------------------------------------------------------------------------------------------------

    def url(self, attributes: str = "read-write", order: t.Sequence[str] = DATABASES) -> str:
        hosts = ",".join(self.addresses[name] for name in order)
        return "postgresql://bootflow:%s@%s/bootflow?target_session_attrs=%s" % (PASSWORD, hosts, attributes)

    def proxy(self) -> str:
        """Start HAProxy; the URL through it."""
        configuration = os.path.join(self.folder, "haproxy.cfg")
        listen = self.addresses["witness"] + ":"
        pathlib.Path(configuration).write_text(self.here("/etc/haproxy/haproxy.cfg").replace("127.0.0.1:", listen))
        with open(os.path.join(self.folder, "haproxy.log"), "ab") as log:
            command = ["haproxy", "-db", "-f", configuration]
            self._proxy = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=ENVIRONMENT)
        return "postgresql://bootflow:%s@%s5000/bootflow?target_session_attrs=read-write" % (PASSWORD, listen)

    # --- its state -------------------------------------------------------------------------------------------------

    def members(self) -> list[dict[str, t.Any]]:
        """What Patroni says of the database servers; [] while none answers."""
        for name in DATABASES:
            found = self.machines[name].ask("/cluster")
            if found:
                return t.cast("list[dict[str, t.Any]]", found["members"])
        return []

    def primary(self) -> str | None:
        return next((m["name"] for m in self.members() if m["role"] == "leader" and m["state"] == "running"), None)

    def standby(self) -> str:
        return next(name for name in DATABASES if name != self.primary())

    def is_whole(self) -> bool:
        """One writes, the other is its synchronous standby."""
        roles = {m["role"]: m["state"] for m in self.members()}
        return roles.get("leader") == "running" and roles.get("sync_standby") in ("running", "streaming")

    def wait_until_whole(self) -> None:
        self.wait_for("one primary with its synchronous standby", self.is_whole)

    def wait_for_another_primary(self, than: str) -> str:
        def another() -> bool:
            return self.primary() not in (None, than)

        self.wait_for("a primary that is not %s" % than, another)
        return next(name for name in DATABASES if name != than)

    def wait_for(self, what: str, condition: t.Callable[[], t.Any], seconds: float = 180) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "waited %g s for %s: %s\n%s" % (seconds, what, self.members(), self.logs())
            time.sleep(0.2)

    def logs(self) -> str:
        found = []
        for machine in self.machines.values():
            for name in ("etcd", "patroni"):
                with contextlib.suppress(OSError):
                    found.append("%s of %s:\n%s" % (name, machine.name, machine.log(name)[-2000:]))
        return "\n".join(found)
