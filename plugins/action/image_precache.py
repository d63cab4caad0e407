# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.image_precache."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.request import CATALOGUE
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import PRECACHE
from ..plugin_utils.relay.precache import Precache
from ..plugin_utils.run.ledger_action import LedgerAction


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **CATALOGUE.options("images"),
        **PRECACHE.options(),
        **RUN.options("print_table"),
        "phase": {"type": "str", "choices": ["begin", "collect", "finish"], "required": True},
    }

    def act(self) -> dict[str, t.Any]:
        return Precache(self).run()
