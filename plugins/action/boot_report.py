# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_report."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.instances import states
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import PLAYBOOKS, RUN
from ..module_utils.core.settings.scheduling import SCHEDULER
from ..module_utils.flows.boot import schedule
from ..module_utils.flows.volumes import work
from ..module_utils.ledger.compute import instances, views
from ..module_utils.ledger.database import Ledger
from ..module_utils.ledger.db.transaction import Transaction
from ..plugin_utils.builds import handover, passwords
from ..plugin_utils.run import host_settings, playbook_of_this_run, tables
from ..plugin_utils.run.inventory_hosts import reachable
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.results import STATISTICS, outcome, statistics

# States of an instance that was booted once, and the playbook that ends them: a boot of the same file changes nothing of it.
AT_REST = {
    states.STOPPED: "start",
    states.PAUSED: "unpause",
    states.SUSPENDED: "resume",
    states.RESCUED: "unrescue",
    states.RESIZED: "confirm_resize",
}


def _at_rest(shown: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """Return hints how to bring instances to ACTIVE that were booted before and are in another state since."""
    names: dict[str, list[str]] = {}
    for view in shown:
        if view["vm_state"] in AT_REST:
            names.setdefault(view["vm_state"], []).append(view["name"])
    text = "%s: already booted, and %s now. A boot leaves existing instances as they are: run bootflow.compute.%s to change that."
    return [text % (", ".join(each), state, AT_REST[state]) for state, each in names.items()]


def _state(view: t.Mapping[str, t.Any]) -> str:
    return "%(vm_state)s, %(task_state)s" % view if view["task_state"] else str(view["vm_state"])


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "uuids": {"type": "list", "elements": "str", "default": []},
        "phase": {"type": "str", "choices": ["end", "report", "report_if_finished"], "default": "report"},
        "volumes": {"type": "bool", "default": False},
        **SCHEDULER.options("max_attempts"),
        **REQUEST.options("project"),
        "instances": REQUEST.named("instances").but(required=False),
        **RUN.options("admin_password_dir", "print_table"),
        **STATISTICS,
    }

    def act(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True, "msg": "The plan was shown by boot_schedule."}
        ledger = self.open_ledger()
        to_clean = handover.collect(self, ledger)
        untaken = handover.untaken(self)
        phase = self.options["phase"]
        if phase == "end":
            ledger.transact(schedule.give_up, self.options["max_attempts"], untaken)
            hosts = ledger.inspect(work.hosts_with_work)
            return {"changed": False, "storage_hosts": reachable(self, hosts)}

        waits = bool(to_clean or self.options["volumes"])

        def end(tx: Transaction) -> list[dict[str, t.Any]] | None:
            if phase == "report":
                schedule.give_up(tx, self.options["max_attempts"], untaken)
            elif waits or instances.has_builds(tx, tx.run.id):
                return None
            return views.instance_views(tx, instances.select_live(tx, uuids=self.options["uuids"]))

        shown = ledger.transact(end) if phase == "report" else ledger.inspect(end)
        if shown is None:
            return {"changed": False, "unfinished": True, "hosts_to_clean": reachable(self, to_clean)}
        bad = [v for v in shown if v["vm_state"] not in (states.ACTIVE, *AT_REST)]
        if self.options["print_table"]:
            tables.show(self._display, [*tables.instance_table(shown), *_at_rest(shown)])
        items = [errors.failed_item(v["name"], v["uuid"], v.get("fault"), state=_state(v)) for v in bad]
        # Ansible does not read the statistics of a task that failed.
        more = statistics(shown) if self.options["set_stats"] and not items else {}
        return outcome(
            errors.BootFailed(items, len(shown)),
            changed=self._leave_passwords(ledger),
            unfinished=False,
            instances=shown,
            returns_passwords=self._returns_passwords(),
            **more,
        )

    def _leave_passwords(self, ledger: Ledger) -> bool:
        """Also if instances failed: the others' are known to this run only."""
        if not (self.options["admin_password_dir"] and self._settings().enable_instance_password):
            return False
        return passwords.leave(self, passwords.of_run(self, ledger, self.options["uuids"]))

    def _returns_passwords(self) -> bool:
        """Whether a user can see what the next task registers."""
        settings = self._settings()
        return settings.enable_instance_password and bool(
            settings.hook_create_instance_post or not playbook_of_this_run.is_alone()
        )

    def _settings(self) -> t.Any:
        return host_settings.values(self, PLAYBOOKS)
