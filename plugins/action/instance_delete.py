# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Action behind the module bootflow.compute.instance_delete."""

from __future__ import annotations

import functools
import typing as t

from ..module_utils.core.settings.run import RUN
from ..module_utils.core.settings.selection import DELETION, HOSTS, SELECTION
from ..plugin_utils.operations.deletion import DELETE, FORCE_DELETE, RECLAIM, Deletion
from ..plugin_utils.run.ledger_action import RUN_LIMIT, LedgerAction
from ..plugin_utils.startup import preload
from ..plugin_utils.transport import host_programs

STAGES = ("begin", "removed", "finish")

preload.load(functools.partial(host_programs.make_ready, "bootflow.compute.instance_cleanup"))


class ActionModule(LedgerAction):
    ARGUMENTS = {
        **SELECTION.options(),
        "hosts": HOSTS.named("host").but(required=False),
        **RUN_LIMIT,
        "operation": {"type": "str", "choices": [DELETE, FORCE_DELETE, RECLAIM], "default": DELETE},
        "phase": {"type": "str", "choices": list(STAGES), "default": "begin"},
        **DELETION.options(),
        **RUN.options("print_table"),
    }

    def act(self) -> dict[str, t.Any]:
        return Deletion(self, "instance_delete").run()
