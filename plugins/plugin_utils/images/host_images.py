# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images that hosts make of their disks, and their way into a store: written there, fetched by the controller, or received by the store's host."""

from __future__ import annotations

import contextlib
import os
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.images import snapshots
from ...module_utils.core.images.stores.store_kind import FETCHED, RECEIVED, WRITTEN, ImageStore
from ...module_utils.flows.images import host_images as flow
from ...module_utils.ledger.db.transaction import Transaction
from ..run.ledger_action import LedgerAction
from ..run.results import item_errors
from ..run.stage_results import CONTROLLER
from .fetch_snapshot import fetch_snapshot, login_user, remove_half

AT_ONCE = 2  # images of a host: they share its disks

#: What an image is made of: ``uuid`` (of an instance or a volume, the key of its answer), ``host``, ``image`` (id and name), ``removed`` (ids of deleted
#: images of the store), ``failed_images`` (ids), and ``address``, where the host of the store reaches the host.
Item = t.Mapping[str, t.Any]
Items = t.Sequence[Item]
Answers = t.Dict[str, t.Dict[str, t.Any]]  # by the keys of items
Problems = t.Dict[str, errors.BootflowError]  # by the keys of items


class HostImages:
    """The images for one store.

    :arg module: makes the files. :arg arguments: returns the arguments that only this module has, for some items
    """

    def __init__(
        self, action: LedgerAction, store: ImageStore, module: str, arguments: t.Callable[[Items], dict[str, t.Any]]
    ):
        self.action, self.store, self.module, self.arguments = action, store, module, arguments

    # --- on the host that makes them ----------------------------------------------------------------------------------

    def make(self, items: Items) -> tuple[Answers, Problems]:
        """Make the images of the current host. One that the controller fetches is made when the one before is fetched, so that few are there at once.

        A module that takes too long fails a few images only.
        """
        way = self.store.way_from(self.action.task_vars["inventory_hostname"])
        fetched = way == FETCHED
        answers: Answers = {}
        problems: Problems = {}
        owner = login_user(self.action) if fetched and not self.action.check_mode else 0
        at_once = {FETCHED: 1, WRITTEN: AT_ONCE}.get(way, len(items) or 1)
        for group in [items[number : number + at_once] for number in range(0, len(items), at_once)]:
            try:
                done, failed = self._make(group, way, owner)
            except errors.BootflowError as e:  # the items before have their images
                failed = dict.fromkeys(keys_of(group), e)
                done = (
                    {key: {snapshots.LEFT: False} for key in failed} if way != WRITTEN else {}
                )  # the store was not asked
            answers.update(done)
            problems.update(failed)
        for key, answer in self.remove_deleted(items).items():
            answers.setdefault(key, {}).update(answer)
        return answers, problems

    def remove_deleted(self, items: Items) -> Answers:
        """Remove files of deleted images, where the current host writes to the store. Returns what to add to the answers of items."""
        way = self.store.way_from(self.action.task_vars["inventory_hostname"])
        deleting = [] if self.action.check_mode else [i for i in items if i["removed"]]
        return {i["uuid"]: {snapshots.REMOVED: self._remove_files(i["removed"], way)} for i in deleting}

    def _remove_files(self, image_ids: t.Sequence[str], way: str) -> list[str]:
        """Remove files of deleted images from the store. Returns the ids of the images whose files are gone."""
        if way != WRITTEN:  # by the host of the store, receive(), or the controller, remove_ended()
            return []
        try:
            result = self.action.run_module("image_file", {"path": self.store.path, "removed": list(image_ids)})
        except errors.BootflowError:  # the next work in the store removes them
            return []
        failed = item_errors(result, image_ids)
        return [image_id for image_id in image_ids if image_id not in failed]

    def _make(self, items: Items, way: str, owner: int) -> tuple[Answers, Problems]:
        result = self.action.run_module(
            self.module,
            {
                **self.arguments(items),
                **({"path": self.store.path} if way == WRITTEN else {}),
                "mode": self.store.kind.mode,
                "owner": owner,
                "failed_images": sorted({image_id for i in items for image_id in i["failed_images"]}),
            },
        )
        problems = item_errors(result, keys_of(items))
        answers: Answers = {key: dict(a) for key, a in result["outcomes"].items()}
        if not self.action.check_mode:
            made = [i for i in items if i["uuid"] not in problems]
            if way == FETCHED:
                self._fetch(made, answers, problems)
            for key in flow.unanswered({i["uuid"]: answers[i["uuid"]] for i in made}):
                reason = "the module %s gave neither size nor checksum of the image" % self.module
                problems.setdefault(key, errors.RemoteError(reason=reason))
            if way == RECEIVED:
                self._give([i for i in made if i["uuid"] not in problems], answers, problems)
        for key in problems:
            answers.setdefault(key, {})[snapshots.LEFT] = False  # the host has said so
        return answers, problems

    def _fetch(self, items: Items, answers: Answers, problems: Problems) -> None:
        """Fetch the files, and have the host remove them, whatever becomes of each."""
        for item in items:
            key, image = item["uuid"], item["image"]
            try:
                fetch_snapshot(self.action, self.store, image["id"], image["name"], answers[key])
            except errors.BootflowError as e:
                problems[key] = e
                remove_half(self.store, image["id"])
            finally:
                self._remove(str(answers[key].get("path") or ""), image["id"])

    def _give(self, items: Items, answers: Answers, problems: Problems) -> None:
        """Begin to give the files to the host of the store. They have no names any more then: what is left of them goes with their processes."""
        from . import give_snapshot  # of few runs

        try:
            places, failed = give_snapshot.begin(self.action, [(i["image"], answers[i["uuid"]]) for i in items])
        except errors.BootflowError as e:
            places, failed = {}, {i["image"]["id"]: e for i in items}
        for item in items:
            key, image_id = item["uuid"], item["image"]["id"]
            self._remove(str(answers[key].get("path") or ""), image_id)
            if image_id in failed:
                problems[key] = failed[image_id]
            else:
                answers[key]["giver"] = {**places[image_id], "address": item["address"]}

    def _remove(self, path: str, image_id: str) -> None:
        """Have the host remove a file that was fetched. Where that fails, the next image made there removes it when it is old."""
        with contextlib.suppress(errors.BootflowError):
            folder = path.rpartition("/")[0]
            self.action.run_module("image_file", {"path": folder, "removed": [image_id]})

    # --- on the host of the store -------------------------------------------------------------------------------------

    def receive(self, items: Items, answers: t.Mapping[str, Item]) -> tuple[Answers, Problems]:
        """Receive on the current host, that of the store, what other hosts made. :arg answers: of these hosts, also errors"""
        from . import give_snapshot  # of few runs

        given = [i for i in items if answers[i["uuid"]].get("giver")]
        outcomes, failed = give_snapshot.receive(
            self.action, self.store, [(i["image"], answers[i["uuid"]]) for i in given]
        )
        of_image = {i["image"]["id"]: i["uuid"] for i in given}
        received = {of_image[i]: dict(outcome) for i, outcome in outcomes.items()}
        deleted = [image_id for i in items if self.store.way_from(i["host"]) == RECEIVED for image_id in i["removed"]]
        if deleted:
            removed = self._remove_files(deleted, WRITTEN)
            for outcome in list(received.values())[:1]:  # any answer can say it
                outcome[snapshots.REMOVED] = removed
        return received, {of_image[i]: error for i, error in failed.items()}

    # --- on the controller --------------------------------------------------------------------------------------------

    def receiving_host(self, hosts: t.Iterable[str]) -> list[str]:
        """Return the host of the store, if it receives what one of these hosts makes."""
        return [self.store.host] if any(self.store.way_from(host) == RECEIVED for host in hosts) else []

    def with_received(
        self, host: str, items: t.Mapping[str, Item], answers: t.Mapping[str, Item], outcomes: Answers | None
    ) -> dict[str, t.Any]:
        """Return the answers, with what became of what ``host`` was to receive. :arg outcomes: of receive(); None: it answered nothing"""
        wanted = [key for key, i in items.items() if self.store.way_from(i["host"]) == RECEIVED]
        received = snapshots.with_received(dict(answers), outcomes, wanted, host)
        for key, outcome in (outcomes or {}).items():
            if snapshots.REMOVED in outcome:
                received[key] = {**received[key], snapshots.REMOVED: outcome[snapshots.REMOVED]}
        return received

    def remove_ended(self, tx: Transaction) -> None:
        """Remove what a store of the controller has of deleted images."""
        if self.store.host == CONTROLLER and os.path.isdir(self.store.path):  # its file system may not be mounted
            flow.remove_ended(tx, self.store, lambda image_id: remove_half(self.store, image_id))


def keys_of(items: Items) -> list[str]:
    """Return the keys of the answers to items."""
    return [item["uuid"] for item in items]
