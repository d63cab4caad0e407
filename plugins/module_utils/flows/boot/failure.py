# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failed builds: release everything, then reschedule, abort or end quietly by the table.

source: Nova's _do_build_and_run_instance
"""

from __future__ import annotations

import typing as t
from collections import defaultdict
from dataclasses import dataclass, replace

from ...core import errors
from ...core.instances import build_outcome, retry, states
from ...ledger.compute import claims, cleanups, history, instances, nodes, ports
from ...ledger.compute.instances import Instance, PlacedInstance
from ...ledger.db.transaction import Transaction
from ...ledger.storage import attachments
from ..attachments import life
from ..instances.cleanup import left_behind
from .accept import requested_networks


@dataclass(frozen=True)
class Failed:
    """The failure of one build on a host, and whether the host is clean. ``preparing``: see build_outcome.outcome_of.

    ``unfinished``: it is unknown whether the build has ended on the host, which keeps it then.
    """

    error: errors.BootflowError
    cleaned: bool = True
    cleanup_reason: str = ""
    unreachable: bool = False
    preparing: str | None = None
    unfinished: bool = False


def fail_builds(tx: Transaction, host: str, event: str, failures: t.Mapping[str, Failed]) -> dict[str, str]:
    """Write the outcome of builds that failed on ``host`` during ``event``. Returns uuid -> rescheduled, error or gone."""
    if not failures:
        return {}
    outcomes: dict[str, str] = {}
    own_rows = {
        r.uuid: r
        for r in instances.select_live(tx, uuids=list(failures), run_id=tx.run.id, vm_state=states.BUILDING, lock=True)
    }
    attachments.lock(tx, own_rows)  # before any node is
    for uuid, failed in failures.items():
        error = failed.error
        if not failed.cleaned and not failed.unreachable:
            error = build_outcome.cleanup_failed("%s (%s)" % (error.message, failed.cleanup_reason))
        history.finish_events(tx, [uuid], event, history.ERROR, failed.error.in_full)
        history.notify(tx, [uuid], "compute.instance.create.error", {"host": host, "fault": error.as_dict()})
        row = own_rows.get(uuid)
        if row is None or row.task_state == states.DELETING:
            outcomes[uuid] = "gone"  # deleted or adopted meanwhile: the other run does the rest
            if not failed.cleaned:
                left_behind(tx, uuid, host, failed.cleanup_reason or error.message)
        else:
            outcomes[uuid] = _fail(tx, row, host, failed, error)
    return outcomes


def _fail(tx: Transaction, row: Instance, host: str, failed: Failed, error: errors.BootflowError) -> str:
    if failed.cleaned:
        life.hosts_cleaned(tx, {(host, row.uuid)})
        claims.release_on(tx, {(host, row.uuid)})
        ports.release(tx, [row.uuid])
    else:
        only_here = ports.holds_kept(tx, row.uuid, host)
        made_for = cleanups.UNFINISHED if failed.unfinished else ""
        reason = failed.cleanup_reason or error.message
        cleanups.add(tx, cleanups.Due(host, row.uuid, row.domain_name, reason, made_for=made_for))
        ports.hold(tx, row.uuid, host)
    if failed.unreachable:
        nodes.record_unreachable(tx, host, failed.cleanup_reason or error.message)
    if tx.context.count_failed_builds:
        nodes.count_failed_build(tx, host)
    if not failed.cleaned and (only_here or attachments.connected_to(tx, row.uuid, host)):
        # the guest may still write to the volumes, and use the address of a port of its project, so no other guest may get them
        error = build_outcome.cleanup_failed("%s (%s)" % (failed.error.message, failed.cleanup_reason))
    outcome = build_outcome.outcome_of(error, has_retry=bool(row.retry), preparing=failed.preparing)
    if outcome.kind == build_outcome.RESCHEDULE:
        record = retry.record_failure(row.retry, row.host, row.node, error)
        history.add_fault(tx, row.uuid, error, host, details="rescheduled")
        instances.swap(
            tx,
            [row.uuid],
            [row.task_state],
            tx.run.id,
            tx.context.notify_on_state_change,
            vm_state=states.BUILDING,
            task_state=states.SCHEDULING,
            host=None,
            node=None,
            retry=record,
        )
        life.unbind_hosts(tx, [row.uuid])
        return "rescheduled"
    # This run still owns the instance, so it must not end quietly: it would keep its resources for ever.
    end_in_error(tx, [row], _worded(error, outcome.reason), host, details=failed.error.in_full)
    return "error"


def _worded(error: errors.BootflowError, reason: str) -> errors.BootflowError:
    """The same error with the text of Nova's table."""
    return errors.from_dict({**error.as_dict(), "message": reason})


def refused(
    tx: Transaction, row: Instance, error: errors.BootflowError, record: t.Mapping[str, t.Any] | None, host: str
) -> None:
    """A claim lost to another run: return to scheduling with the host in the retry record, or end in ERROR."""
    history.notify(tx, [row.uuid], "compute.instance.create.error", {"host": host, "fault": error.as_dict()})
    if record is None:
        end_in_error(tx, [row], error, host)
        return
    history.add_fault(tx, row.uuid, error, host, details="rescheduled")
    instances.swap(tx, [row.uuid], [states.SCHEDULING], tx.run.id, retry=record)


