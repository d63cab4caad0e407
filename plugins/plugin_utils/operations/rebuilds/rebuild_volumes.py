# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The part of a compute host in rebuilds that write root volumes again: it disconnects them before, and restores guests where nothing was written.

Between disconnect() and screen() the storage hosts work. source: Nova's _rebuild_default_impl and _detach_root_volume
"""

from __future__ import annotations

import contextlib
import typing as t

from ....module_utils.core import errors
from ....module_utils.core.instances import states
from ....module_utils.core.instances.operation_outcomes import Answers
from ....module_utils.flows.attachments import moving
from ....module_utils.flows.instances import rebuild as flow
from ....module_utils.flows.instances.operations import OPERATIONS
from ....module_utils.flows.volumes import reimage
from ....module_utils.flows.volumes.reimage import Reimaged
from ....module_utils.ledger.db.transaction import Transaction
from ...builds import build_parts
from ...run.ledger_action import LedgerAction
from ...volumes import attached_volumes
from .. import hard_reboot
from ..work import Items, uuids_of

_REBUILD = OPERATIONS["rebuild"]


def disconnect(action: LedgerAction, uuids: t.Collection[str], items: Items) -> build_parts.Problems:
    """Disconnect the host from the root volumes of these instances. Returns uuid -> why that failed."""
    roots = {i["reimage"]["volume_id"] for i in items if i["uuid"] in uuids}
    if not roots:
        return {}
    host = action.task_vars["inventory_hostname"]
    with contextlib.closing(action.open_ledger()) as ledger:
        connected = ledger.inspect(attached_volumes.connected_to, host, uuids)
        connected = [a for a in connected if a.volume_id in roots]
        shared = ledger.inspect(attached_volumes.shared_on_host, host, connected)
        problems = attached_volumes.disconnect(action, ledger, connected, shared, moving.mark_disconnected)
    return {a.row.instance_uuid: problems[a.id] for a in connected if a.id in problems}


def screen(action: LedgerAction, items: Items, released: Answers | None) -> tuple[Answers, build_parts.Problems]:
    """Find the instances whose root volumes were not written again. A guest that was shut down for that, and whose volume is what it was, gets it
    and its power back.

    :arg released: of release(), also errors; None: the host did not answer
    """
    again = {i["uuid"]: i for i in items if "reimage" in i}
    ids = {u: (i["reimage"]["volume_id"], i["reimage"]["image_id"]) for u, i in again.items()}
    with contextlib.closing(action.open_ledger()) as ledger:
        outcomes = ledger.inspect(reimage.outcomes, ids)
    answers: Answers = {}
    problems: build_parts.Problems = {}
    to_restore: list[t.Mapping[str, t.Any]] = []
    for uuid, outcome in outcomes.items():
        if outcome.done:
            continue
        answer = (released or {}).get(uuid)
        problems[uuid] = _cause(outcome, answer)
        if outcome.torn or "before" not in again[uuid]:
            answers[uuid] = {"changed": True, "vm_state": states.ERROR, "power_state": states.NOSTATE}
            continue
        answers[uuid] = {"changed": bool(answer and answer.get("changed")), "kept": True}
        if answer is not None and answer.get("off"):
            to_restore.append(again[uuid])
    if to_restore:
        answers.update(_restore(action, to_restore))
    return answers, problems


def _cause(outcome: Reimaged, answer: t.Mapping[str, t.Any] | None) -> errors.BootflowError:
    if answer is not None and answer.get("error"):
        return errors.from_dict(answer["error"])
    if answer is None and not outcome.torn:
        return errors.RemoteError(reason="its host did not disconnect its root volume")
    return outcome.error or errors.RemoteError(reason="its root volume was not written again")


def _restore(action: LedgerAction, items: Items) -> Answers:
    """Give these instances back what they were, and their guests their volumes and their power. One without them is in error, from which a hard
    reboot recovers.
    """
    uuids = uuids_of(items)

    def keep(tx: Transaction) -> None:
        flow.keep(tx, _REBUILD, {i["uuid"]: i["before"] for i in items})

    outcomes: Answers = {}
    problems: build_parts.Problems = {}
    try:
        with contextlib.closing(action.open_ledger()) as ledger:
            ledger.transact(keep)
        fresh, problems = attached_volumes.come_to_host(action, uuids)
        off = {i["uuid"] for i in items if i["power_state"] != states.RUNNING}
        outcomes, more = hard_reboot.reboot(action, [u for u in uuids if u not in problems], off, fresh)
        problems = {**problems, **more}
    except Exception as e:  # what became of each was said already
        problems = dict.fromkeys(uuids, e if isinstance(e, errors.BootflowError) else action.unexpected(e))
    for uuid, problem in problems.items():
        action._display.warning("Instance %s is off: %s" % (uuid, problem.message))
    in_error = {"changed": True, "vm_state": states.ERROR, "power_state": states.NOSTATE}
    return {
        u: dict(in_error)
        if u in problems
        else {"changed": True, "kept": True, "power_state": (outcomes.get(u) or {}).get("power_state", states.NOSTATE)}
        for u in uuids
    }


def judged(items: Items, answers: Answers) -> Answers:
    """Return the answers, with the vm_state of instances that failed after their root volumes were written again: they have no system that ran."""
    again = {i["uuid"] for i in items if "reimage" in i}
    without_system = {u for u in again & set(answers) if answers[u].get("error") and not answers[u].get("kept")}
    state = {"vm_state": states.ERROR, "power_state": states.NOSTATE}
    return {u: {**state, **a} if u in without_system else a for u, a in answers.items()}
