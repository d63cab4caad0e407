# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_operation."""

from __future__ import annotations

import functools
import typing as t

from ..module_utils.core.settings.apply import FOLLOW
from ..module_utils.core.settings.request import REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import OPERATION
from ..module_utils.flows.instances.operations import find
from ..plugin_utils.operations.operation import InstanceOperation
from ..plugin_utils.run.ledger_action import RUN_LIMIT, LedgerAction
from ..plugin_utils.startup import preload
from ..plugin_utils.transport import host_programs

SHELVES = ("shelve", "shelve_offload")  # have more stages

preload.load(functools.partial(host_programs.make_ready, "bootflow.compute.domain_power"))


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **OPERATION.options(),
        **FOLLOW.options(),
        **REQUEST.options("quotas"),
        "phase": {
            "type": "str",
            "choices": [
                "begin",
                "freeze",
                "release",
                "work",
                "store",
                "settle",
                "shelved",
                "offload",
                "offloaded",
                "finish",
                "clear",
                "report",
            ],
            "default": "begin",
        },
        "open_ledger": {"type": "bool", "default": False},
        "ask": {"type": "bool", "default": False},
        **RUN_LIMIT,
        **RUN.options("admin_password_dir", "print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        operation = find(self.options["operation"], self.options["reboot_type"])
        if operation.name in SHELVES:
            from ..plugin_utils.operations.shelving import Shelving

            return Shelving(self, operation).run()
        return InstanceOperation(self, operation).run()
