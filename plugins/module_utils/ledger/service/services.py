# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rolling services: their hosts, and the instances that were on them."""

from __future__ import annotations

import typing as t

from ...core.service.host_life import DONE, PENDING
from ..compute import runs
from ..db.locks import insert_new, take_turns
from ..db.sqlalchemy_import import sa
from ..db.transaction import Transaction
from ..schema.service_tables import service_hosts, service_instances, services


class ServiceRow:
    """A row of services."""

    name: str
    run_id: str | None
    started_at: float
    longest: float  # seconds


class ServiceHostRow:
    """A row of service_hosts."""

    service: str
    host: str
    state: str  # core.service.host_life.STATES
    changed_at: float


def read(tx: Transaction, name: str) -> ServiceRow | None:
    """Return the service of this name; None if there is none."""
    return next(iter(tx.rows(sa.select(services).where(services.c.name == name), ServiceRow)), None)


def at_work(tx: Transaction) -> ServiceRow | None:
    """Return a service that another run works on, which lives. Until the transaction ends no other one begins with a service."""
    take_turns(tx, "service", ["of hosts"])
    rows = tx.rows(sa.select(services).where(services.c.run_id.is_not(None)).order_by(services.c.name), ServiceRow)
    dead = runs.dead_among(tx, [r.run_id for r in rows])
    return next((r for r in rows if r.run_id not in {*dead, tx.run.id}), None)


def take(tx: Transaction, name: str) -> None:
    """Make the service if there is none. This run works on it from now on."""
    insert_new(tx, services, name=name, started_at=tx.now, longest=0.0)
    tx.execute(services.update().where(services.c.name == name).values(run_id=tx.run.id))
    runs.renew(tx)


def leave(tx: Transaction, name: str, longest: float) -> None:
    """End the work of this run on the service. :arg longest: seconds that hosts took together; the largest number is kept"""
    c = services.c
    own = (c.name == name, c.run_id == tx.run.id)
    tx.execute(services.update().where(*own, c.longest < longest).values(longest=longest))
    tx.execute(services.update().where(*own).values(run_id=None))


def is_of_this_run(tx: Transaction, name: str) -> bool:
    """Return whether no other run has taken the service over."""
    row = read(tx, name)
    return row is not None and row.run_id == tx.run.id


def hosts_of(tx: Transaction, name: str) -> dict[str, ServiceHostRow]:
    """host -> its row."""
    query = sa.select(service_hosts).where(service_hosts.c.service == name)
    return {r.host: r for r in tx.rows(query, ServiceHostRow)}


def add_hosts(tx: Transaction, name: str, hosts: t.Iterable[str]) -> None:
    """Enter hosts that the service does not have yet."""
    for host in hosts:
        insert_new(tx, service_hosts, service=name, host=host, state=PENDING, changed_at=tx.now)


def forget_done(tx: Transaction, name: str, hosts: t.Collection[str]) -> None:
    """Remove these hosts from the service if they are done, so that they are serviced again."""
    c = service_hosts.c
    for host in sorted(hosts):
        tx.execute(service_hosts.delete().where(c.service == name, c.host == host, c.state == DONE))


def set_state(tx: Transaction, name: str, host: str, before: str, state: str) -> bool:
    """Set the state of a host that has the state ``before``. Returns whether it had."""
    c = service_hosts.c
    own = (c.service == name, c.host == host, c.state == before)
    return bool(tx.execute(service_hosts.update().where(*own).values(state=state, changed_at=tx.now)).rowcount)


def note_instances(tx: Transaction, name: str, host: str, uuids: t.Iterable[str]) -> None:
    """Note the instances that are on the host when its service begins."""
    for uuid in uuids:
        insert_new(tx, service_instances, service=name, host=host, instance_uuid=uuid)


def instances_of(tx: Transaction, name: str, host: str) -> list[str]:
    """Return the UUIDs of note_instances()."""
    c = service_instances.c
    query = sa.select(c.instance_uuid).where(c.service == name, c.host == host).order_by(c.instance_uuid)
    return [str(uuid) for uuid in tx.execute(query).scalars()]
