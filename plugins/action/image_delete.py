# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.image_delete."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.images import IMAGE_DELETION, IMAGE_SELECTION, IMAGE_STORES
from ..module_utils.core.settings.run import RUN
from ..plugin_utils.images import delete_images
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.settings import variable_names


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **IMAGE_SELECTION.options(),
        **IMAGE_DELETION.options(),
        **IMAGE_STORES.options(),
        "phase": {"type": "str", "choices": ["begin", "finish"], "default": "begin"},
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        if self.options["phase"] == "finish":
            return delete_images.finish(self)
        variable_names.refuse(self, IMAGE_SELECTION, IMAGE_DELETION)
        return delete_images.begin(self)
