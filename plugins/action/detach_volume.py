# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.detach_volume."""

from __future__ import annotations

import typing as t

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import detach
from ansible_collections.bootflow.compute.plugins.plugin_utils import volume_changes
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import LedgerAction


class ActionModule(LedgerAction):
    ARGUMENTS = volume_changes.ARGUMENTS

    def act(self) -> dict[str, t.Any]:
        o = self.options
        if o["phase"] == "begin":
            return volume_changes.begin(
                self, lambda tx, _connectors: detach.begin_detach(tx, o["attachments"], o["project"])
            )
        if o["phase"] == "clean":
            return volume_changes.clean(self)
        if o["phase"] == "undo":
            return volume_changes.undo(self)
        return volume_changes.finish(self, detach.finish_detach, "Detached", errors.DetachFailed)
