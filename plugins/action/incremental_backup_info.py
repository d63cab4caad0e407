# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.incremental_backup_info."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.settings.backups import BACKUP_SELECTION
from ..module_utils.ledger.backups import backup_views
from ..module_utils.ledger.db.transaction import Transaction
from ..plugin_utils.backups.backup_texts import backup_table
from ..plugin_utils.run import tables
from ..plugin_utils.run.ledger_action import READS, RUN_LIMIT, LedgerAction
from ..plugin_utils.settings import variable_names


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **BACKUP_SELECTION.options(),
        "print_table": {"type": "bool", "default": False},
        **READS,
        **RUN_LIMIT,
    }

    def act(self) -> dict[str, t.Any]:
        variable_names.warn(self)
        options = self.options

        def read(tx: Transaction) -> list[dict[str, t.Any]]:
            return backup_views.views(tx, options["backup_ids"], options["names"], options["uuids"], options["project"])

        try:
            views = self.open_reader().inspect(read)
        except errors.LedgerMissing as e:
            if options["print_table"]:
                tables.show(self._display, ["No backups. %s." % e.message])
            return {"changed": False, "backups": []}
        if options["print_table"]:
            tables.show(self._display, backup_table(views) if views else ["No incremental backups."])
        return {"changed": False, "backups": views}
