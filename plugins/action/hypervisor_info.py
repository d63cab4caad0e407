# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.hypervisor_info."""

from __future__ import annotations

import typing as t

from ..module_utils.core import errors
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import HOSTS
from ..module_utils.ledger.compute import hypervisors, nodes
from ..module_utils.ledger.db.transaction import Transaction
from ..plugin_utils.run import tables
from ..plugin_utils.run.ledger_action import READS, RUN_LIMIT, LedgerAction
from ..plugin_utils.settings import variable_names


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "hosts": HOSTS.named("host").but(required=False),
        **RUN.options("service_down_time"),
        "print_table": {"type": "bool", "default": False},
        **READS,
        **RUN_LIMIT,
    }

    def act(self) -> dict[str, t.Any]:
        variable_names.warn(self)
        wanted, inventory = self.options["hosts"], self.compute_hosts()

        def read(tx: Transaction) -> list[dict[str, t.Any]]:
            reported = nodes.hosts(tx)
            unknown = sorted(set(wanted or ()) - reported - set(inventory))
            if unknown:
                raise errors.ComputeHostNotFound(
                    host=", ".join(unknown), remedy="Name a compute host of the inventory, or one that has reported."
                )
            asked = wanted if wanted is not None else sorted(reported.union(inventory))
            return hypervisors.views(tx, asked, self.options["service_down_time"])

        from_replica = self.options["ledger_read_url"] is not None
        shown = (self.open_reader() if from_replica else self.rehearsal_ledger()).inspect(read)
        for view in shown:
            if view["host"] not in inventory:
                view["problems"].append("not among the compute hosts of the inventory")
        if self.options["print_table"]:
            tables.show(
                self._display,
                tables.hypervisor_table(shown)
                if shown
                else ["No compute hosts in the inventory, and none in the ledger %s." % self.options["ledger_url"]],
            )
        return {"changed": False, "hypervisors": shown}
