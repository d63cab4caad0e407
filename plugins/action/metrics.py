# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.metrics."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import METRICS
from ..plugin_utils.metrics import exposition, gauges
from ..plugin_utils.run.ledger_action import READS, RUN_LIMIT, LedgerAction
from ..plugin_utils.run.results import diff
from ..plugin_utils.settings import variable_names


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **METRICS.options(),
        **RUN.options("service_down_time"),
        **READS,
        **RUN_LIMIT,
    }

    def act(self) -> dict[str, t.Any]:
        variable_names.warn(self)
        path = self.options["path"]
        file = exposition.file_at(path)
        file.check()
        hosts, down_time = self.compute_hosts(), self.options["service_down_time"]
        text = exposition.exposition(self.open_reader().inspect(lambda tx: gauges.gauges_of(tx, hosts, down_time)))
        before = file.read()
        if text != before and not self.check_mode:
            file.write(text)
        return {
            "changed": text != before,
            "path": path,
            "diff": diff(path, before or "", text),
        }
