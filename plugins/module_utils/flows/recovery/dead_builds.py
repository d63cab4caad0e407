# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Builds of dead runs, settled by the report of their host: core.instances.dead_builds has the rules.

A build has ended on its host before the ledger says so, and in a ledger that is older than its hosts it may have ended long ago.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...core import errors
from ...core.instances import states
from ...core.instances.dead_builds import ADOPT, CLEAN, KEEP, Seen, verdict
from ...core.instances.moves import LEFT
from ...core.volumes.attachment import DONE
from ...ledger.compute import history, instances, ports, runs
from ...ledger.compute.instances import Instance, PlacedInstance
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments
from ..attachments import readiness
from ..boot import builds
from ..boot.accept import requested_networks
from ..boot.builds import Build, Ended
from ..boot.planned import may_have_volumes
from . import leases, volume_leases

MachineType = t.Callable[[Build], t.Optional[str]]  # that a guest keeps, by the settings of its host


@dataclass
class Settled:
    """The instances whose builds have been settled, uuid -> name."""

    adopted: dict[str, str] = field(default_factory=dict)  # active: their guests are built
    kept_builds: dict[str, str] = field(default_factory=dict)  # in ERROR, on their host
    ended: dict[str, str] = field(default_factory=dict)  # in ERROR, and their host is to be cleaned

    @property
    def vm_states(self) -> dict[str, str]:
        """uuid -> vm_state"""
        failed = dict.fromkeys([*self.kept_builds, *self.ended], states.ERROR)
        return {**dict.fromkeys(self.adopted, states.ACTIVE), **failed}


def settle_builds(
    tx: Transaction,
    host: str,
    seen: t.Mapping[str, Seen],
    asked_at: float,
    machine_type: MachineType = lambda build: None,
    taken_builds: t.Mapping[str, str] | None = None,
) -> Settled:
    """Settle the builds on ``host`` that runs with an expired lease left.

    :arg seen: what the host reported, by uuid; of others it has nothing. :arg asked_at: when it was asked: rows written after that are left alone.
    :arg taken_builds: builds of dead runs that this run has taken over instead, uuid -> the run that built it. Those to be cleaned are left alone:
        they end when their host is clean.
    """
    settled = Settled()
    died = {r.uuid: r.run_id for r in leases.builds(tx, host)} if taken_builds is None else dict(taken_builds)
    if not died:
        return settled
    runs.renew(tx)
    rows = [
        r
        for r in instances.select_live(tx, uuids=sorted(died), lock=True)
        if r.host == host and r.vm_state == states.BUILDING and r.task_state != states.DELETING
    ]
    rows = [
        r
        for r in rows
        if r.run_id == tx.run.id or (r.run_id == died[r.uuid] and r.updated_at < asked_at)  # no other run was faster
    ]
    placed = [r for r in rows if instances.is_placed(r)]
    known = in_ledger(tx, placed)
    verdicts = {r.uuid: verdict(seen.get(r.uuid, Seen()), r.uuid in known) for r in placed}
    adopted, kept_rows, ended = ([r for r in placed if verdicts[r.uuid] == fate] for fate in (ADOPT, KEEP, CLEAN))
    attachments.lock(tx, [r.uuid for r in (*adopted, *ended)])  # before any node is
    settled.adopted = _adopt(tx, host, adopted, seen, died, machine_type)
    settled.kept_builds = _keep(tx, host, kept_rows, seen, died)
    if ended and taken_builds is None:
        settled.ended = {r.uuid: r.display_name for r in ended}
        leftovers = volume_leases.find_leftovers(tx, instance_uuids=died).of_instances(settled.ended)
        leases.end(tx, ended, died, leftovers)
    return settled


