# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the collection's playbooks on simulated hosts (simulated_host.py), with a ledger of its own."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import time
import types
import typing as t
from pathlib import Path

import opened_ledgers
from flow import PLAYBOOK, ROOT, Flow
from simulated_host import FAILS, ITEMS_FAIL, NONSENSE, PROBLEMS, SLOW, UNREACHABLE, SimulatedHost

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.tests.unit.worlds import ledger_exceptions

HOSTS = ("kvm1", "kvm2", "kvm3")
FLAVORS = [
    {"name": "small", "vcpus": 1, "memory_mb": 2048, "root_gb": 20},
    {"name": "large", "vcpus": 4, "memory_mb": 12288, "root_gb": 40},
    {"name": "huge", "vcpus": 1, "memory_mb": 9000000, "root_gb": 1},
]
IMAGE = {
    "name": "debian",
    "url": "http://images.example/debian.qcow2",
    "disk_format": "qcow2",
    "allow_unverified": True,
}
NETWORK = {
    "name": "lan",
    "type": "network",
    "source": "bf-lan",
    "manage": True,
    "subnets": [{"name": "lan-v4", "cidr": "10.9.0.0/24", "enable_dhcp": True}],
}


class Host(SimulatedHost):
    """What a test does with a simulated host."""

    def read(self) -> dict[str, t.Any]:
        with self.state() as state:
            return state

    def fails(self, module: str, error: errors.BootflowError, times: int | None = None) -> None:
        """The module fails as a whole."""
        self._add(module, FAILS, times, error=error.as_dict())

    def items_fail(self, module: str, error: errors.BootflowError, times: int | None = None) -> None:
        """Each item of the module fails; also where it is a part of the module instance_build."""
        self._add(module, ITEMS_FAIL, times, error=error.as_dict())

    def says(self, module: str, text: str, times: int | None = None) -> None:
        """The module prints ``text`` in place of its answer, and does nothing."""
        self._add(module, NONSENSE, times, text=text)

    def is_silent(self, module: str = "*", times: int | None = None) -> None:
        """The connection to the host fails."""
        self._add(module, UNREACHABLE, times)

    def is_slow(self, module: str, seconds: float, times: int | None = None, after: bool = False) -> None:
        """The module waits before it begins, or after its work."""
        self._add(module, SLOW, times, seconds=seconds, after=after)

    def _add(self, module: str, kind: str, times: int | None, **more: t.Any) -> None:
        with self.state() as state:
            state["faults"].append({"module": module, "kind": kind, "times": times, **more})

    def heal(self) -> None:
        """Remove all faults."""
        with self.state() as state:
            state["faults"] = []

    def has_facts(self, **facts: t.Any) -> None:
        with self.state() as state:
            state["model"]["facts"].update(facts)

    def asked(self) -> list[str]:
        """The modules that came to the host until now."""
        return list(self.read()["asked"])

    @property
    def domains(self) -> dict[str, dict[str, t.Any]]:
        return dict(self.read()["model"]["domains"])

    @property
    def folders(self) -> dict[str, dict[str, t.Any]]:
        return dict(self.read()["model"]["folders"])

    @property
    def files(self) -> dict[str, dict[str, str]]:
        """Files of stores of images: directory -> image id -> sha256."""
        return dict(self.read()["model"]["files"])

    @property
    def images(self) -> dict[str, t.Any]:
        return dict(self.read()["model"]["images"])

    @property
    def reservations(self) -> dict[str, str]:
        """MAC address -> IP address, of all networks."""
        networks = self.read()["model"]["networks"].values()
        return {mac: address for network in networks for mac, address in network["reservations"].items()}

    def loses(self, uuid: str) -> None:
        """Somebody undefines the domain."""
        with self.state() as state:
            del state["model"]["domains"][uuid]

    def powers(self, uuid: str, power_state: int) -> None:
        """Somebody stops or starts the guest."""
        with self.state() as state:
            state["model"]["domains"][uuid]["power_state"] = power_state

    def forget_filters(self) -> None:
        """Somebody flushes the tables of nftables."""
        with self.state() as state:
            state["model"]["filters"] = {}

    def gets(self, uuid: str, xml: str, name: str) -> None:
        """Somebody defines a domain, which does not run."""
        with self.state() as state:
            state["model"]["domains"][uuid] = {"name": name, "xml": xml, "power_state": 4, "console": []}


