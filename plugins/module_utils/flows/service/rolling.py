# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rolling service of hosts: which host is at which step, what left it, and what comes back."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...core import errors
from ...core.instances import moves
from ...core.service.host_life import BEGUN, DRAIN, PENDING, REPORT, verdict
from ...core.service.order import HostInService
from ...ledger.compute import instances, nodes, service_state
from ...ledger.compute import moves as ledger_moves
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.service import services
from ..instances import operation
from ..moves import cold, drain, live

REASON = "service %s"  # of a host that is disabled for it


@dataclass(frozen=True)
class Overview:
    """The hosts of a service. ``done_at``: host -> seconds since the epoch; ``longest``: seconds that hosts took together at most; ``unselected``:
    hosts that were begun, and are not selected now."""

    hosts: list[HostInService]
    done_at: dict[str, float]
    longest: float
    unselected: list[str] = field(default_factory=list)


def enter(tx: Transaction, name: str, zones: t.Mapping[str, str], restart: bool) -> Overview:
    """Take the service over, and enter hosts that it does not have.

    :arg zones: selected host -> its availability zone, in their order. :arg restart: hosts that are done are serviced again.
    :raises ComputeHostNotFound: hosts that never reported. :raises ServiceBusy: another run works on a service.
    """
    other = services.at_work(tx)
    if other is not None:
        raise errors.ServiceBusy(run=other.run_id, name=other.name)
    services.take(tx, name)
    unknown = sorted(set(zones) - nodes.hosts(tx))
    if unknown:
        raise errors.ComputeHostNotFound(
            host=", ".join(unknown),
            remedy="Name hosts that have reported; the playbook heartbeat lets all report.",
        )
    if restart:
        services.forget_done(tx, name, zones)
    services.add_hosts(tx, name, zones)
    return overview(tx, name, zones)


def overview(tx: Transaction, name: str, zones: t.Mapping[str, str]) -> Overview:
    """Return the service as it is. :arg zones: see enter()"""
    service, rows = services.read(tx, name), services.hosts_of(tx, name)
    return Overview(
        [HostInService(h, zone, rows[h].state if h in rows else PENDING) for h, zone in zones.items()],
        {h: row.changed_at for h, row in rows.items()},
        service.longest if service is not None else 0.0,
        sorted(h for h, row in rows.items() if row.state in BEGUN and h not in zones),
    )


def begin(tx: Transaction, name: str, hosts: t.Sequence[str]) -> None:
    """Give these hosts no new instances, and note the instances that they have. Hosts that were begun before stay as they are."""
    _check_owner(tx, name)
    for host in hosts:
        if services.set_state(tx, name, host, PENDING, DRAIN):
            drain.disable(tx, host, REASON % name)
            services.note_instances(tx, name, host, [r.uuid for r in instances.select_live(tx, hosts=[host])])


def step(tx: Transaction, name: str, host: str, state: str, well: bool) -> bool:
    """Write what becomes of a host whose step of ``state`` ended. Returns whether the service stops there.

    A host that reported is enabled, unless a person disabled it before or since.
    """
    _check_owner(tx, name)
    decision = verdict(state, well)
    if services.set_state(tx, name, host, state, decision.state) and state == REPORT and well:
        shown = service_state.states_of(tx, [host])[host]
        if shown["disabled"] and shown["disabled_reason"] == REASON % name:
            service_state.set_state(tx, [host], service_state.ENABLED)
    return decision.stops


def _check_owner(tx: Transaction, name: str) -> None:
    """:raises ServiceBusy: another run took the service over, as this one stood still."""
    if not services.is_of_this_run(tx, name):
        row = services.read(tx, name)
        raise errors.ServiceBusy(run=row.run_id if row is not None else None, name=name)


def refusals(
    tx: Transaction, hosts: t.Sequence[str], wanted: cold.Wanted, running: live.Wanted | None
) -> dict[str, tuple[Instance, errors.BootflowError]]:
    """Return the instances that a drain could not move: uuid -> (instance, why). See drain.begin() for the arguments."""
    sorted_out = drain.sort_out(tx, instances.select_live(tx, hosts=hosts), wanted, running)
    return {u: (sorted_out.rows[u], e) for u, e in sorted_out.stays.items()}


def has_reported(tx: Transaction, name: str, host: str) -> bool:
    """Return whether the host has reported since its tasks are done."""
    since = services.hosts_of(tx, name)[host].changed_at
    rows = [r for r in nodes.rows(tx, ("host", "reported_at", "unreachable_reason")) if r.host == host]
    return bool(rows) and all(
        r.unreachable_reason is None and r.reported_at is not None and r.reported_at > since for r in rows
    )


def absent(tx: Transaction, name: str, host: str) -> list[Instance]:
    """Return the instances that were on the host when its service began, and are elsewhere."""
    uuids = services.instances_of(tx, name, host)
    rows = instances.select_live(tx, uuids=uuids) if uuids else []
    return [r for r in rows if r.host not in (None, host)]


def to_return(tx: Transaction, name: str, host: str, wanted: cold.Wanted, running: live.Wanted | None) -> drain.Drained:
    """Sort the instances that left the host by how they can come back. See drain.begin() for the arguments."""
    if running is not None:
        running = replace(running, to_host=host)
    return drain.sort_out(tx, absent(tx, name, host), wanted, running)


def to_confirm(tx: Transaction, name: str, host: str) -> list[str]:
    """Return the instances that came back while they were off, whose migrations are to be confirmed."""
    open_moves = {m.instance_uuid: m for m in ledger_moves.open_to(tx, host, moves.MIGRATION)}
    uuids = sorted(set(services.instances_of(tx, name, host)) & set(open_moves))
    rows = instances.select_live(tx, uuids=uuids) if uuids else []
    return [r.uuid for r in rows if not operation.is_locked(tx, r) and drain.is_confirmable(r, open_moves[r.uuid])]
