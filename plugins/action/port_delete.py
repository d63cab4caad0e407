# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.port_delete."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.ports import PORT_DELETION, PORT_SELECTION
from ..module_utils.core.settings.request import CATALOGUE
from ..module_utils.core.settings.run import RUN
from ..plugin_utils.devices import ports
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.settings import variable_names


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **PORT_SELECTION.options(),
        **PORT_DELETION.options(),
        **CATALOGUE.options("networks"),
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        variable_names.refuse(self, PORT_SELECTION, PORT_DELETION)
        return ports.delete(self)