def not_placed(tx: Transaction, rows: t.Sequence[Instance], error: errors.BootflowError) -> None:
    """Scheduling found no host, or the last round is over. source: Nova's set_vm_state_and_notify, of the conductor"""
    uuids = [r.uuid for r in rows]
    history.add_events(tx, [(uuid, None) for uuid in uuids], "schedule", history.ERROR, error.message)
    end_in_error(tx, rows, error, None)
    payload: dict[str, t.Any] = {"method": "build_instances", "state": states.ERROR, "reason": error.message}
    decision = error.details.get("decision")
    if decision is not None and decision["hosts"]:
        from ...core.scheduler.explain import summary  # of boots that fail

        payload["explanation"] = summary(decision)  # not the single hosts: a fleet may have thousands
    history.notify(tx, uuids, "compute_task.build_instances", payload)


def end_in_error(
    tx: Transaction,
    rows: t.Sequence[Instance],
    error: errors.BootflowError,
    host: str | None,
    details: str = "",
) -> None:
    """End these instances in ERROR: release everything, write the fault, close the action."""
    uuids = [r.uuid for r in rows]
    instances.swap(
        tx,
        uuids,
        sorted({r.task_state for r in rows}, key=str),
        tx.run.id,
        tx.context.notify_on_state_change,
        vm_state=states.ERROR,
        task_state=None,
        host=None,
        node=None,
    )
    life.end_with_instances(tx, uuids)
    ports.release(tx, uuids)
    for uuid in uuids:
        history.add_fault(tx, uuid, error, host, details)
    history.finish_actions(tx, uuids, "create", "Error")


def allocate_missing_ports(
    tx: Transaction, rows: t.Sequence[PlacedInstance], have: ports.PortsOf
) -> tuple[dict[str, Failed], bool]:
    """Allocate the ports of rescheduled builds again, which their failure released.

    Returns the refused builds, and whether any port was allocated. :arg have: the ports that the builds have
    """
    refused_builds: dict[str, Failed] = {}
    missing = {r.uuid: requested_networks(r.spec) for r in rows if not have[r.uuid]}
    given = [request.port for part in missing.values() for request, _n in part if request.port is not None]
    allocator = ports.Allocator(tx, tx.rng, [n for part in missing.values() for _r, n in part], given)
    bound: dict[str, list[str]] = {}
    for row in rows:
        networks = missing.get(row.uuid)
        if not networks:
            continue
        try:
            allocator.add(row.uuid, networks, groups=existing_groups(tx, row.spec))
            bound.setdefault(row.host, []).append(row.uuid)
        except errors.BootflowError as e:
            allocator.forget(row.uuid)
            refused_builds[row.uuid] = Failed(e, preparing=build_outcome.PREPARING_NETWORKS)
    allocator.write()
    allocator.mark_members()
    for host, uuids in bound.items():
        ports.bind(tx, uuids, host)
    return refused_builds, bool(bound)


def existing_groups(tx: Transaction, spec: t.Mapping[str, t.Any]) -> list[str]:
    """Return the security groups of the ports of a stored request. :raises SecurityGroupNotFound: one was deleted meanwhile"""
    wanted = list(spec.get("security_groups") or ())
    if wanted:
        from ...ledger.networks import security_groups

        for group_id in sorted(set(wanted) - security_groups.lock(tx, wanted)):
            raise errors.SecurityGroupNotFound(id=group_id)
    return wanted


# --- builds of dead runs ---------------------------------------------------------------------------------------------


def died_error(uuid: str, runs: t.Mapping[str, str]) -> errors.BuildAbortException:
    """The fault of a build whose run is dead. :arg runs: uuid -> the run that built it."""
    name = runs.get(uuid) or "unknown"
    return errors.BuildAbortException(
        message="Build of instance %s aborted: run %s died while it built it." % (uuid, name),
        remedy="Run the same boot again: it builds the instance again.",
    )


def end_builds(tx: Transaction, host: str, failed: t.Mapping[str, Failed]) -> dict[str, str]:
    """End builds of dead runs in ERROR, like failed builds, but without counting a failed build of the host.

    Their cleanups do not remove a guest that has been built: the ledger may be older than the host.
    """
    failed = {uuid: replace(how, unfinished=True) for uuid, how in failed.items()}
    return fail_by_stage(tx.for_run(replace(tx.context, count_failed_builds=False)), host, failed)


def fail_by_stage(tx: Transaction, host: str, failed: t.Mapping[str, Failed]) -> dict[str, str]:
    """fail_builds() of builds in different stages, each during its own."""
    by_event: dict[str, dict[str, Failed]] = defaultdict(dict)
    # all instances are locked before the first node is
    stages = {r.uuid: r.task_state for r in instances.select_live(tx, uuids=list(failed), lock=True)}
    for uuid, how in failed.items():
        by_event[stages.get(uuid) or "schedule"][uuid] = how
    outcomes: dict[str, str] = {}
    for event, part in by_event.items():
        outcomes.update(fail_builds(tx, host, event, part))
    return outcomes