def in_ledger(tx: Transaction, rows: t.Sequence[PlacedInstance]) -> set[str]:
    """Return the builds for which the ledger has all data of a built guest: addresses, and volumes that are connected.

    Others it has from an earlier moment than their host.
    """
    uuids = [r.uuid for r in rows]
    have = ports.ports_of(tx, uuids)
    with_volumes = [r.uuid for r in rows if may_have_volumes(r)]
    ready = readiness.prospects(tx, with_volumes).ready if with_volumes else set()
    cables = attachments.of_instances(tx, with_volumes) if with_volumes else {}
    connected = {u for u in ready if all(a.connection == DONE for a in cables.get(u, ()))}
    return {
        r.uuid
        for r in rows
        if (have[r.uuid] or not requested_networks(r.spec)) and (r.uuid in connected or not may_have_volumes(r))
    }


def _adopt(
    tx: Transaction,
    host: str,
    rows: t.Sequence[PlacedInstance],
    seen: t.Mapping[str, Seen],
    died: t.Mapping[str, str],
    machine_type: MachineType,
) -> dict[str, str]:
    """The builds have ended: their instances are active, with what they have."""
    if not rows:
        return {}
    instances.write(tx, [r.uuid for r in rows], run_id=tx.run.id)
    cables = attachments.of_instances(tx, [r.uuid for r in rows if may_have_volumes(r)])
    attachments.take_ownership(tx, [a.id for group in cables.values() for a in group])
    builds.resume(tx, rows, died)
    ended = []
    for build in builds.load(tx, rows):
        guest = seen[build.uuid]
        name = guest.name if guest.name and guest.name != build.row.domain_name else None
        power_state = t.cast(int, guest.power_state)
        ended.append(Ended(build.uuid, host, power_state, name, build.uuid in cables, machine_type=machine_type(build)))
    active, _lost_uuids = builds.spawned(tx, ended)
    return {r.uuid: r.display_name for r in rows if r.uuid in active}


def _keep(
    tx: Transaction,
    host: str,
    rows: t.Sequence[Instance],
    seen: t.Mapping[str, Seen],
    died: t.Mapping[str, str],
) -> dict[str, str]:
    """The builds have ended, and something of them is not known, or not there any more: their hosts keep what they have, and so does the ledger."""
    for row in rows:
        power_state = seen[row.uuid].power_state
        values: dict[str, t.Any] = {
            "vm_state": states.ERROR,
            "task_state": None,
            "power_state": states.NOSTATE if power_state is None else power_state,
            "launched_at": tx.now,
            "run_id": tx.run.id,
        }
        instances.swap(tx, [row.uuid], [row.task_state], None, tx.context.notify_on_state_change, **values)
        error = kept_error(row, host, seen[row.uuid], died)
        history.add_fault(tx, row.uuid, error, host)
        history.finish_events(tx, [row.uuid], row.task_state or builds.NETWORKING.name, history.ERROR, error.in_full)
        history.notify(tx, [row.uuid], "compute.instance.create.error", {"host": host, "fault": error.as_dict()})
    history.finish_actions(tx, [r.uuid for r in rows], "create", "Error")
    return {r.uuid: r.display_name for r in rows}


def kept_error(row: Instance, host: str, seen: Seen, died: t.Mapping[str, str]) -> errors.BuildAbortException:
    """The fault of a build that has ended on its host, and whose instance cannot be active."""
    if seen.power_state is None:
        what = "%s has its disks, and no domain of it" % host
        remedy = (
            "If the instance runs on another host, see bootflow.compute.audit. Else reboot it with bootflow_reboot_type: HARD, which defines its domain"
            " again."
        )
    elif seen.moving == LEFT:
        what = "its guest has left %s" % host
        remedy = "See with bootflow.compute.audit where the instance runs: the ledger is older than its hosts."
    else:
        what = "the ledger, which is older than %s, does not have all of its volumes and addresses" % host
        remedy = (
            "The guest is left as it is. Restore a newer backup of the ledger, if there is one; or save what is needed, then delete the instance and boot"
            " it again."
        )
    return errors.BuildAbortException(
        message="Build of instance %s ended on %s, and %s died before it could write that: %s."
        % (row.uuid, host, "run %s" % died[row.uuid] if died.get(row.uuid) else "its run", what),
        remedy=remedy,
    )
