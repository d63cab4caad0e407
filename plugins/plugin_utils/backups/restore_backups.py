# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages of images of backups: begun on the controller, made on the hosts of the backups, received by hosts of stores, finished on the controller."""

from __future__ import annotations

import contextlib
import functools
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.backups.restores import read_restores
from ...module_utils.core.settings.images import IMAGE_WORK
from ...module_utils.core.settings.run import TIME_LIMITS
from ...module_utils.flows.backups import restore as flow
from ...module_utils.flows.backups.restore import RestoredImage, RestoresBegun
from ...module_utils.flows.images import host_images
from ...module_utils.ledger.backups.backups import stored_file
from ...module_utils.ledger.db.transaction import Transaction
from ..images.host_images import AT_ONCE, HostImages
from ..run import host_settings, inventory_hosts, tables
from ..run.ledger_action import LedgerAction, read_settings
from ..run.results import diff, outcome
from ..run.stages import Failed, Item, Items, Outcomes, Result, Stages
from ..settings.ledger_images import stores_of

MODULE = "instance_backup_image"


class RestoreBackups(Stages):
    """Makes the images of bootflow_backup_restores."""

    called = "incremental_backup_restore"
    answered_by = {"work": "host"}  # the host of a store answers for several hosts
    rehearses_on_hosts = True

    def __init__(self, action: LedgerAction):
        super().__init__(action, "incremental_backup_restore")
        self.stores = stores_of(action)
        self.keeps_lease = not action.check_mode

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        return {"begin": self._begin, "finish": self._finish}

    def on_hosts(self) -> t.Mapping[str, t.Callable[[str], Result]]:
        return {"work": self._work, "store": self._store}

    def _host_images(self, store: str) -> HostImages:
        return HostImages(self.action, self.stores.get(store), MODULE, self._arguments)

    def items(self) -> dict[str, Item]:
        return {i["uuid"]: i for i in self.result(self.begins).get("restores") or []}

    # --- begin ----------------------------------------------------------------------------------------------------------

    def _begin(self) -> Result:
        options, action = self.options, self.action
        entries = read_restores(options["backup_restores"], self.stores)
        settings = read_settings(IMAGE_WORK.options("non_inheritable_image_properties"), {}, action.variable)
        named = {e.store.name for e in entries}
        failed_ids: list[str] = []
        to_remove: dict[str, list[str]] = {}
        addresses: dict[str, str] = {}

        def begin(tx: Transaction) -> RestoresBegun:
            begun = flow.begin(tx, entries, options["project"], settings["non_inheritable_image_properties"])
            hosts = {r.row.host for r in begun.made}
            receiving = self._receiving(begun.made)
            inventory_hosts.in_inventory(action, sorted({*hosts, *receiving}))
            failed_ids[:] = host_images.failed_lately(tx)
            to_remove.update({name: host_images.files_to_remove(tx, name) for name in named})
            if receiving:
                from ..images import give_snapshot  # of few runs

                addresses.update(give_snapshot.addresses(action, tx, hosts))
            return begun

        begun = action.write(begin)
        items = [_item(r, failed_ids, to_remove, addresses) for r in begun.made]
        unchanged = [_shown(r) for r in begun.unchanged]
        if options["print_table"] and not items:
            words = "the images are there: %s" % ", ".join(u["image"]["name"] for u in unchanged)
            tables.show(
                action.ports.display, ["Nothing to do: %s." % (words if unchanged else "no image is requested")]
            )
        lines = ["%s of backup %s of %s, in the store %s\n" % _words(i) for i in items]
        return {
            "changed": bool(items),
            "restores": items,
            "unchanged": unchanged,
            "compute": sorted({i["host"] for i in items}),
            "stores": [] if action.check_mode else self._receiving(begun.made),
            "diff": diff("images", "", "".join(lines)),
        }

    def _receiving(self, made: t.Sequence[RestoredImage]) -> list[str]:
        """Return the hosts of stores that receive what other hosts make."""
        return sorted({h for r in made for h in self._host_images(r.entry.store.name).receiving_host([r.row.host])})

    # --- on hosts ---------------------------------------------------------------------------------------------------------

    def _work(self, host: str) -> Result:
        answers: Outcomes = {}
        for store, items in _by_store(self.items_on(host, "host")).items():
            make = functools.partial(self._host_images(store).make, items)
            answers.update(self.guarded([i["uuid"] for i in items], make))
        return {"changed": any(answer.get("changed") for answer in answers.values()), "outcomes": answers}

    def _arguments(self, items: Items) -> dict[str, t.Any]:
        """Return the arguments of the module for some backups of the current host."""
        limits = host_settings.values(self.action, TIME_LIMITS)
        return {
            "instances_path": host_settings.read_current_host(self.action).instances_path,
            "backups": [{"key": i["uuid"], "image_id": i["image"]["id"], "chain": i["chain"]} for i in items],
            "stale_seconds": 2 * limits.copy_timeout,
            "workers": AT_ONCE,
        }

    def _store(self, host: str) -> Result:
        """Have the host of stores receive what other hosts give it."""
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
        error = errors.OperationFailed(remaining, len(items), operation=self.called)
        return outcome(error, changed=bool(done), images=[*done, *(_view(i) for i in unchanged)])

    def _write(self, items: t.Mapping[str, Item], answers: t.Mapping[str, Item], failed: Failed) -> dict[str, t.Any]:
        """Write what became of the images. Returns why some failed."""
        ids = {
            store: {i["uuid"]: i["image"]["id"] for i in of_store}
            for store, of_store in _by_store(items.values()).items()
        }

        def finish(tx: Transaction) -> dict[str, errors.BootflowError]:
            failures = host_images.finish_stores(tx, ids, answers, failed)
            for store in ids:
                self._host_images(store).remove_ended(tx)
            return failures

        with contextlib.closing(self.action.open_ledger()) as ledger:
            return ledger.transact(finish)

    def _show(self, items: t.Mapping[str, Item], failed: Failed) -> None:
        if not items or not self.options["print_table"]:
            return
        title = "Would make (nothing is touched):" if self.action.check_mode else "Images of backups:"
        head = ("IMAGE", "ID", "INSTANCE", "BACKUP", "STORE", "NOTE")
        rows = [
            (
                i["image"]["name"],
                "-" if self.action.check_mode else i["image"]["id"],
                i["instance"],
                i["backup"],
                i["store"],
                failed[u].code if u in failed else "",
            )
            for u, i in items.items()
        ]
        tables.show(self.action.ports.display, [title, *tables.table(head, rows)])


