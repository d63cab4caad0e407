# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The end of a boot: outcomes that hosts left are written, and the instances are reported."""

from __future__ import annotations

import typing as t

from ...module_utils.core import errors
from ...module_utils.core.instances import states
from ...module_utils.core.settings.run import PLAYBOOKS
from ...module_utils.flows.boot import schedule
from ...module_utils.flows.volumes import work
from ...module_utils.ledger.compute import instances, views
from ...module_utils.ledger.database import Ledger
from ...module_utils.ledger.db.transaction import Transaction
from ..builds import handover, passwords
from ..run import host_settings, tables
from ..run.firewall import filter_handover
from ..run.inventory_hosts import reachable
from ..run.ledger_action import LedgerAction
from ..run.playbooks import playbook_of_this_run, readers
from ..run.results import outcome
from ..run.stage_results import CONTROLLER, StageResults

Result = t.Dict[str, t.Any]  # of a task
REPORT_IF_FINISHED = "report_if_finished"

# States of an instance that was booted once, and the playbook that ends them: a boot of the same file changes nothing of it.
AT_REST = {
    states.STOPPED: "start",
    states.PAUSED: "unpause",
    states.SUSPENDED: "resume",
    states.RESCUED: "unrescue",
    states.RESIZED: "confirm_resize",
    states.SHELVED: "unshelve",
    states.SHELVED_OFFLOADED: "unshelve",
}


def _at_rest(shown: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """Return hints how to bring instances to ACTIVE that were booted before and are in another state since."""
    names: dict[str, list[str]] = {}
    for view in shown:
        if view["vm_state"] in AT_REST:
            names.setdefault(view["vm_state"], []).append(view["name"])
    text = "%s: already booted, and %s now. A boot leaves existing instances as they are: run bootflow.compute.%s to change that."
    return [text % (tables.named(of_state), state, AT_REST[state]) for state, of_state in names.items()]


def _state(view: t.Mapping[str, t.Any]) -> str:
    return "%(vm_state)s, %(task_state)s" % view if view["task_state"] else str(view["vm_state"])


class BootReport:
    """The stages of the end of a boot, by the options of the action. :arg phase: in place of the option"""

    def __init__(self, action: LedgerAction, phase: str = ""):
        self.action = action
        self.options = {"uuids": None, **action.options}
        self.phase = phase or self.options["phase"]

    def run(self) -> Result:
        """Run the stage that the task is for. Returns the result of the task."""
        if self.action.check_mode:
            return {"changed": False, "skipped": True, "msg": "The plan was shown by boot_schedule."}
        filter_handover.collect(self.action)
        ledger = self.action.open_ledger()
        to_clean = handover.collect(self.action, ledger)
        untaken = handover.untaken(self.action)
        phase = self.phase
        accepted = self._accepted()
        volumes = bool(accepted.get("volumes"))
        if phase == "end":
            ledger.transact(schedule.give_up, self.options["max_attempts"], untaken)
            hosts = ledger.inspect(work.hosts_with_work)
            return {"changed": False, "unfinished": True, "storage": reachable(self.action, hosts)}

        waits = bool(to_clean) or volumes
        uuids = self._uuids(accepted)

        def end(tx: Transaction) -> list[dict[str, t.Any]] | None:
            if phase == "report":
                schedule.give_up(tx, self.options["max_attempts"], untaken)
            elif waits or instances.has_builds(tx, tx.run.id):
                return None
            return views.instance_views(tx, instances.select_live(tx, uuids=uuids))

        shown = ledger.transact(end) if phase == "report" else ledger.inspect(end)
        if shown is None:
            if to_clean:
                StageResults(self.action, "boot_report").leave("report", CONTROLLER, {"to_clean": to_clean})
            return {"changed": False, "unfinished": True, "volumes": volumes}
        bad = [v for v in shown if v["vm_state"] not in (states.ACTIVE, *AT_REST)]
        if self.options["print_table"]:
            tables.show(self.action.ports.display, [*self._table(shown, accepted), *_at_rest(shown)])
        items = [errors.failed_item(v["name"], v["uuid"], v.get("fault"), state=_state(v)) for v in bad]
        # Ansible does not read the statistics of a task that failed.
        set_stats = self.options["set_stats"] and not items
        more = readers.fields(shown, set_stats, bool(self._settings().hook_create_instance_post))
        returns_passwords = self._returns_passwords()
        if returns_passwords and accepted:
            more["uuids"] = [*accepted["created"], *accepted["resumed"]]  # for boot_passwords
        return outcome(
            errors.BootFailed(items, len(shown)),
            changed=self._leave_passwords(ledger, uuids),
            unfinished=False,
            returns_passwords=returns_passwords,
            **more,
        )

    def _table(self, shown: t.Sequence[t.Mapping[str, t.Any]], accepted: t.Mapping[str, t.Any]) -> list[str]:
        """Return the lines about the instances. A boot that changed nothing has two, whatever the number of instances."""
        if accepted.get("changed") is False and shown:
            return tables.instance_summary(shown)
        return tables.instance_table(shown)

    def _accepted(self) -> t.Mapping[str, t.Any]:
        """Return the result of boot_accept in this run; empty where the option names the instances."""
        results = StageResults(self.action, "boot_accept")
        return results.begun("accept") if self.options["uuids"] is None else {}

    def _uuids(self, accepted: t.Mapping[str, t.Any]) -> list[str]:
        """Return the instances to report. Without instances that ran before where a file is applied."""
        if self.options["uuids"] is not None:
            return list(self.options["uuids"])
        fields = (
            ("created", "resumed") if self.options["follow_file"] else ("created", "resumed", "unchanged", "updated")
        )
        return [uuid for name in fields for uuid in accepted[name]]

    def _leave_passwords(self, ledger: Ledger, uuids: t.Sequence[str]) -> bool:
        """Also if instances failed: the others' are known to this run only."""
        if not (self.options["admin_password_dir"] and self._settings().enable_instance_password):
            return False
        return passwords.leave(self.action, passwords.of_run(self.action, ledger, uuids))

    def _returns_passwords(self) -> bool:
        """Whether a user can see what the next task registers."""
        settings = self._settings()
        return settings.enable_instance_password and bool(
            settings.hook_create_instance_post or not playbook_of_this_run.is_alone()
        )

    def _settings(self) -> t.Any:
        return host_settings.values(self.action, PLAYBOOKS)
