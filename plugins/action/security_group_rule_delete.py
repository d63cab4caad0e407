# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.security_group_rule_delete."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.security_groups import (
    SECURITY_GROUP_DELETION,
    SECURITY_GROUP_RULE_IDS,
    SECURITY_GROUP_SELECTION,
)
from ..plugin_utils.devices import security_groups
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.settings import variable_names


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **SECURITY_GROUP_RULE_IDS.options(),
        **SECURITY_GROUP_SELECTION.options("project"),
        **SECURITY_GROUP_DELETION.options(),
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        variable_names.refuse(self, SECURITY_GROUP_RULE_IDS, SECURITY_GROUP_DELETION)
        return security_groups.delete_rules(self)
