# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.port_filter_push."""

from __future__ import annotations

import contextlib
import typing as t

from ..module_utils.core import errors
from ..module_utils.ledger.networks import filter_marks
from ..plugin_utils.run.firewall import filter_handover, port_filters
from ..plugin_utils.run.inventory_hosts import reachable
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.run.ovn import northbound
from ..plugin_utils.run.stage_results import shown


class ActionModule(LedgerAction):
    ARGUMENTS = {
        "phase": {"type": "str", "choices": ["begin", "work", "end"], "default": "begin"},
        "only_due": {"type": "bool", "default": False},
    }

    def act(self) -> dict[str, t.Any]:
        return {"begin": self._begin, "work": self._work, "end": self._end}[self.options["phase"]]()

    def _begin(self) -> dict[str, t.Any]:
        if self.check_mode and self.options["only_due"]:
            return {"changed": False, "compute": []}  # the changes that hosts would be due for are not in the ledger
        northbound.follow_or_warn(self)
        if not port_filters.filters(self):
            return {"changed": False, "compute": []}
        with contextlib.closing(self.open_ledger()) as ledger:
            hosts = ledger.inspect(filter_marks.due if self.options["only_due"] else filter_marks.hosts_with_filters)
        compute = reachable(self, hosts)
        filter_handover.collect(self)
        filter_handover.give(self, compute)
        return {"changed": False, "compute": compute}

    def _end(self) -> dict[str, t.Any]:
        filter_handover.collect(self)
        return {"changed": False}

    def _work(self) -> dict[str, t.Any]:
        host = self.task_vars["inventory_hostname"]
        if not port_filters.filters(self):
            return {"changed": False, "skipped": True}
        try:
            answer = port_filters.apply(self)
        except errors.BootflowError as error:
            # The filters that the host has stay. Its neighbours get theirs.
            self._display.warning(
                "%s has the filters of its ports from before: %s Run bootflow.compute.port_filters again."
                % (host, error)
            )
            return {"changed": False, "error": error.as_dict()}
        return shown({"changed": bool(answer["changed"]), "error": None, "diff": answer["diff"]})
