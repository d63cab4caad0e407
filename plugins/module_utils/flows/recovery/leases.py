# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Releasing what runs with an expired lease still hold; every boot does this without waiting for an audit.

bootflow_lease_seconds is the duration of a lease.
"""

from __future__ import annotations

import typing as t

from ...core.instances import states
from ...ledger.compute import instances, nodes, runs
from ...ledger.compute.instances import Instance
from ...ledger.db.transaction import Transaction
from ...ledger.plans import plans
from ...ledger.storage import attachments, volumes
from ..boot import failure
from . import volume_leases

OUT = "the lease of the run has expired"


class Expired(t.NamedTuple):
    """The hosts of what runs with an expired lease were building."""

    to_clean: list[str]  # their builds have ended in ERROR
    to_ask: list[str]  # their reports decide what becomes of their builds, see dead_builds


def expire(tx: Transaction, asked: t.Collection[str] = ()) -> Expired:
    """End the builds of runs whose lease has expired, except builds that this run adopted.

    Such an instance ends in ERROR with a fault that names the run. Its claim and addresses are released when its host has
    been cleaned (cleanups), which the boot does before scheduling. Volumes that such a run was creating, attaching or
    detaching are released too. Plans whose time is over give back their places.

    :arg asked: hosts that this run can ask. Their builds may have ended, and wait for their reports.
    """
    if plans.any_expired(tx):
        from ..plans import held  # of few runs

        held.expire(tx)
    expired_builds = {r.uuid: r for r in builds(tx)}
    to_ask = {r.host for r in expired_builds.values() if r.host in asked and r.host is not None}
    died = {r.uuid: r.run_id for r in expired_builds.values() if r.host not in to_ask}
    leftovers = volume_leases.find_leftovers(tx, instance_uuids=died)
    if not died and not leftovers:
        return Expired([], sorted(to_ask))
    rows = instances.select_live(tx, uuids=sorted(died), lock=True) if died else []
    rows = [r for r in rows if r.run_id == died[r.uuid] and r.vm_state == states.BUILDING]
    return Expired(end(tx, rows, died, leftovers), sorted(to_ask))


def builds(tx: Transaction, host: str | None = None) -> list[instances.BuildOfRun]:
    """The builds (on ``host``) of runs whose lease has expired."""
    owned_builds = instances.builds_of_expired_runs(tx, tx.run.id, host)
    expired = runs.out_of_lease(tx, {r.run_id for r in owned_builds}) if owned_builds else ()
    return [r for r in owned_builds if r.run_id in expired]


def end(
    tx: Transaction,
    rows: t.Sequence[Instance],
    died: t.Mapping[str, str],
    leftovers: volume_leases.Leftovers,
    unreachable: str = "",
) -> list[str]:
    """End these locked builds in ERROR, with the ``leftovers`` of their volumes. Returns the hosts that are to be cleaned.

    :arg died: uuid -> the run that built it. :arg unreachable: why their host does not answer
    """
    cables = attachments.of_instances(tx, [r.uuid for r in rows])
    ids = leftovers.volume_ids | {a.volume_id for group in cables.values() for a in group}
    if ids:
        volumes.select(tx, ids=sorted(ids), lock=True)  # all of them, before any node is
    instances.write(tx, [r.uuid for r in rows], run_id=tx.run.id)
    by_host: dict[str, list[str]] = {}
    for row in rows:
        if row.host is None:
            failure.end_in_error(tx, [row], failure.died_error(row.uuid, died), None)
        else:
            by_host.setdefault(row.host, []).append(row.uuid)
    how: dict[str, t.Any] = {
        "cleaned": False,
        "cleanup_reason": unreachable or OUT,
        "unreachable": bool(unreachable),
    }
    for host, uuids in sorted(by_host.items()):
        failure.end_builds(tx, host, {u: failure.Failed(failure.died_error(u, died), **how) for u in uuids})
    volume_leases.expire(tx, leftovers)
    return sorted(by_host)


def host_is_silent(tx: Transaction, host: str, reason: str) -> None:
    """The host does not answer: it is down until it reports, and the builds of dead runs on it end in ERROR. What it has of them stays there."""
    died = {r.uuid: r.run_id for r in builds(tx, host)}
    if died:
        rows = instances.select_live(tx, uuids=sorted(died), lock=True)
        rows = [r for r in rows if (r.run_id, r.host, r.vm_state) == (died[r.uuid], host, states.BUILDING)]
        leftovers = volume_leases.find_leftovers(tx, instance_uuids=died).of_instances({r.uuid for r in rows})
        end(tx, rows, died, leftovers, unreachable=reason)
    nodes.record_unreachable(tx, host, reason)
