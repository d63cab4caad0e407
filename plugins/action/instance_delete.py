# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_delete."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.run import RUN
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.selection import DELETION, SELECTION
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import delete
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import work
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import attachments
from ansible_collections.bootflow.compute.plugins.plugin_utils import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction
from ansible_collections.bootflow.compute.plugins.plugin_utils.results import diff, outcome

DELETING = "bootflow_deleting"  # what the playbook registers: the begin on localhost,
REMOVED = "bootflow_removed"  # and the removal on each host


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **SELECTION.options(),
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
        chosen = Selection(
            names=o["names"],
            uuids=o["uuids"],
            reservations=o["reservation_ids"],
            project=o["project"],
            everything=o["all"],
        )
        found, volumes = self.write(lambda tx: _begin(tx, chosen, o["missing_ok"]))
        named = [{"name": r.display_name, "uuid": r.uuid, "host": r.host} for r in found.rows]
        before = "".join("%s %s on %s\n" % (n["name"], n["uuid"], n["host"] or "no host") for n in named)
        unknown = sorted(set(o["names"] or []) - {n["name"] for n in named}) + sorted(
            set(o["uuids"] or []) - {n["uuid"] for n in named}
        )
        if self.check_mode and o["print_table"]:
            tables.show(self._display, ["Would delete:", *(before.splitlines() or ["  nothing"])])
        inventory = self.task_vars.get("groups", {}).get("all", [])
        strangers = sorted(h for h in found.hosts if h not in inventory)
        if strangers and not o["force"] and not self.check_mode:
            raise errors.ComputeHostNotFound(
                host=", ".join(strangers),
                remedy="Put it into the inventory, or delete with bootflow_delete_force: true if it is gone for good.",
            )
        return {
            "changed": bool(named),
            "instances": named,
            "not_found": unknown,
            "hosts": [h for h in found.hosts if h in inventory],
            "volumes": volumes,
            "diff": diff("instances", before, ""),
        }

    def _removed(self) -> dict[str, t.Any]:
        """What came of it on all hosts, as their tasks of this playbook registered it."""
        done: dict[str, list[str]] = {}
        failed: dict[str, tuple[str, errors.BootflowError]] = {}
        journalled: list[str] = []
        hostvars = self.task_vars["hostvars"]
        for host in (hostvars["localhost"].get(DELETING) or {}).get("hosts") or ():
            answer = hostvars[host].get(REMOVED) or {}
            done[host] = list(answer.get("removed") or ())
            failed.update({u: (host, errors.from_dict(e)) for u, e in (answer.get("problems") or {}).items()})
            journalled += answer.get("journalled") or ()
        if any(done.values()) or failed:
            self.open_ledger().transact(delete.removed, done, failed, journalled)
        return {"changed": any(done.values()), "removed": sum(map(len, done.values()))}

    def _finish(self) -> dict[str, t.Any]:
        gone, left = self.open_ledger().transact(delete.finish, force=self.options["force"])
        if self.options["print_table"]:
            tables.show(self._display, ["Deleted: %s" % (", ".join(gone) or "nothing")])
        items = [
            errors.failed_item(v["name"], v["uuid"], v["fault"], host=v["host"], state="the host was not asked")
            for v in left
        ]
        error = errors.DeleteIncomplete(items, len(gone) + len(left))
        return outcome(error, changed=bool(gone), deleted=gone, left=left)


def _begin(tx: Transaction, chosen: Selection, missing_ok: bool) -> tuple[delete.Deleting, bool]:
    """What is marked, and whether storage hosts may have something to do for it."""
    found = delete.begin(tx, chosen, missing_ok)
    exported = attachments.of_instances(tx, [r.uuid for r in found.rows])
    return found, bool(exported) or bool(work.hosts_with_work(tx))
