# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""This run: the process that works on the ledger, who started it, and its settings."""

from __future__ import annotations

import os
import random
import socket
import time
import typing as t
import uuid
from dataclasses import dataclass, field

from ...core.networks.ipam import BASE_MAC

# Values of notify_on_state_change in addition to vm_state.
NOTIFY_NOTHING = "none"
NOTIFY_VM_AND_TASK_STATE = "vm_and_task_state"

LEASE_SECONDS = 600.0


@dataclass(frozen=True)
class RunIdentity:
    """The process of a run, by which another run can check whether it is still alive."""

    id: str
    controller: str
    boot_id: str
    pid_namespace: str
    pid: int
    pid_started: int  # clock ticks since boot, which differ if the pid is reused
    actor: str


def process_started(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None if the process does not exist."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in ("Z", "X"):
        return None
    return int(fields[19])


def seconds_since_start(started: int) -> float:
    """Return how long a process runs, by the count of seconds since the boot, which continues while the machine sleeps and which no clock sets.

    :arg started: in clock ticks since boot
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _pid_namespace(pid: int) -> str:
    try:
        return os.readlink("/proc/%d/ns/pid" % pid)
    except OSError:
        return ""


def controller_name() -> str:
    """This machine, distinct from others of the same hostname: by its machine id, or else its boot id."""
    try:
        with open("/etc/machine-id", encoding="ascii") as file:
            machine = file.read().strip()
    except OSError:
        machine = ""
    return "%s/%s" % (socket.gethostname(), machine or _boot_id())


def identify(pid: int, controller: str, actor: str) -> RunIdentity:
    """The identity of the run whose main process is ``pid``: the same for every task of one ansible-playbook."""
    started = process_started(pid) or 0
    boot_id = _boot_id()
    return RunIdentity(
        id="%s:%s:%d:%d" % (controller.partition("/")[0][:24], boot_id[:8], pid, started),
        controller=controller,
        boot_id=boot_id,
        pid_namespace=_pid_namespace(pid),
        pid=pid,
        pid_started=started,
        actor=actor,
    )


class Lease(t.Protocol):
    """A run's knowledge of its lease."""

    def renewed(self, at: float) -> None:
        """A transaction renewed it. :arg at: the time from which it counts"""

    def looked(self, at: float) -> None:
        """The ledger was read. :arg at: when that began"""


@dataclass
class Context:
    """The actor, the time and the settings. Every action has actor, project and request id, as in Nova."""

    run: RunIdentity
    request_id: str
    notify_on_state_change: str = NOTIFY_NOTHING
    count_failed_builds: bool = True  # consecutive_build_service_disable_threshold is not 0
    lease_seconds: float = LEASE_SECONDS  # how long what this run owns outlives it
    base_mac: str = BASE_MAC  # of the MAC addresses that are drawn
    filters_ports: bool = False  # hosts filter the ports of guests (bootflow_firewall_driver)
    rng: random.Random = field(default_factory=random.SystemRandom)
    clock: t.Callable[[], float] = time.time
    lease: Lease | None = None  # gets the outcomes of this run's transactions
    # The first 32 bits of the last UUID.
    _prefix: int | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def now(self) -> float:
        return self.clock()

    @property
    def actor(self) -> str:
        return self.run.actor

    def new_id(self) -> str:
        """Return the UUID of a new row.

        The first eight digits of the first one are drawn, and the next ones count on from there: rows of one request lie
        next to each other in every index of their UUIDs, so that few of its pages are written.
        """
        self._prefix = self.rng.getrandbits(32) if self._prefix is None else (self._prefix + 1) % 2**32
        return str(uuid.UUID(int=self._prefix << 96 | self.rng.getrandbits(96), version=4))
