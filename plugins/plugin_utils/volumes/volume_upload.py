# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of images of volumes: begun on the controller, made on the storage hosts, received by hosts of stores, and finished on the controller.

source: Cinder's os-volume_upload_image
"""

from __future__ import annotations

import contextlib
import functools
import os
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.images.volume_images import read_uploads
from ...module_utils.core.settings.run import TIME_LIMITS
from ...module_utils.flows.images import host_images
from ...module_utils.flows.volumes import uploads as flow
from ...module_utils.flows.volumes.uploads import Upload, UploadsBegun
from ...module_utils.ledger.db.transaction import Transaction
from ..images.host_images import AT_ONCE, HostImages
from ..run import host_settings, inventory_hosts, tables
from ..run.ledger_action import LedgerAction
from ..run.results import diff, outcome
from ..run.stages import Failed, Item, Items, Outcomes, Result, Stages
from ..settings import storage_settings
from ..settings.ledger_images import stores_of

MODULE = "volume_lvm_image"
OWN = "_snapshots"  # the folder of files on their way, below the folder for conversions


class VolumeUploadImage(Stages):
    """Makes the images of bootflow_volume_uploads."""

    called = "volume_upload_image"
    answered_by = {"work": "host"}  # the host of a store answers for several hosts
    rehearses_on_hosts = True

    def __init__(self, action: LedgerAction):
        super().__init__(action, "volume_upload_image")
        self.stores = stores_of(action)
        self.keeps_lease = not action.check_mode

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        return {"begin": self._begin, "finish": self._finish}

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        return {"work": self._work, "store": self._store}

    def _host_images(self, store: str) -> HostImages:
        return HostImages(self.action, self.stores.get(store), MODULE, self._arguments)

    def items(self) -> dict[str, Item]:
        return {i["uuid"]: i for i in self.result(self.begins).get("uploads") or []}

    def lost_in(self, tx: Transaction, uuids: t.Collection[str]) -> Failed:
        return flow.find_lost(tx, uuids)

    # --- begin ----------------------------------------------------------------------------------------------------------

    def _begin(self) -> Result:
        options, action = self.options, self.action
        entries = read_uploads(options["volume_uploads"], self.stores)
        named = {e.store.name for e in entries}
        failed_ids: list[str] = []
        to_remove: dict[str, list[str]] = {}
        addresses: dict[str, str] = {}

        def begin(tx: Transaction) -> UploadsBegun:
            begun = flow.begin(tx, entries, options["project"], options["enable_force_upload"])
            hosts = {u.host for u in begun.made}
            inventory_hosts.in_inventory(action, sorted({*hosts, *self._receiving(begun.made)}))
            failed_ids[:] = host_images.failed_lately(tx)
            to_remove.update({name: host_images.files_to_remove(tx, name) for name in named})
            if self._receiving(begun.made):
                from ..images import give_snapshot  # of few runs

                addresses.update(give_snapshot.addresses(action, tx, hosts))
            return begun

        begun = action.write(begin)
        items = [_item(u, failed_ids, to_remove, addresses) for u in begun.made]
        unchanged = [_shown(u) for u in begun.unchanged]
        if options["print_table"] and not items:
            words = "the images are there: %s" % ", ".join(u["image"]["name"] for u in unchanged)
            tables.show(
                action.ports.display, ["Nothing to do: %s." % (words if unchanged else "no image is requested")]
            )
        lines = ["%s of volume %s, %s, in the store %s\n" % _words(i) for i in items]
        return {
            "changed": bool(items),
            "uploads": items,
            "unchanged": unchanged,
            "begun_at": action.context().now,
            "storage": sorted({i["host"] for i in items}),
            "stores": [] if action.check_mode else self._receiving(begun.made),
            "diff": diff("images", "", "".join(lines)),
        }

    def _receiving(self, made: t.Sequence[Upload]) -> list[str]:
        """Return the hosts of stores that receive what storage hosts make."""
        return sorted({h for u in made for h in self._host_images(u.entry.store.name).receiving_host([u.host])})

    # --- on storage hosts, and on hosts of stores ---------------------------------------------------------------------------

    def _work(self, host: str) -> Result:
        answers: Outcomes = {}
        for store, items in _by_store(self.items_on(host, "host")).items():
            answers.update(self.guarded([i["uuid"] for i in items], functools.partial(self._make, store, items)))
        return {"changed": any(answer.get("changed") for answer in answers.values()), "outcomes": answers}

    def _make(self, store: str, items: Items) -> tuple[Outcomes, Failed]:
        lost_volumes = self._lost_since([i["uuid"] for i in items])
        done, failed = self._host_images(store).make([i for i in items if i["uuid"] not in lost_volumes])
        return done, {**failed, **lost_volumes}

    def _lost_since(self, uuids: t.Sequence[str]) -> Failed:
        """Find the volumes that another run has now. As long as the lease from the beginning is not over, the ledger need not be asked."""
        context = self.action.context()
        begun_at = float(self.result(self.begins).get("begun_at") or 0.0)
        if self.action.check_mode or context.now < begun_at + context.lease_seconds / 2:
            return {}
        return self.find_lost(uuids)

    def _arguments(self, items: Items) -> dict[str, t.Any]:
        """Return the arguments of the module for some volumes of the current host."""
        settings = storage_settings.read_current_host(self.action)
        limits = host_settings.values(self.action, TIME_LIMITS)
        return {
            "ledger_id": self.action.ledger_id(),
            "volumes": [
                {
                    "id": i["uuid"],
                    "image_id": i["image"]["id"],
                    "volume_group": i["volume_group"],
                    "disk_format": i["disk_format"],
                }
                for i in items
            ],
            "own": os.path.join(settings.conversion_dir, OWN),
            "compress": settings.image_compress_on_upload,
            "stale_seconds": 2 * limits.copy_timeout,
            "workers": AT_ONCE,
        }

    def _store(self, host: str) -> Result:
        """Have the host of stores receive what storage hosts give it."""
        answers = self.answers("work")
        outcomes: Outcomes = {}
        for store, items in _by_store(self.items().values()).items():
            images = self._host_images(store)
            if images.receiving_host(i["host"] for i in items) != [host]:
                continue
            made = [i["uuid"] for i in items if not answers[i["uuid"]].get("error")]
            outcomes.update(self.guarded(made, functools.partial(images.receive, items, answers)))
        return {"changed": any(o.get("changed") for o in outcomes.values()), "outcomes": outcomes}

    # --- finish -----------------------------------------------------------------------------------------------------------

    def _finish(self) -> Result:
        items = self.items()
        answers: dict[str, t.Any] = dict(self.answers("work"))
        for store, of_store in _by_store(items.values()).items():
            images = self._host_images(store)
            for host in [] if self.action.check_mode else images.receiving_host(i["host"] for i in of_store):
                stored = self.result("store", host)
                outcomes = stored.get("outcomes") if self.is_current(stored, "store") else None
                keyed = {i["uuid"]: i for i in of_store}
                of_items = {u: a for u, a in answers.items() if u in keyed}
                received = None if outcomes is None else {u: o for u, o in outcomes.items() if u in keyed}
                answers.update(images.with_received(host, keyed, of_items, received))
        failed = {u: errors.from_dict(a["error"]) for u, a in answers.items() if a.get("error")}
        if items and not self.action.check_mode:
            failed = self._write(items, answers, failed)
        done = [_view(i) for u, i in items.items() if u not in failed]
        remaining = [
            errors.failed_item(i["image"]["name"], i["image"]["id"], failed[u].as_dict(), host=i["host"])
            for u, i in items.items()
            if u in failed
        ]
        self._show(items, failed)
        unchanged = self.result(self.begins).get("unchanged") or []
        error = errors.VolumeUploadFailed(remaining, len(items))
        return outcome(error, changed=bool(done), images=[*done, *(_view(i) for i in unchanged)])

    def _write(self, items: t.Mapping[str, Item], answers: t.Mapping[str, Item], failed: Failed) -> dict[str, t.Any]:
        """Write what became of the images. Returns why some failed."""
        ids = {
            store: {i["uuid"]: i["image"]["id"] for i in of_store}
            for store, of_store in _by_store(items.values()).items()
        }

        def finish(tx: Transaction) -> dict[str, errors.BootflowError]:
            failures = flow.finish(tx, ids, answers, failed)
            for store in ids:
                self._host_images(store).remove_ended(tx)
            return failures

        with contextlib.closing(self.action.open_ledger()) as ledger:
            return ledger.transact(finish)

    def _show(self, items: t.Mapping[str, Item], failed: Failed) -> None:
        if not items or not self.options["print_table"]:
            return
        title = "Would make (nothing is touched):" if self.action.check_mode else "Images of volumes:"
        head = ("IMAGE", "ID", "VOLUME", "FORMAT", "STORE", "NOTE")
        rows = [
            (
                i["image"]["name"],
                "-" if self.action.check_mode else i["image"]["id"],
                i["name"],
                i["disk_format"],
                i["store"],
                failed[u].code if u in failed else "",
            )
            for u, i in items.items()
        ]
        tables.show(self.action.ports.display, [title, *tables.table(head, rows)])


def _item(
    upload: Upload,
    failed_ids: t.Sequence[str],
    to_remove: dict[str, list[str]],
    addresses: t.Mapping[str, str],
) -> Item:
    """Return the item by which later stages know an image. The first of a store has the files to remove there."""
    removed = to_remove.pop(upload.entry.store.name, [])
    return {
        **_shown(upload),
        "host": upload.host,
        "volume_group": upload.volume_group,
        "removed": removed,
        "failed_images": list(failed_ids),
        **({"address": addresses[upload.host]} if upload.host in addresses else {}),
    }


def _shown(upload: Upload) -> Item:
    return {
        "uuid": upload.row.id,
        "name": upload.row.name or upload.row.id,
        "image": {"id": upload.image.id, "name": upload.image.name},
        "disk_format": upload.entry.disk_format,
        "store": upload.entry.store.name,
    }


def _view(item: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return an image in the result of the playbook."""
    return {**item["image"], "volume_id": item["uuid"], "volume": item["name"], "store": item["store"]}


def _words(item: t.Mapping[str, t.Any]) -> tuple[str, str, str, str]:
    return item["image"]["name"], item["name"], item["disk_format"], item["store"]


def _by_store(items: t.Iterable[Item]) -> dict[str, list[Item]]:
    of_stores: dict[str, list[Item]] = {}
    for item in items:
        of_stores.setdefault(item["store"], []).append(item)
    return of_stores
