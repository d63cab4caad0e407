# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_delete."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ..module_utils.core import errors
from ..module_utils.core.amounts import and_volumes
from ..module_utils.core.instances import states
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import DELETION, HOSTS, SELECTION
from ..module_utils.flows.instances import delete
from ..module_utils.flows.instances.operation import Outcome, Selection
from ..module_utils.flows.volumes import work
from ..module_utils.ledger.compute import cleanups
from ..module_utils.ledger.compute.instances import Instance
from ..module_utils.ledger.db.transaction import Transaction
from ..module_utils.ledger.storage import attachments
from ..plugin_utils.run import inventory_hosts, tables
from ..plugin_utils.run.ledger_action import RUN_LIMIT, LedgerAction
from ..plugin_utils.run.results import diff, outcome
from ..plugin_utils.settings import variable_names
from ..plugin_utils.startup import preload
from ..plugin_utils.transport import host_programs

DELETING = "bootflow_deleting"  # what the playbook registers: the begin on localhost,
REMOVED = "bootflow_removed"  # and the removal on each host
DELETE = "delete"
FORCE_DELETE = "force_delete"
RECLAIM = "reclaim"


preload.load(functools.partial(host_programs.make_ready, "bootflow.compute.instance_cleanup"))


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **SELECTION.options(),
        "hosts": HOSTS.named("host").but(required=False),
        **RUN_LIMIT,
        "operation": {"type": "str", "choices": [DELETE, FORCE_DELETE, RECLAIM], "default": DELETE},
        "phase": {"type": "str", "choices": ["begin", "removed", "finish"], "default": "begin"},
        **DELETION.options(),
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        if self.options["phase"] == "begin":
            return self._begin()
        if self.check_mode:
            return {"changed": False, "skipped": True}
        return self._removed() if self.options["phase"] == "removed" else self._finish()

    def _begin(self) -> dict[str, t.Any]:
        o = self.options
        variable_names.refuse(self, SELECTION, HOSTS, DELETION)
        chosen = Selection(
            names=o["names"],
            uuids=o["uuids"],
            reservations=o["reservation_ids"],
            project=o["project"],
            everything=o["all"],
        )
        if not chosen.is_empty:  # a host alone selects nothing here: who means all that is on it names a project, too
            chosen = dataclasses.replace(chosen, hosts=o["hosts"])
        if o["operation"] == RECLAIM and not dataclasses.replace(chosen, project=None, hosts=o["hosts"]).is_empty:
            raise errors.InvalidInput(
                reason="reclaim deletes what was deleted long enough ago, of all projects; nothing can be chosen",
                remedy="Leave the names, UUIDs, reservation ids and hosts out, or delete these for good with bootflow.compute.force_delete.",
            )
        keep_for = o["reclaim_instance_interval"]
        soft = keep_for > 0 and o["operation"] == DELETE and not o["force"]

        inventory = inventory_hosts.all_of(self)

        def begin(tx: Transaction) -> delete.Deleting:
            if o["operation"] == RECLAIM:  # one on a host that is gone keeps no other: it is told at the end
                return delete.begin_reclaim(tx, keep_for) if keep_for > 0 else delete.Deleting()
            found = delete.begin(tx, chosen, o["missing_ok"], soft)
            asked = sorted({*found.hosts, *found.storage_hosts})
            strangers = [h for h in asked if h not in inventory]
            if strangers and not o["force"]:  # nothing is marked then
                raise delete.strangers_error(strangers)
            asked = [h for h in asked if h in inventory]
            inventory_hosts.refuse_left_out(asked, self.within_limit(asked))
            return found

        found, volumes = self.write(lambda tx: _with_volumes(tx, begin(tx)))
        named = _named(found.rows)
        kept = [{**n, "vm_state": r.vm_state} for n, r in zip(_named(found.kept), found.kept)]
        on_hosts = {n["uuid"]: "%s %s on %s" % (n["name"], n["uuid"], n["host"] or "no host") for n in (*named, *kept)}
        for uuid, names in found.volumes.items():
            on_hosts[uuid] += ", %s" % and_volumes(names)
        before = "".join(line + "\n" for line in on_hosts.values())
        off = "".join("%s, off, can be restored for %d s\n" % (on_hosts[n["uuid"]], keep_for) for n in kept)
        unknown = sorted(set(o["names"] or []) - {n["name"] for n in (*named, *kept)}) + sorted(
            set(o["uuids"] or []) - {n["uuid"] for n in (*named, *kept)}
        )
        if self.check_mode and o["print_table"]:
            lines = [on_hosts[n["uuid"]] for n in named] + off.splitlines()
            tables.show(self._display, ["Would delete:", *(lines or ["  nothing"])])
        return {
            "changed": bool(named) or any(r.vm_state != states.SOFT_DELETED for r in found.kept),
            "instances": named,
            "kept": kept,
            "not_found": unknown,
            "hosts": [h for h in found.hosts if h in inventory],
            "volumes": volumes,
            "volumes_deleted": found.volumes,
            "diff": diff("instances", before, off),
        }

    def _removed(self) -> dict[str, t.Any]:
        """What came of it on all hosts, as their tasks of this playbook registered it."""
        done: dict[str, list[str]] = {}
        failed: dict[str, tuple[str, errors.BootflowError]] = {}
        journalled: list[str] = []
        powered_off: dict[str, Outcome] = {}
        partly: dict[tuple[str, str], str] = {}
        hostvars = self.task_vars["hostvars"]
        for host in (hostvars["localhost"].get(DELETING) or {}).get("hosts") or ():
            answer = hostvars[host].get(REMOVED) or {}
            done[host] = list(answer.get("removed") or ())
            partly.update({(host, u): part for u, part in (answer.get("parts") or {}).items()})
            failed.update({u: (host, errors.from_dict(e)) for u, e in (answer.get("problems") or {}).items()})
            journalled += answer.get("journalled") or ()
            for uuid, told in (answer.get("powered_off") or {}).items():
                error = errors.from_dict(told["error"]) if told["error"] else None
                powered_off[uuid] = Outcome(int(told["power_state"] or 0), error)
        if any(done.values()) or failed or powered_off:
            self.open_ledger().transact(delete.removed, done, failed, journalled, powered_off, partly)
        removed = sum(map(len, done.values()))
        return {"changed": bool(removed) or bool(powered_off), "removed": removed}

    def _finish(self) -> dict[str, t.Any]:
        begun = self.task_vars["hostvars"]["localhost"].get(DELETING) or {}
        kept = {n["uuid"]: n for n in begun.get("kept") or ()}
        ledger = self.open_ledger()
        gone, left = ledger.transact(delete.finish, force=self.options["force"])
        if gone:
            self._forget([n["uuid"] for n in begun.get("instances") or ()])
        off, problems = ledger.inspect(delete.soft_deleted, sorted(kept)) if kept else ([], [])
        left += problems
        named = {n["uuid"]: n["name"] for n in begun.get("instances") or ()}
        volumes_left = ledger.inspect(delete.volumes_left, sorted(named)) if begun.get("volumes") else []
        if self.options["print_table"]:
            lines = ["Deleted: %s" % (", ".join(gone) or "nothing")] if gone or not off else []
            if off:
                names = ", ".join(r.display_name for r in off)
                lines.append(
                    "Deleted, can be restored for %d s: %s" % (self.options["reclaim_instance_interval"], names)
                )
            owed = ledger.inspect(cleanups.of_instances, sorted(named)) if self.options["force"] and named else []
            lines += [
                "%s may still run on %s. That host removes the guest when it reports again."
                % (named[due.instance_uuid], due.host)
                for due in owed
            ]
            lines += [
                "Volume %s of %s was not deleted, it is %s: %s"
                % (
                    v["name"],
                    named[v["instance_uuid"]],
                    v["status"],
                    (v["fault"] or {}).get("message") or "volume_list shows why",
                )
                for v in volumes_left
            ]
            tables.show(self._display, lines)
        items = [
            errors.failed_item(v["name"], v["uuid"], v["fault"], host=v["host"], state="the host was not asked")
            for v in left
        ]
        error = errors.DeleteIncomplete(items, len(gone) + len(off) + len(left))
        changed = bool(gone) or any(kept[r.uuid]["vm_state"] != states.SOFT_DELETED for r in off)
        soft_deleted = [r.display_name for r in off]
        told: dict[str, t.Any] = {
            "deleted": gone,
            "soft_deleted": soft_deleted,
            "left": left,
            "volumes_left": volumes_left,
        }
        return outcome(error, changed=changed, **told)

    def _forget(self, uuids: t.Sequence[str]) -> None:
        """Remove the user data that only these instances had."""
        from ..plugin_utils.builds import kept_guest_data  # requests, which nothing else of a delete needs

        try:
            kept_guest_data.of_action(self).forget(self.open_ledger(), uuids)
        except OSError as error:
            self._display.warning("User data of deleted instances is still there: %s" % error)


def _named(rows: t.Iterable[Instance]) -> list[dict[str, t.Any]]:
    return [{"name": r.display_name, "uuid": r.uuid, "host": r.host} for r in rows]


def _with_volumes(tx: Transaction, found: delete.Deleting) -> tuple[delete.Deleting, bool]:
    """What is marked, and whether storage hosts may have something to do for it."""
    exported = attachments.of_instances(tx, [r.uuid for r in found.rows])
    return found, bool(exported) or bool(work.hosts_with_work(tx))
