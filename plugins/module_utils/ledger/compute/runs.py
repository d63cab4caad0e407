# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs: who works on the ledger, and whether a run that left work behind is still alive.

A build carries the id of the run that works on it. A live run renews its lease; a build whose run is dead (its process
is gone, as seen from the same machine) or whose lease is out may be taken over.
"""

from __future__ import annotations

import os
import socket
import typing as t
from dataclasses import dataclass

from ...core import errors
from ..db import bulk
from ..db.locks import insert_new
from ..db.sqlalchemy_import import sa
from ..schema.tables import runs

LEASE_SECONDS = 600.0


@dataclass(frozen=True)
class RunIdentity:
    """The process behind a run, told so that another run can ask whether it still lives."""

    id: str
    controller: str
    boot_id: str
    pid_namespace: str
    pid: int
    pid_started: int  # clock ticks since boot: a reused pid differs here
    actor: str


def process_started(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None when there is no such process."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as f:
            fields = f.read().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in ("Z", "X"):
        return None
    return int(fields[19])


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
            return f.read().strip()
    except OSError:
        return ""


def _pid_namespace(pid: int) -> str:
    try:
        return os.readlink("/proc/%d/ns/pid" % pid)
    except OSError:
        return ""


def controller_name() -> str:
    """This machine, told apart from others of the same hostname: its machine id, or where it has none its boot id."""
    try:
        with open("/etc/machine-id", encoding="ascii") as f:
            machine = f.read().strip()
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


def renew(conn: t.Any, run: RunIdentity, now: float, lease_seconds: float = LEASE_SECONDS) -> None:
    """Enter the run, or push its lease out to ``now + lease_seconds``."""
    done = conn.execute(runs.update().where(runs.c.id == run.id).values(lease_until=now + lease_seconds))
    if done.rowcount == 0:
        # Two tasks of one run may come here at once; the other's lease is as good.
        insert_new(
            conn,
            runs,
            id=run.id,
            controller=run.controller,
            boot_id=run.boot_id,
            pid_namespace=run.pid_namespace,
            pid=run.pid,
            pid_started=run.pid_started,
            actor=run.actor,
            started_at=now,
            lease_until=now + lease_seconds,
        )


def is_dead(row: t.Any, me: RunIdentity, now: float) -> bool:
    """Whether the run in ``row`` can no longer be working: its lease is out, or its process is gone from this machine."""
    if row is None or row.lease_until <= now:
        return True
    if row.boot_id == me.boot_id and row.pid_namespace == me.pid_namespace and row.boot_id:
        return process_started(row.pid) != row.pid_started
    return row.controller == me.controller and bool(row.boot_id) and row.boot_id != me.boot_id


def dead_among(conn: t.Any, run_ids: t.Iterable[str], me: RunIdentity, now: float) -> set[str]:
    """Those of ``run_ids`` that are dead; a run that the ledger does not know is dead. Mine never is."""
    wanted = {r for r in run_ids if r and r != me.id}
    if not wanted:
        return set()
    rows = {r.id: r for r in conn.execute(sa.select(runs).where(runs.c.id.in_(sorted(wanted))))}
    return {r for r in wanted if is_dead(rows.get(r), me, now)}


def out_of_lease(conn: t.Any, run_ids: t.Iterable[str], me: RunIdentity, now: float) -> set[str]:
    """Those of ``run_ids`` whose lease is out, or that the ledger does not know; their processes are not looked at."""
    wanted = {r for r in run_ids if r and r != me.id}
    if not wanted:
        return set()
    alive = (bulk.among(conn, runs.c.id, sorted(wanted)), runs.c.lease_until > now)
    return wanted - set(conn.execute(sa.select(runs.c.id).where(*alive)).scalars())


def locked_error(conn: t.Any, name: str, run_id: str) -> errors.InstanceBusy:
    """The refusal for an instance that a live run owns."""
    row = conn.execute(sa.select(runs).where(runs.c.id == run_id)).first()
    until = "its lease ends" if row is None else _utc(row.lease_until)
    return errors.InstanceBusy(name=name, run=run_id, until=until)


def _utc(seconds: float) -> str:
    import datetime

    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
