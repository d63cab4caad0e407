# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of a shelve, after which instances leave their hosts at once unless they are to stay for a while, and of an offload, by which they leave.

The transaction that writes the shelve begins the offloads: an image is active, and its instance shelved, before a host removes anything.
"""

from __future__ import annotations

import contextlib
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.images import shelving
from ...module_utils.core.instances import operation_outcomes, states
from ...module_utils.core.instances.operation_outcomes import Item
from ...module_utils.flows.attachments import moving
from ...module_utils.flows.instances import shelve as flow
from ...module_utils.flows.instances.volume_backed import is_volume_backed
from ...module_utils.ledger.compute import instances
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.storage import attachments
from ..run import tables
from ..run.stages import Result
from .operation import InstanceOperation, errors_of
from .shelves.shelve import offload
from .work import uuids_of


class _Shelved(t.NamedTuple):
    """The instances of a run after the shelve."""

    failed: t.Mapping[str, errors.BootflowError]  # why instances are not shelved
    leaving: t.Sequence[Instance] = ()  # their hosts, which are asked next
    staying: t.Mapping[str, errors.BootflowError] = {}  # why shelved instances cannot leave their hosts


class Shelving(InstanceOperation):
    """The stages of a shelve and of an offload. ``shelved`` ends a shelve and begins the offloads, ``offload`` is the work of hosts for them, and
    ``offloaded`` ends them.
    """

    answered_by = {**InstanceOperation.answered_by, "offload": "host"}
    clears = False

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        return {**super().on_controller(), "shelved": self._end_shelve, "offloaded": self._end_offload}

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        return {**super().on_hosts(), "offload": self._offload}

    @property
    def _shelves(self) -> bool:
        return self.operation is flow.SHELVE

    def _leaving(self) -> dict[str, Item]:
        """Return the instances that leave their hosts, by their UUIDs."""
        leaving = self.result("shelved")["leaving"] if self._shelves else self.items().values()
        return {i["uuid"]: i for i in leaving}

    # --- shelved: on the controller -----------------------------------------------------------------------------------

    def _end_shelve(self) -> Result:
        """Write the outcomes of the shelve, and begin with instances that leave their hosts at once. Some may have been shelved before."""
        items = self.items()
        answers = self.answers_of_work(items)
        unchanged = [i["uuid"] for i in self.result(self.begins).get("unchanged") or []]
        known_hosts = frozenset(self.action.compute_hosts())
        offload_time = self.options["shelved_offload_time"]

        def end(tx: Transaction) -> _Shelved:
            # All of them in their order, and before images.
            instances.select_live(tx, uuids=sorted({*items, *unchanged}), lock=True)
            attachments.lock(tx, {*items, *unchanged})
            failed = self.end(tx, items, answers) if answers else {}
            rows = instances.select_live(tx, uuids=sorted({*items, *unchanged} - set(failed)), lock=True)
            due = [r for r in rows if _is_due(r, offload_time)]
            begun, staying = flow.begin_offload(tx, due, known_hosts, alone=True)
            return _Shelved(failed, begun.rows, staying)

        done = _Shelved(errors_of(answers))
        if not self.action.check_mode and (items or unchanged):
            with contextlib.closing(self.action.open_ledger()) as ledger:
                done = ledger.transact(end)
        leaving = [
            {"uuid": r.uuid, "name": r.display_name, "host": str(r.host), "domain": r.domain_name} for r in done.leaving
        ]
        return {
            "changed": bool(leaving),
            "failed_instances": {uuid: error.as_dict() for uuid, error in {**done.failed, **done.staying}.items()},
            "leaving": leaving,
            "compute": sorted({i["host"] for i in leaving}),
        }

    # --- offload: on each host ------------------------------------------------------------------------------------------

    def _offload(self, host: str) -> Result:
        items = [i for i in self._leaving().values() if i["host"] == host]
        answers = self.guarded(uuids_of(items), lambda: offload(self.action, items))
        return {"changed": any(answer.get("changed") for answer in answers.values()), "outcomes": answers}

    # --- offloaded and finish: on the controller --------------------------------------------------------------------------

    def _end_offload(self) -> Result:
        """Write the outcomes of the offloads."""
        leaving = self._leaving()
        answers = self.answers("offload", {u: dict(i) for u, i in leaving.items()})
        failed = errors_of(answers)
        if leaving and not self.action.check_mode:
            outcomes = {u: operation_outcomes.outcome_of(a, failed.get(u)) for u, a in answers.items()}
            hosts = {u: i["host"] for u, i in leaving.items()}
            with contextlib.closing(self.action.open_ledger()) as ledger:
                failed = ledger.transact(flow.finish_offload, outcomes, hosts)
        return {
            "changed": len(failed) < len(leaving),
            "failed_instances": {uuid: error.as_dict() for uuid, error in failed.items()},
        }

    def _finish(self) -> Result:
        items, leaving = self.items(), self._leaving()
        answers = self.answers_of_work(items) if self._shelves else {}
        errors_by_uuid = dict(self.result("offloaded")["failed_instances"])
        if self._shelves:
            errors_by_uuid.update(self.result("shelved")["failed_instances"])
        if leaving and not self.action.check_mode:  # storage hosts have ended the exports
            with contextlib.closing(self.action.open_ledger()) as ledger:
                ledger.transact(moving.release_moved, sorted(leaving))
        before = {i["uuid"]: i for i in self.result(self.begins).get("unchanged") or []}
        shown = {**items, **{uuid: before[uuid] for uuid in {*leaving, *errors_by_uuid} if uuid in before}}
        now = self._places(shown)
        results = []
        for uuid, item in shown.items():
            error = errors.from_dict(errors_by_uuid[uuid]) if uuid in errors_by_uuid else None
            summary = operation_outcomes.summary_of(item, answers.get(uuid, {}), error, now[uuid][0], "")
            results.append({**summary, "host": now[uuid][1], **self.work.result_of(item)})
        if self.options["print_table"]:
            vm_states = {uuid: item["vm_state"] for uuid, item in shown.items()}
            lines = self._lines(results, vm_states, [i for u, i in before.items() if u not in shown])
            if lines:
                tables.show(self.action.ports.display, lines)
        return self.finish(results)

    def _places(self, shown: t.Mapping[str, Item]) -> dict[str, tuple[str, str | None]]:
        """Return vm_state and host of instances by their UUIDs, in check mode as they would be."""
        if self.action.check_mode:
            stays = {u: self._shelves and not i.get("leaves") for u, i in shown.items()}
            return {
                u: (states.SHELVED, i["host"]) if stays[u] else (states.SHELVED_OFFLOADED, None)
                for u, i in shown.items()
            }
        with contextlib.closing(self.action.open_ledger()) as ledger:
            rows = ledger.inspect(instances.select_live, None, sorted(shown)) if shown else []
        places = {r.uuid: (r.vm_state, r.host) for r in rows}
        return {u: places.get(u, (states.DELETED, None)) for u in shown}


def _is_due(row: Instance, offload_time: int) -> bool:
    """Whether an instance leaves its host now. :arg offload_time: bootflow_shelved_offload_time"""
    at_rest = (row.vm_state, row.task_state) == (states.SHELVED, None)
    return at_rest and shelving.leaves_at_once(is_volume_backed(row), offload_time)
