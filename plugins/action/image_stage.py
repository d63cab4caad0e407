# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.image_stage."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.images import IMAGE_STORES, IMAGE_WORK
from ..plugin_utils.images import store_stage
from ..plugin_utils.run.ledger_action import LedgerAction

# Playbooks that delete images have no entries.
ENTRIES = {name: setting.but(required=False) for name, setting in IMAGE_WORK.options("image_imports").items()}


class ActionModule(LedgerAction):
    ARGUMENTS = {**IMAGE_STORES.options(), **ENTRIES}

    def act(self) -> dict[str, t.Any]:
        return store_stage.run(self)
