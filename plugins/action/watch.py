# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.watch."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.run import WATCH
from ..plugin_utils.run.ledger_action import RUN_LIMIT, LedgerAction
from ..plugin_utils.watch.watcher import Watcher


class ActionModule(LedgerAction):
    ARGUMENTS = {**WATCH.options(), **RUN_LIMIT}

    def act(self) -> dict[str, t.Any]:
        return Watcher(self).run()