def _item(
    made: RestoredImage, failed_ids: t.Sequence[str], to_remove: dict[str, list[str]], addresses: t.Mapping[str, str]
) -> Item:
    """Return the item by which later stages know an image. The first of a store has the files to remove there."""
    host = made.row.host
    return {
        **_shown(made),
        "host": host,
        "chain": [stored_file(row) for row in made.chain],
        "removed": to_remove.pop(made.entry.store.name, []),
        "failed_images": list(failed_ids),
        **({"address": addresses[host]} if host in addresses else {}),
    }


def _shown(made: RestoredImage) -> Item:
    return {
        "uuid": made.image.id,
        "backup": made.row.id,
        "instance": made.row.instance_name,
        "image": {"id": made.image.id, "name": made.image.name},
        "store": made.entry.store.name,
    }


def _view(item: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return an image in the result of the playbook."""
    return {**item["image"], "backup": item["backup"], "instance": item["instance"], "store": item["store"]}


def _words(item: t.Mapping[str, t.Any]) -> tuple[str, str, str, str]:
    return item["image"]["name"], item["backup"], item["instance"], item["store"]


def _by_store(items: t.Iterable[Item]) -> dict[str, list[Item]]:
    of_stores: dict[str, list[Item]] = {}
    for item in items:
        of_stores.setdefault(item["store"], []).append(item)
    return of_stores
