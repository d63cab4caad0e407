# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.boot_passwords."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..plugin_utils.builds import passwords
from ..plugin_utils.run.ledger_action import LedgerAction


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
        generated_passwords = passwords.of_run(self, self.open_ledger(), wanted)
        return {
            "changed": passwords.leave(self, generated_passwords),
            "admin_passwords": generated_passwords,
            "_ansible_no_log": True,
        }
