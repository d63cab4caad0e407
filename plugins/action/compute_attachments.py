# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.compute_attachments."""

from __future__ import annotations

import typing as t

from ..plugin_utils.devices.attachments import AttachmentsOfHost
from ..plugin_utils.run.ledger_action import LedgerAction


class ActionModule(LedgerAction):
    def act(self) -> dict[str, t.Any]:
        if self.check_mode:
            return {"changed": False, "skipped": True, "msg": "The plan was shown before."}
        return AttachmentsOfHost(self).work_on_host()
