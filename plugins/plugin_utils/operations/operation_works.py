# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What operations do beside setting the power state of guests, by their names.

It draws on all that builds guests, which takes longer to load than a stop takes on the controller: the action instance_operation loads
it when an operation needs it.
"""

from __future__ import annotations

import functools
import typing as t

from ...module_utils.flows.instances.operation import Begun
from ...module_utils.ledger.db.transaction import Transaction
from ..builds import build_parts
from ..run.ledger_action import LedgerAction
from . import admin_password, hard_reboot, rebuild, rescue

Work = t.Callable[[LedgerAction, t.Sequence[str]], t.Tuple[hard_reboot.Outcomes, build_parts.Problems]]

# What a host does with guests, by Operation.work: (action, uuids) -> what the module said of each, and why some failed.
WORKS: dict[str, Work] = {
    "hard_reboot": hard_reboot.reboot,
    "rebuild": rebuild.rebuild,
    "rescue": rescue.rescue,
    "unrescue": rescue.unrescue,
    "set_admin_password": admin_password.change,
}
# What is checked before anything is written, beside the states.
CHECKS: dict[str, t.Callable[[LedgerAction, Transaction, Begun], None]] = {
    "rescue": rescue.check,
    "set_admin_password": admin_password.check,
}
# What gives instances passwords: those of this run, and what the names of their files have after the UUID.
PASSWORDS: dict[str, tuple[t.Callable[[LedgerAction, str], str], str]] = {
    "rescue": (rescue.password_of, ".rescue"),
    "set_admin_password": (admin_password.password_of, ""),
}


def work(name: str, fresh: t.Collection[str]) -> Work:
    """The work called ``name``. :arg fresh: attachments that this run has connected with new credentials, as domains that are defined again say"""
    return functools.partial(hard_reboot.reboot, fresh=fresh) if name == "hard_reboot" else WORKS[name]
