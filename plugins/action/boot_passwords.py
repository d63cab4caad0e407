# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_passwords."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.guest_data import SecretsOfRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.request import REQUEST
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.run import RUN
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import history, instances
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute.instances import Instance
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.plugin_utils import passwords, tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "uuids": {"type": "list", "elements": "str"},
        **REQUEST.options("project"),
        "instances": REQUEST.named("instances").but(required=False),
        **RUN.options("admin_password_dir", "print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True}
        wanted = self.options["uuids"]
        if wanted == []:
            return {"changed": False, "admin_passwords": {}, "_ansible_no_log": True}
        secrets_of = SecretsOfRequest(self.options["instances"], self.options["project"]).of
        run = self.context().run.id

        def read(tx: Transaction) -> tuple[list[Instance], set[str]]:
            rows = instances.select_live(tx, uuids=wanted, run_id=run)
            rows = [
                r
                for r in rows
                if states.ACTIVE == r.vm_state or r.task_state in (states.REBUILDING, states.REBUILD_SPAWNING)
            ]
            return rows, history.with_event(tx, [r.uuid for r in rows], "resume")

        rows, resumed = self.open_ledger().inspect(read)
        found: dict[str, dict[str, str]] = {}
        for row in rows:
            secrets = secrets_of(row.project, row.display_name)
            # A config drive that a dead run wrote has a password that died with it, unless the request names it.
            known = (
                row.uuid not in resumed
                or row.task_state is not None
                or (secrets is not None and secrets.admin_password)
            )
            if row.config_drive and known:
                password = passwords.password_of(row.uuid, secrets)
                found[row.uuid] = {"name": row.display_name, "project": row.project, "password": password}
        folder = self.options["admin_password_dir"]
        if folder and found:
            passwords.leave_in(folder, {uuid: each["password"] for uuid, each in found.items()})
            if self.options["print_table"]:
                tables.show(self._display, ["Admin passwords: in %s, in files named by UUID" % folder])
        return {"changed": bool(folder and found), "admin_passwords": found, "_ansible_no_log": True}
