# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shelves and offloads: guests are shut down, images of their root disks come into a store, and hosts lose what they have of the instances.

source: Nova's _shelve_instance and _shelve_offload_instance
"""

from __future__ import annotations

import typing as t

from ....module_utils.core import errors
from ....module_utils.core.images import shelving
from ....module_utils.core.images.quiesce import NO
from ....module_utils.core.images.shelving import ShelveRequest
from ....module_utils.core.images.snapshots import LEFT
from ....module_utils.core.instances import states
from ....module_utils.core.instances.operation_outcomes import Answers, Item
from ....module_utils.flows.instances import operation as engine
from ....module_utils.flows.instances import shelve as flow
from ....module_utils.flows.instances.operation import Begun, Operation, Selection
from ....module_utils.flows.instances.volume_backed import is_volume_backed
from ....module_utils.ledger.compute.instances import Instance
from ....module_utils.ledger.db.transaction import Transaction
from ...run.ledger_action import LedgerAction
from ..cleaning import clean_host
from ..power_work import PowerWork
from ..snapshots.snapshot import Snapshot, non_inheritable_properties, store_of
from ..work import Items, Problems, Work, uuids_of

#: Of the answer of an instance without an image: its guest is off, whatever it was before.
_OFF = {"vm_state": states.STOPPED, "power_state": states.SHUTDOWN}


class Shelve(Snapshot):
    """Shuts each guest down, and makes an image of its root disk unless that is a volume."""

    def prepare(self) -> None:
        self._non_inheritable = non_inheritable_properties(self.action)

    def _request_of(self) -> ShelveRequest:
        """:raises ImageStoreNotFound: the store is not known, or there is none"""
        return shelving.request_in(store_of(self.action), self._non_inheritable)

    def begin(
        self, tx: Transaction, operation: Operation, selection: Selection, known_hosts: t.Collection[str], ask: bool
    ) -> Begun:
        begun, self._images = flow.begin(tx, selection, known_hosts, self._request_of)
        if self._images:
            self._request = self._request_of()
            self.read_remnants(tx, [r for r in begun.rows if r.uuid in self._images])
        return begun

    def item_of(self, row: Instance) -> dict[str, t.Any]:
        at_once = shelving.leaves_at_once(is_volume_backed(row), self.action.options["shelved_offload_time"])
        note = "leaves the host at once" if at_once else ""
        if row.uuid not in self._images:
            return {"leaves": at_once, "note": note}
        item = self.item_of_image(row, NO)  # its guest is off
        if self.action.check_mode and note:
            item["note"] += ", %s" % note
        return {**item, "leaves": at_once}

    def change_of(self, row: Instance) -> tuple[str, str]:
        image = self._images.get(row.uuid)
        words = "" if image is None else ", image %s in the store %s" % (image.name, store_of(self.action).name)
        return " on %s" % row.host, words

    def note_of_unchanged(self, row: Instance) -> str:
        return "nothing to do"

    def store_hosts(self, rows: t.Sequence[Instance]) -> list[str]:
        with_image = [r for r in rows if r.uuid in self._images]
        return super().store_hosts(with_image) if with_image else []

    # --- on a host ----------------------------------------------------------------------------------------------------

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, Problems]:
        """Shut the guests of the current host down, then make their images: a guest that stays on has none."""
        answers, problems = PowerWork(self.action, "shutdown").on_host(items, fresh)
        off = [i for i in items if i["uuid"] not in problems]
        with_image = [i for i in off if i.get("image")]
        if with_image and not self.action.check_mode:
            made, failed = self._make_images(with_image, fresh)
            for uuid, answer in made.items():
                answers[uuid] = {**answers.get(uuid, {}), **answer, "changed": True}
            problems.update(failed)
        for item in off:
            answers.setdefault(item["uuid"], {})["changed"] = True
            if item["uuid"] in problems and not self.action.check_mode:
                answers[item["uuid"]].update(_OFF)
        for item in items:
            if item.get("image") and item not in off:
                answers.setdefault(item["uuid"], {})[LEFT] = False  # the store was not asked
        return answers, problems

    def _make_images(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, Problems]:
        try:
            return super().on_host(items, fresh)
        except errors.BootflowError as e:
            return {}, dict.fromkeys(uuids_of(items), e)

    # --- on the host of the store -------------------------------------------------------------------------------------

    def with_stored(
        self, host: str, items: t.Mapping[str, Item], answers: t.Mapping[str, Item], outcomes: Answers | None
    ) -> t.Mapping[str, Item]:
        stored = super().with_stored(host, items, answers, outcomes)
        refused = [u for u, a in stored.items() if a.get("error") and not answers[u].get("error")]
        return {**stored, **{u: {**stored[u], **_OFF} for u in refused}}

    # --- finish -------------------------------------------------------------------------------------------------------

    def write_results(
        self,
        tx: Transaction,
        items: t.Mapping[str, Item],
        answers: t.Mapping[str, Item],
        failed: t.Mapping[str, errors.BootflowError],
    ) -> Problems:
        with_image = {uuid: item for uuid, item in items.items() if item.get("image")}
        failures = super().write_results(tx, with_image, answers, failed) if with_image else {}
        flow.finish(tx, items, failed, failures)
        return failures

    def result_of(self, item: Item) -> dict[str, t.Any]:
        return {"image": item["image"]} if item.get("image") else {}


class ShelveOffload(Work):
    """Takes shelved instances from their hosts. Without a selection: the instances that have been shelved for long enough. See shelving.Shelving."""

    reads_disks = True

    def begin(
        self, tx: Transaction, operation: Operation, selection: Selection, known_hosts: t.Collection[str], ask: bool
    ) -> Begun:
        if selection.is_empty:
            rows = [r for r in flow.due(tx, self.action.options["shelved_offload_time"]) if r.host in known_hosts]
        else:
            rows = engine.select(tx, selection, operation=operation)
            engine.refuse_unknown(tx, rows, selection, known_hosts)
        begun, refused = flow.begin_offload(tx, rows, known_hosts, alone=selection.is_empty)
        for error in refused.values() if selection.is_empty else ():
            self.action.ports.display.warning("%s stays on its host: %s" % (error.details[engine.WHOSE], error.message))
        return begun

    def change_of(self, row: Instance) -> tuple[str, str]:
        return " on %s" % row.host, ""

    def on_host(self, items: Items, fresh: t.Collection[str]) -> tuple[Answers, Problems]:
        return offload(self.action, items)


def offload(action: LedgerAction, items: Items) -> tuple[Answers, Problems]:
    """Remove guests, local disks and config drives of these instances from the current host, and disconnect their volumes.

    A guest that has power stays: it was started after its image was made. A module that works on after its run was given up does so, too.
    """
    done: Answers = {i["uuid"]: {"changed": True, "power_state": states.SHUTDOWN} for i in items}
    if action.check_mode:
        return done, {}
    cleaned = clean_host(action, [{"uuid": i["uuid"], "name": i["domain"], "without_power": True} for i in items])
    return {u: a for u, a in done.items() if u not in cleaned.problems}, dict(cleaned.problems)
