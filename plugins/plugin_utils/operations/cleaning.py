# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removes instances from the current host."""

from __future__ import annotations

import contextlib
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.instances import states
from ...module_utils.flows.attachments import moving
from ...module_utils.flows.instances import cleanup
from ...module_utils.ledger.compute import claims, cleanups, moves
from ...module_utils.ledger.compute import instances as of_ledger
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.storage import attachments
from ..run import host_settings
from ..run.lease import lease_kept
from ..run.ledger_action import LedgerAction
from ..run.results import item_errors
from ..volumes import attached_volumes


def warn_of_leftovers(action: LedgerAction, host: str, problems: t.Mapping[str, errors.BootflowError]) -> None:
    """Tell which instances ``host`` still has something of. :arg problems: uuid -> why"""
    for uuid, problem in problems.items():
        action._display.warning("Instance %s still has to be cleaned up on %s: %s" % (uuid, host, problem.message))


#: See the option ``images`` of the module instance_cleanup.
LEFT, CONFIRMED = "left", "confirmed"


class Cleaned(t.NamedTuple):
    """Outcome of cleaning a host, by the instances' uuids."""

    problems: dict[str, errors.BootflowError]  # why something of it may be there still
    parts: dict[str, str]  # cleanups.OLD or NEW, of instances that lose no more than that
    # Instances for which the host had made nothing for the move: what it has was there before.
    preexisting_uuids: frozenset[str] = frozenset()


def clean_host(action: LedgerAction, instances: list[dict[str, t.Any]]) -> Cleaned:
    """Remove domain, disks and config drive of these instances from the current host.

    Their whole disks here are cleared, and their volumes disconnected after their guest is gone. The ledger is read for
    both now: what an instance no longer has may belong to another. Of one that was resized here, and stays, only what it was, or was to
    become, is removed. One that is here, and that another run has taken over meanwhile, keeps what it has: a run that was taken for
    dead may continue after hours.

    :arg instances: {uuid, name}; with ``made_for`` only what the host made for this move is removed, with ``unfinished`` (true) no guest whose
        build has ended, with ``without_power`` (true) no guest that has power, and else what its pending cleanup says.
    """
    if not instances:
        return Cleaned({}, {})
    host = action.task_vars["inventory_hostname"]
    ledger = action.open_ledger()
    try:
        parts = _begin(ledger, host, [i["uuid"] for i in instances])
        earlier_problems = settle_resizes(action, parts)
        instances = [i for i in instances if i["uuid"] not in parts]
        taken_over_uuids, disks, volumes = ledger.inspect(_had_on, host, [i["uuid"] for i in instances])
        earlier_problems.update({uuid: _taken_over(uuid, host) for uuid in taken_over_uuids})
        instances = [i for i in instances if i["uuid"] not in taken_over_uuids]
        due = ledger.inspect(cleanups.conditions, host, [i["uuid"] for i in instances])
        conditions = {u: condition._asdict() for u, condition in due.items()}
        for uuid, images in ledger.inspect(_images, host, [i["uuid"] for i in instances]).items():
            conditions[uuid] = {**conditions.get(uuid, {}), "images": images}
        problems, not_made = remove_instances(
            action, [{**conditions.get(i["uuid"], {}), **i} for i in instances], disks
        )
        uuids = [i["uuid"] for i in instances if i["uuid"] not in not_made]
        volumes = [v for v in volumes if v.row.instance_uuid not in not_made]
        gone_on = [uuid for uuid in uuids if uuid not in problems]
        for uuid, problem in attached_volumes.forget(action, ledger, gone_on).items():
            problems.setdefault(uuid, problem)
        volumes = [v for v in volumes if v.row.instance_uuid not in problems]
        if volumes:
            # A guest that still exists keeps the session, which it may share with another.
            removed_uuids = [uuid for uuid in uuids if uuid not in problems]
            shared = ledger.inspect(attachments.shared_on, host, [a.volume_id for a in volumes], removed_uuids)
            connected = attached_volumes.disconnect(action, ledger, volumes, shared, moving.mark_disconnected)
            for volume in volumes:
                if volume.id in connected:
                    problems.setdefault(volume.row.instance_uuid, connected[volume.id])
    finally:
        ledger.close()
    return Cleaned({**problems, **earlier_problems}, parts, not_made)


def _begin(ledger: Ledger, host: str, uuids: t.Sequence[str]) -> dict[str, str]:
    """See cleanups.begin(). Nothing is written where no cleanup was left to this run."""
    if ledger.inspect(cleanups.of_instances, uuids):
        return ledger.transact(cleanups.begin, host, uuids)
    return {}


def settle_resizes(action: LedgerAction, parts: t.Mapping[str, str]) -> dict[str, errors.BootflowError]:
    """Remove what instances were before their resize on the current host (cleanups.OLD), or were to become (NEW). Returns uuid -> why that failed."""
    if not parts:
        return {}
    of_part = {cleanups.OLD: "settled", cleanups.NEW: "reverted"}
    arguments = resize_arguments(
        action, "settled", [{"uuid": u, "state": of_part[p]} for u, p in sorted(parts.items())]
    )
    try:
        with lease_kept(action):
            return item_errors(action.run_module("instance_disks_resize", arguments), sorted(parts))
    except errors.BootflowError as e:
        return dict.fromkeys(parts, e)
    except Exception as e:
        return dict.fromkeys(parts, action.unexpected(e))


