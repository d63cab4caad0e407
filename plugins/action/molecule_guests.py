# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.molecule_guests."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ..module_utils.core.settings.molecule import GUESTS_FILE, MOLECULE
from ..module_utils.core.settings.request import REQUEST
from ..plugin_utils.molecule import guests
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.transport.packed_modules import write_whole


class ActionModule(LedgerAction):
    ARGUMENTS = {**GUESTS_FILE.options(), **MOLECULE.options("molecule_via"), **REQUEST.options("project")}

    def act(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True}
        connections = guests.connections(self, self.options["project"], self.options["via"] == "direct")
        write_whole(Path(self.options["path"]), json.dumps(connections).encode())
        return {"changed": False, "guests": connections}
