# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_info."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.settings.selection import LISTING, SELECTION
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import history, instances, views
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.plugin_utils import tables, variable_names
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import RUN_LIMIT, LedgerAction


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **SELECTION.options(),
        "host": {"type": "str"},
        **LISTING.options(),
        "print_table": {"type": "bool", "default": False},
        **RUN_LIMIT,
    }

    def act(self) -> dict[str, t.Any]:
        variable_names.warn(self)
        o = self.options
        try:
            ledger = self.open_ledger()
        except errors.LedgerMissing as e:
            if o["print_table"]:
                tables.show(self._display, ["No instances. %s." % e.message])
            return {"changed": False, "instances": []}

        def read(tx: Transaction) -> list[dict[str, t.Any]]:
            rows = instances.select_live(
                tx,
                names=o["names"],
                uuids=o["uuids"],
                reservations=o["reservation_ids"],
                project=o["project"],
                host=o["host"],
            )
            shown = views.instance_views(tx, rows)
            if o["events"]:
                for view in shown:
                    view["events"] = history.events_of(tx, view["uuid"])
            return shown

        shown = ledger.inspect(read)
        if o["print_table"]:
            tables.show(self._display, tables.instance_table(shown) if shown else ["No instances."])
        return {"changed": False, "instances": shown}
