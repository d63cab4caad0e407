# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A delete, soft delete, or the reclaim of what was soft-deleted: the stages of the controller. instance_remove works on hosts."""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils.core import errors
from ...module_utils.core.amounts import and_volumes
from ...module_utils.core.instances import states
from ...module_utils.core.settings.selection import DELETION, HOSTS, SELECTION
from ...module_utils.flows.instances import delete
from ...module_utils.flows.instances.operation import Outcome, Selection
from ...module_utils.flows.volumes import work
from ...module_utils.ledger.compute import cleanups
from ...module_utils.ledger.compute.instances import Instance
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ...module_utils.ledger.storage import attachments
from ..run import inventory_hosts, tables
from ..run.results import diff, outcome
from ..run.stages import Item, Result, Stages
from ..settings import variable_names

DELETE, FORCE_DELETE, RECLAIM = "delete", "force_delete", "reclaim"
REMOVE = "remove"  # the work of instance_remove on hosts, among the stages
TODO = "todo"  # what the task of a host has to remove, where it need not read the ledger for it


class Deletion(Stages):
    """All stages of the operation that the options of the action name."""

    called = DELETE

    def on_controller(self) -> t.Mapping[str, t.Callable[[], Result]]:
        if self.action.check_mode:  # nothing was deleted
            return {"begin": self._begin}
        return {"begin": self._begin, "removed": self._removed, "finish": self._finish}

    # --- begin ----------------------------------------------------------------------------------------------------------

    def _begin(self) -> Result:
        """Mark the selected instances, and soft-delete the instances that are kept for a while."""
        variable_names.refuse(self.action, SELECTION, HOSTS, DELETION)
        selection = self._selection()
        inventory = inventory_hosts.all_of(self.action)

        def begin(tx: Transaction) -> tuple[delete.Deleting, bool, dict[str, list[dict[str, str]]]]:
            deleting = self._mark(tx, selection, inventory)
            exported = attachments.of_instances(tx, [r.uuid for r in deleting.rows])
            storage_works = bool(exported) or bool(work.hosts_with_work(tx))
            return deleting, storage_works, delete.plain_by_host(tx, deleting)

        deleting, storage_works, plain = self.action.write(begin)
        for host, items in plain.items():
            self.results.leave(TODO, host, {"instances": items})
        named = _named(deleting.rows)
        soft_deleted_items = [
            {**n, "vm_state": r.vm_state} for n, r in zip(_named(deleting.soft_deleted), deleting.soft_deleted)
        ]
        before, after = self._described([*named, *soft_deleted_items], soft_deleted_items, deleting.volumes)
        if self.action.check_mode and self.options["print_table"]:
            deletion_lines = before[: len(named)]
            tables.show(self.action.ports.display, ["Would delete:", *([*deletion_lines, *after] or ["  nothing"])])
        return {
            "changed": bool(named) or any(r.vm_state != states.SOFT_DELETED for r in deleting.soft_deleted),
            "instances": named,
            "kept": soft_deleted_items,
            "not_found": self._not_found([*named, *soft_deleted_items]),
            "compute": [h for h in deleting.hosts if h in inventory],
            "again": storage_works,
            "volumes_deleted": deleting.volumes,
            "diff": diff("instances", *("".join(line + "\n" for line in lines) for lines in (before, after))),
        }

    def _selection(self) -> Selection:
        """:raises InvalidInput: a reclaim selects by itself."""
        options = self.options
        selection = Selection(
            names=options["names"],
            uuids=options["uuids"],
            reservations=options["reservation_ids"],
            project=options["project"],
            everything=options["all"],
        )
        if not selection.is_empty:  # a host alone selects nothing: all instances on it are selected with a project, too
            selection = dataclasses.replace(selection, hosts=options["hosts"])
        if (
            options["operation"] == RECLAIM
            and not dataclasses.replace(selection, project=None, hosts=options["hosts"]).is_empty
        ):
            raise errors.InvalidInput(
                reason="reclaim deletes what was deleted long enough ago, of all projects; nothing can be chosen",
                remedy="Leave the names, UUIDs, reservation ids and hosts out, or delete these for good with bootflow.compute.force_delete.",
            )
        return selection

    def _mark(self, tx: Transaction, selection: Selection, inventory: t.Collection[str]) -> delete.Deleting:
        """Begin to delete. :arg inventory: the hosts that plays can reach, unless the run has a limit

        :raises BootflowError: nothing is marked: hosts are not in the inventory, or left out by the limit.
        """
        options, keep_for = self.options, self.options["reclaim_instance_interval"]
        if (
            options["operation"] == RECLAIM
        ):  # an instance on a host that is gone does not stop the others: it is named at the end
            return delete.begin_reclaim(tx, keep_for) if keep_for > 0 else delete.Deleting()
        soft = keep_for > 0 and options["operation"] == DELETE and not options["force"]
        deleting = delete.begin(tx, selection, options["missing_ok"], soft)
        hosts = sorted({*deleting.hosts, *deleting.storage_hosts})
        strangers = [h for h in hosts if h not in inventory]
        if strangers and not options["force"]:
            raise delete.strangers_error(strangers)
        reached = [h for h in hosts if h in inventory]
        inventory_hosts.refuse_left_out(reached, self.action.within_limit(reached))
        return deleting

    def _described(
        self, items: t.Sequence[Item], soft_deleted_items: t.Sequence[Item], volumes: t.Mapping[str, t.Sequence[str]]
    ) -> tuple[list[str], list[str]]:
        """Return lines of instances before, and of the instances that are kept for a while. :arg volumes: what is deleted with instances"""
        lines = {i["uuid"]: "%s %s on %s" % (i["name"], i["uuid"], i["host"] or "no host") for i in items}
        for uuid, names in volumes.items():
            lines[uuid] += ", %s" % and_volumes(names)
        keep_for = self.options["reclaim_instance_interval"]
        return list(lines.values()), [
            "%s, off, can be restored for %d s" % (lines[i["uuid"]], keep_for) for i in soft_deleted_items
        ]

    def _not_found(self, items: t.Sequence[Item]) -> list[str]:
        """Return the names and UUIDs that nothing has."""
        unknown = []
        for option, field in (("names", "name"), ("uuids", "uuid")):
            unknown += sorted(set(self.options[option] or []) - {i[field] for i in items})
        return unknown

    # --- removed --------------------------------------------------------------------------------------------------------

    def _removed(self) -> Result:
        """Write what hosts removed."""
        done: dict[str, list[str]] = {}
        failed: dict[str, tuple[str, errors.BootflowError]] = {}
        journalled: list[str] = []
        powered_off: dict[str, Outcome] = {}
        partly: dict[tuple[str, str], str] = {}
        for host in self.result("begin").get("compute") or ():
            answer = self.result(REMOVE, host)
            done[host] = list(answer.get("removed") or ())
            partly.update({(host, u): part for u, part in (answer.get("parts") or {}).items()})
            failed.update({u: (host, errors.from_dict(e)) for u, e in (answer.get("problems") or {}).items()})
            journalled += answer.get("journalled") or ()
            for uuid, guest in (answer.get("powered_off") or {}).items():
                error = errors.from_dict(guest["error"]) if guest["error"] else None
                powered_off[uuid] = Outcome(int(guest["power_state"] or 0), error)
        if any(done.values()) or failed or powered_off:
            self.action.open_ledger().transact(delete.removed, done, failed, journalled, powered_off, partly)
        removed = sum(map(len, done.values()))
        return {"changed": bool(removed) or bool(powered_off), "removed": removed}

    # --- finish ---------------------------------------------------------------------------------------------------------

    def _finish(self) -> Result:
        begun = self.result("begin")
        named = {n["uuid"]: n["name"] for n in begun.get("instances") or ()}
        soft_deleted_items = {n["uuid"]: n for n in begun.get("kept") or ()}
        ledger = self.action.open_ledger()
        deleted_names, remaining = ledger.transact(delete.finish, force=self.options["force"])
        if deleted_names:
            self._forget(list(named))
        off, problems = (
            ledger.inspect(delete.soft_deleted, sorted(soft_deleted_items)) if soft_deleted_items else ([], [])
        )
        remaining += problems
        volumes_left = ledger.inspect(delete.volumes_left, sorted(named)) if begun.get("again") else []
        if self.options["print_table"]:
            tables.show(self.action.ports.display, self._lines(ledger, deleted_names, off, named, volumes_left))
        items = [
            errors.failed_item(v["name"], v["uuid"], v["fault"], host=v["host"], state="the host was not asked")
            for v in remaining
        ]
        error = errors.DeleteIncomplete(items, len(deleted_names) + len(off) + len(remaining))
        result: Result = {
            "changed": bool(deleted_names)
            or any(soft_deleted_items[r.uuid]["vm_state"] != states.SOFT_DELETED for r in off),
            "deleted": deleted_names,
            "soft_deleted": [r.display_name for r in off],
            "left": remaining,
            "volumes_left": volumes_left,
        }
        return outcome(error, **result)

    def _lines(
        self,
        ledger: Ledger,
        deleted_names: t.Sequence[str],
        off: t.Sequence[Instance],
        named: t.Mapping[str, str],
        volumes_left: t.Sequence[t.Mapping[str, t.Any]],
    ) -> list[str]:
        """Return the lines to print. :arg deleted_names: names. :arg off: instances that are kept for a while. :arg named: uuid -> name"""
        lines = ["Deleted: %s" % (", ".join(sorted(deleted_names)) or "nothing")] if deleted_names or not off else []
        if off:
            names = ", ".join(r.display_name for r in off)
            lines.append("Deleted, can be restored for %d s: %s" % (self.options["reclaim_instance_interval"], names))
        owed = ledger.inspect(cleanups.of_instances, sorted(named)) if self.options["force"] and named else []
        lines += [
            "%s may still run on %s. That host removes the guest when it reports again."
            % (named[due.instance_uuid], due.host)
            for due in owed
        ]
        for volume in volumes_left:
            why = (volume["fault"] or {}).get("message") or "volume_list shows why"
            words = (volume["name"], named[volume["instance_uuid"]], volume["status"], why)
            lines.append("Volume %s of %s was not deleted, it is %s: %s" % words)
        return lines

    def _forget(self, uuids: t.Sequence[str]) -> None:
        """Remove the user data that only these instances had."""
        from ..guest_data import guest_data_place  # requests, which nothing else of a delete needs

        try:
            guest_data_place.of_action(self.action).forget(self.action.open_ledger(), uuids)
        except (OSError, errors.BootflowError) as error:
            text = "User data of deleted instances is still there: %s" % error
            self.action.ports.display.warning(text)


def _named(rows: t.Iterable[Instance]) -> list[Item]:
    return [{"name": r.display_name, "uuid": r.uuid, "host": r.host} for r in rows]
