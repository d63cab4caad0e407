# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.incremental_backup_restore."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.backups import BACKUP_RESTORE
from ..module_utils.core.settings.images import IMAGE_STORES
from ..module_utils.core.settings.request import QUOTA
from ..module_utils.core.settings.run import RUN
from ..plugin_utils.backups.restore_backups import RestoreBackups
from ..plugin_utils.run.ledger_action import LedgerAction


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **BACKUP_RESTORE.options(),
        **IMAGE_STORES.options(),
        "project": QUOTA.named("project").but(default=None, help="Only backups of this project."),
        "phase": {"type": "str", "choices": ["begin", "work", "store", "finish"], "default": "begin"},
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return RestoreBackups(self).run()
