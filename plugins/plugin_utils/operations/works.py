# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of each operation, by its name in flows/instances/operations.py.

The file of a work is imported when an operation needs it: what builds guests takes longer to load than a stop takes on the controller.
"""

from __future__ import annotations

import functools
import typing as t

from ..run.ledger_action import LedgerAction
from .power_work import PowerWork
from .work import Work


def _hard_reboot(action: LedgerAction) -> Work:
    from .hard_reboot import HardReboot

    return HardReboot(action)


def _rebuild(action: LedgerAction) -> Work:
    from .rebuilds.rebuild import Rebuild

    return Rebuild(action)


def _revert(action: LedgerAction) -> Work:
    from .rebuilds.revert import Revert

    return Revert(action)


def _rescue(action: LedgerAction) -> Work:
    from .rescue import Rescue

    return Rescue(action)


def _unrescue(action: LedgerAction) -> Work:
    from .rescue import Unrescue

    return Unrescue(action)


def _set_admin_password(action: LedgerAction) -> Work:
    from .admin_password import SetAdminPassword

    return SetAdminPassword(action)


def _snapshot(action: LedgerAction) -> Work:
    from .snapshots.snapshot import Snapshot

    return Snapshot(action)


def _create_backup(action: LedgerAction) -> Work:
    from .snapshots.create_backup import CreateBackup

    return CreateBackup(action)


def _incremental_backup(action: LedgerAction) -> Work:
    from .snapshots.incremental_backup import IncrementalBackup

    return IncrementalBackup(action)


def _shelve(action: LedgerAction) -> Work:
    from .shelves.shelve import Shelve

    return Shelve(action)


def _shelve_offload(action: LedgerAction) -> Work:
    from .shelves.shelve import ShelveOffload

    return ShelveOffload(action)


def _unshelve(action: LedgerAction) -> Work:
    from .shelves.unshelve import Unshelve

    return Unshelve(action)


HARD_REBOOT = "hard_reboot"  # which also follows a work that sets power states, where that was not enough
#: Any other name is a state of the module domain_power.
WORKS: t.Mapping[str, t.Callable[[LedgerAction], Work]] = {
    "running": functools.partial(PowerWork, state="running", starts_guests=True, connects_volumes=True),
    "rebooted": functools.partial(PowerWork, state="rebooted", starts_guests=True),
    HARD_REBOOT: _hard_reboot,
    "rebuild": _rebuild,
    "revert": _revert,
    "rescue": _rescue,
    "unrescue": _unrescue,
    "set_admin_password": _set_admin_password,
    "snapshot": _snapshot,
    "create_backup": _create_backup,
    "incremental_backup": _incremental_backup,
    "shelve": _shelve,
    "shelve_offload": _shelve_offload,
    "unshelve": _unshelve,
}


def work_of(action: LedgerAction, name: str) -> Work:
    """Return the work of the operation whose row has this name."""
    made = WORKS.get(name)
    return PowerWork(action, name) if made is None else made(action)
