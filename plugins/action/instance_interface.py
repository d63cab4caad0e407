# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_interface."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.request import CATALOGUE, QUOTA, REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import INTERFACES
from ..module_utils.flows.instances.interfaces import ATTACH, DETACH
from ..plugin_utils.devices.interfaces import InterfaceOperation
from ..plugin_utils.run.ledger_action import LedgerAction


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **INTERFACES.options(),
        **CATALOGUE.options("networks"),
        **QUOTA.options("project"),
        **REQUEST.options("quotas"),
        "operation": {"type": "str", "choices": ["attach_interface", "detach_interface"], "required": True},
        "phase": {"type": "str", "choices": ["begin", "work", "finish", "clear", "report"], "default": "begin"},
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return InterfaceOperation(self, ATTACH if self.options["operation"] == ATTACH.name else DETACH).run()
