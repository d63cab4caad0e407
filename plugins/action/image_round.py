# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.image_round."""

from __future__ import annotations

import typing as t

from ..plugin_utils.relay.rounds import ImageRound
from ..plugin_utils.run.ledger_action import LedgerAction


class ActionModule(LedgerAction):
    ARGUMENTS = {"phase": {"type": "str", "choices": ["offer", "serve", "connect", "send"], "required": True}}

    def act(self) -> dict[str, t.Any]:
        return ImageRound(self).run()
