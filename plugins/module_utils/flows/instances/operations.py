# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All operations, one row each. docs/architecture.md describes how to add one."""

from __future__ import annotations

import typing as t

from ...core.errors import InvalidInput
from ...core.instances.states import ERROR, SHELVED_OFFLOADED
from ...core.reading.nearest import question
from ...core.request.image_rules import shutdown_timeout
from ...ledger.compute.instances import Instance
from .operation import Operation


def _shutdown(row: Instance) -> dict[str, t.Any]:
    """The image's time for the guest to shut down, if it has one."""
    try:
        seconds = shutdown_timeout((row.spec["image"] or {}).get("properties") or {})
    except InvalidInput:  # of an older ledger: the property is checked before an instance is made
        seconds = None
    return {} if seconds is None else {"shutdown_timeout": seconds}


CUT_OFF = "lost its power: it did not shut down in time"
GONE = "its domain is gone from the host: reboot it with bootflow_reboot_type: HARD"
REDEFINED = "has its definition from the ledger: its own was lost, or libvirt refused it"
RESET = "was reset: it did not restart by itself"

OPERATIONS: dict[str, Operation] = {
    o.name: o
    for o in (
        # source: Nova's power_off, to which an instance that its host does not have is off
        Operation("stop", "power_off", work="shutdown", forced=CUT_OFF, missing_domain_note=GONE, details=_shutdown),
        Operation("start", "power_on", work="running", recovers_volumes=True),
        Operation("pause", "pause", work="paused"),
        Operation("unpause", "unpause", work="unpaused"),
        Operation("suspend", "suspend", work="suspended"),
        Operation("resume", "resume", work="running", details=lambda row: {"restored": True}),
        # A guest that does not restart when it is asked is rebooted hard.
        Operation("soft_reboot", "reboot", work="rebooted", forced=RESET, fails_to=ERROR),
        Operation("hard_reboot", "reboot", work="hard_reboot", fails_to=ERROR, recovers_volumes=True),
        Operation(
            "rescue",
            "rescue",
            work="rescue",
            forced=CUT_OFF,
            details=lambda row: {"tells_password": bool(row.config_drive)},
            ends=lambda now: {"launched_at": now},
        ),
        Operation("unrescue", "unrescue", work="unrescue", fails_to=ERROR, forced=REDEFINED),
        Operation("set_admin_password", work="set_admin_password"),
        Operation("snapshot", "snapshot", work="snapshot"),
        Operation("create_backup", "snapshot", work="create_backup"),
        Operation("incremental_backup", work="incremental_backup"),
        # A guest that was shelved before its host lost power is off as well.
        Operation(
            "shelve", "shelve", work="shelve", forced=CUT_OFF, details=_shutdown, beyond=frozenset((SHELVED_OFFLOADED,))
        ),
        Operation("shelve_offload", "shelve_offload", work="shelve_offload"),
        Operation("unshelve", "unshelve", work="unshelve", recovers_volumes=True),
        Operation("trigger_crash_dump", "trigger_crash_dump", work="interrupted"),
        # Begun by the playbook delete; deleted_at is that of the queue, from which they are reclaimed.
        Operation(
            "soft_delete",
            "soft_delete",
            work="shutdown",
            details=lambda row: {"shutdown_timeout": 0.0},
            ends=lambda now: {"deleted_at": now},
        ),
        # Its domain may be gone, or that of a rescue, by which it would run on as active. source: Nova's power_on is a hard reboot
        Operation(
            "restore",
            "restore",
            work="hard_reboot",
            recovers_volumes=True,
            ends=lambda now: {"deleted_at": None},
            counts_again=True,
            ends_shelving=True,
        ),
        # A guest without a disk, or with a different one, cannot be distinguished: an instance whose run died there is in error.
        Operation(
            "rebuild",
            "rebuild",
            work="rebuild",
            recovers_volumes=True,
            forced=CUT_OFF,
            ends=lambda now: {"launched_at": now},
        ),
        # Its root disk is the former one or that of the snapshot, never a part of both.
        Operation("revert", "revert", work="revert", forced=CUT_OFF),
    )
}

#: task_state -> its operation.
BY_TASK_STATE: dict[str, Operation] = {o.during: o for o in OPERATIONS.values() if o.during is not None}


def find(called: str, reboot_type: str) -> Operation:
    """The operation of a playbook. :arg reboot_type: SOFT or HARD, of a reboot

    :raises InvalidInput: there is none.
    """
    operation = OPERATIONS.get("%s_reboot" % reboot_type.lower() if called == "reboot" else called)
    if operation is None or operation.called != called:
        known = dict.fromkeys(o.called for o in OPERATIONS.values())
        raise InvalidInput(
            reason="operation %s does not exist" % called,
            remedy="%sGive one of: %s." % (question(called, known), ", ".join(known)),
        )
    return operation
