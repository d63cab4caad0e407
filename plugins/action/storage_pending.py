# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.storage_pending."""

from __future__ import annotations

import typing as t

from ..module_utils.flows.volumes import work
from ..plugin_utils.run.inventory_hosts import reachable
from ..plugin_utils.run.ledger_action import LedgerAction


class ActionModule(LedgerAction):
    def act(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "storage": [], "missing": []}
        hosts_with_work = self.open_ledger().inspect(work.hosts_with_work)
        hosts = reachable(self, hosts_with_work)
        missing = sorted(set(hosts_with_work) - set(hosts))
        if missing:
            self._display.warning("Storage hosts with pending work are not in the inventory: %s" % ", ".join(missing))
        return {"changed": False, "storage": hosts, "missing": missing}
