# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_security_group."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.security_groups import SECURITY_GROUP_SELECTION
from ..module_utils.core.settings.selection import INSTANCES
from ..plugin_utils.devices import security_groups
from ..plugin_utils.run.ledger_action import LedgerAction


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **INSTANCES.options(),
        **SECURITY_GROUP_SELECTION.options("security_group_names", "security_group_ids"),
        "state": {"type": "str", "choices": ["present", "absent"], "required": True},
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return security_groups.change_instances(self)