class Site(Flow):
    """One ledger, one catalogue, simulated hosts. Variables of playbooks are given without their prefix."""

    #: Hosts that are storage hosts, too.
    storage: t.Sequence[str] = ()

    def __init__(self, folder: Path, home: Path, names: t.Sequence[str] = HOSTS):
        self.folder = folder
        self.home = home
        self.ledger_path = folder / "ledger.db"
        self.calls = 0
        self.simulated = folder / "hosts"
        self.simulated.mkdir()
        self.hosts = {name: Host(name, self.simulated) for name in names}
        self.lab = types.SimpleNamespace(inventory=str(folder / "hosts.yml"))
        self.of_hosts: dict[str, dict[str, t.Any]] = {name: {} for name in names}
        self.variables = {
            "bootflow_ledger_url": "sqlite:///%s" % self.ledger_path,
            "bootflow_flavors": FLAVORS,
            "bootflow_images": [IMAGE],
            "bootflow_networks": [NETWORK],
        }

    def arguments(self, playbook: str, variables: dict[str, t.Any], *options: str) -> list[str]:
        simulated = {
            "ansible_connection": "simulated",
            "ansible_pipelining": True,
            "ansible_python_interpreter": "/usr/bin/python3",
            "simulated_folder": str(self.simulated),
            "bootflow_ram_allocation_ratio": 1.0,
        }
        group = {"hosts": self.of_hosts, "vars": simulated}
        backends = {"bootflow_storage_backends": [{"name": "lvm"}], "bootflow_storage_ip": "192.0.2.1"}
        groups = {"bootflow_compute": group, "bootflow_storage": {"hosts": dict.fromkeys(self.storage, backends)}}
        Path(self.lab.inventory).write_text(
            json.dumps({"all": {"children": groups if self.storage else {"bootflow_compute": group}}})
        )
        self.calls += 1
        path = self.folder / ("variables-%d.json" % self.calls)
        path.write_text(json.dumps({**self.variables, **variables}))
        named = "bootflow.compute.%s" % playbook
        return [PLAYBOOK, named, "-i", self.lab.inventory, "-e", "@%s" % path, *options]

    def environment(self, **more: str) -> dict[str, str]:
        plugins = str(ROOT / "tests" / "simulated_py" / "connections")
        return super().environment(ANSIBLE_CONNECTION_PLUGINS=plugins, ANSIBLE_HOME=str(self.home), **more)

    def play(self, playbook: str, *options: str, expect: int = 0, **variables: t.Any) -> str:
        """The output of a playbook. :arg variables: without their prefix"""
        done = self.run(
            playbook, *options, timeout=120, **{"bootflow_" + name: value for name, value in variables.items()}
        )
        assert done.returncode == expect, done.output
        assert "Traceback" not in done.output, done.output
        return done.output

    def boots(self, *entries: dict[str, t.Any], options: tuple[str, ...] = (), expect: int = 0, **more: t.Any) -> str:
        return self.play("boot", *options, expect=expect, instances=list(entries), **more)

    def begin(self, playbook: str, **variables: t.Any) -> subprocess.Popen:
        """A run to be killed."""
        return self.start(playbook, {"bootflow_" + name: value for name, value in variables.items()})

    def wait_for_module(self, host: str, module: str, process: subprocess.Popen) -> None:
        """Wait until the module has come to the host."""

        def came() -> bool:
            if process.poll() is not None:
                raise AssertionError("the run ended first:\n" + (self.folder / "killed.log").read_text()[-3000:])
            return module in self.hosts[host].asked()

        self.wait_until(came)

    @staticmethod
    def wait_until(holds: t.Callable[[], bool], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "never true"
            time.sleep(0.02)

    # --- what is where ------------------------------------------------------------------------------------------------

    def asked(self) -> dict[str, list[str]]:
        return {name: host.asked() for name, host in self.hosts.items()}

    def places(self) -> dict[str, tuple[str, str | None]]:
        """Of each instance the state and the host."""
        return {name: (row["vm_state"], row["host"]) for name, row in self.instances().items()}

    def dump(self) -> list[str]:
        """All of the ledger."""
        with contextlib.closing(sqlite3.connect(self.ledger_path)) as connection:
            return list(connection.iterdump())

    def spoil(self, sql: str, *arguments: t.Any) -> None:
        """Change the ledger behind its back."""
        connection = sqlite3.connect(self.ledger_path, timeout=30)
        with contextlib.closing(connection), connection:
            connection.execute(sql, arguments)

    def left_on_hosts(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, host in self.hosts.items():
            for what in ("domains", "folders", "reservations"):
                if getattr(host, what):
                    found["%s on %s" % (what, name)] = sorted(getattr(host, what))
        return found

    def opened_ledgers(self) -> list[tuple[str, list[str]]]:
        """Return the ledgers that tasks of hosts opened, see opened_ledgers.read()."""
        return opened_ledgers.read(self.simulated)

    def unexpected_ledgers(self) -> list[str]:
        """Return the functions that opened a ledger in tasks of hosts without being exceptions."""
        opened = [functions for _host, functions in self.opened_ledgers()]
        return sorted({functions[0] for functions in opened if not any(map(ledger_exceptions.reason, functions))})

    def problems(self) -> str:
        """What the models were asked and do not know."""
        path = self.simulated / PROBLEMS
        return path.read_text() if path.exists() else ""


def entry(name: str, **fields: t.Any) -> dict[str, t.Any]:
    """An entry of bootflow_instances with the usual flavor, image and network."""
    return {"name": name, "flavor": "small", "image": "debian", "networks": [{"network": "lan"}], **fields}
