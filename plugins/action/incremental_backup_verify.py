# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.incremental_backup_verify."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.backups import BACKUP_SELECTION
from ..module_utils.core.settings.run import RUN
from ..plugin_utils.backups.verify_backups import VerifyBackups
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.settings import variable_names


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **BACKUP_SELECTION.options(),
        "phase": {"type": "str", "choices": ["begin", "work", "finish"], "default": "begin"},
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        if self.options["phase"] == "begin":
            variable_names.refuse(self, BACKUP_SELECTION)
        return VerifyBackups(self).run()
