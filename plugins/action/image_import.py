# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.image_import."""

from __future__ import annotations

import typing as t

from ..module_utils.core.settings.images import IMAGE_STORES, IMAGE_WORK
from ..module_utils.core.settings.request import QUOTA
from ..module_utils.core.settings.run import RUN
from ..plugin_utils.images import import_images
from ..plugin_utils.run.ledger_action import LedgerAction
from ..plugin_utils.settings import variable_names


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **IMAGE_WORK.options(),
        **IMAGE_STORES.options(),
        **QUOTA.options("project"),
        "phase": {"type": "str", "choices": ["begin", "finish"], "default": "begin"},
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        if self.options["phase"] == "finish":
            return import_images.finish(self)
        variable_names.refuse(self, IMAGE_WORK)
        return import_images.begin(self)