def resize_arguments(
    action: LedgerAction, state: str, instances: t.Sequence[t.Mapping[str, t.Any]]
) -> dict[str, t.Any]:
    """Arguments of the module instance_disks_resize on the current host."""
    arguments = host_settings.cleanup_arguments(action)
    arguments.pop("whole_disk_clear")
    workers = host_settings.workers(action, len(instances))
    return {**arguments, "state": state, "instances": list(instances), "workers": workers}


def _had_on(
    tx: Transaction, host: str, uuids: t.Sequence[str]
) -> tuple[set[str], dict[str, list[dict[str, t.Any]]], list[attached_volumes.Attached]]:
    """Return the instances that keep what they have here, and of the others whole disks and attachments."""
    taken_over_uuids = of_ledger.kept_on(tx, host, uuids)
    remaining = [u for u in uuids if u not in taken_over_uuids]
    return taken_over_uuids, claims.disks_on(tx, host, remaining), attached_volumes.connected_to(tx, host, remaining)


def _images(tx: Transaction, host: str, uuids: t.Sequence[str]) -> dict[str, str]:
    """Return what becomes of images in a pool, of instances that another host has, or may get or keep by a move: see the module instance_cleanup."""
    rows = of_ledger.select_live(tx, uuids=uuids) if uuids else []
    open_moves = moves.open_of(tx, [r.uuid for r in rows if r.task_state != states.DELETING])
    stay = {r.uuid: CONFIRMED for r in rows if r.host not in (None, host)}
    return {**stay, **dict.fromkeys(open_moves, LEFT)}


def _taken_over(uuid: str, host: str) -> errors.BootflowError:
    return errors.Conflict(
        message="Instance %s is on %s: another run has taken it over, and nothing of it was removed" % (uuid, host),
        remedy="Run bootflow.compute.show to see the instance.",
    )


def clear_lost(action: LedgerAction, uuids: t.Collection[str]) -> None:
    """End what this run made on the current host for instances that it had lost by then: deleted ones leave nothing behind, and guests of
    soft-deleted ones lose their power.
    """
    host = action.task_vars["inventory_hostname"]
    with contextlib.closing(action.open_ledger()) as ledger:
        losses = ledger.inspect(cleanup.lost_on, host, uuids)
        problems = clean_host(
            action, [{"uuid": u, "name": name} for u, name in sorted(losses.domains_to_remove.items())]
        ).problems

        def remember(tx: Transaction) -> None:
            for uuid, problem in sorted(problems.items()):
                cleanup.left_behind(tx, uuid, host, problem.message)

        if problems:
            ledger.transact(remember)
    if losses.off:
        problems.update(_power_off(action, losses.off))
    for uuid, problem in sorted(problems.items()):
        text = "Instance %s was deleted while its guest was started, and %s still has it: %s"
        action._display.warning(text % (uuid, host, problem.message))


def _power_off(action: LedgerAction, uuids: t.Sequence[str]) -> dict[str, errors.BootflowError]:
    """Take the power of these guests at once. Returns uuid -> why that failed."""
    arguments = {
        **host_settings.libvirt_arguments(action),
        "domains": [{"uuid": uuid, "shutdown_timeout": 0.0} for uuid in uuids],
        "state": "shutdown",
        "workers": host_settings.workers(action, len(uuids)),
    }
    try:
        return item_errors(action.run_module("domain_power", arguments), uuids)
    except errors.BootflowError as e:
        return dict.fromkeys(uuids, e)


def remove_instances(
    action: LedgerAction, instances: list[dict[str, t.Any]], disks: t.Mapping[str, list[dict[str, t.Any]]]
) -> tuple[dict[str, errors.BootflowError], frozenset[str]]:
    """Remove domains, local disks and config drives from the current host; ``disks``, the whole disks of each, are cleared.

    Returns uuid -> why that failed, and the uuids for which nothing was made for the move that is named as ``made_for``.
    """
    if not instances:
        return {}, frozenset()
    arguments = {
        **host_settings.cleanup_arguments(action),
        "instances": [{**i, "disks": disks.get(i["uuid"], [])} for i in instances],
    }
    try:
        # Clearing a large disk takes hours.
        clears = bool(disks or arguments["volume_group"] or arguments["disk_pool"])
        with lease_kept(action) if clears else contextlib.nullcontext():
            result = action.run_module("instance_cleanup", arguments)
    except errors.BootflowError as e:
        return {i["uuid"]: e for i in instances}, frozenset()
    except Exception as e:  # nothing of them counts as removed, and the play continues
        return dict.fromkeys((i["uuid"] for i in instances), action.unexpected(e)), frozenset()
    preexisting_uuids = frozenset(u for u, outcome in result["outcomes"].items() if outcome.get("kept"))
    return item_errors(result, [i["uuid"] for i in instances]), preexisting_uuids
