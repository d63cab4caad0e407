# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.security_group_create."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.request import QUOTA, REQUEST
from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.security_groups import SECURITY_GROUPS
from ..plugin_utils.devices import security_groups
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.settings import variable_names


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **SECURITY_GROUPS.options(),
        **QUOTA.options("project"),
        **REQUEST.options("quotas"),
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        variable_names.refuse(self, SECURITY_GROUPS)
        return security_groups.create(self)
