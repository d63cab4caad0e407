# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All operations, one row each. docs/operations.md describes how to add one."""

from __future__ import annotations

import typing as t

from ...core.errors import InvalidInput
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


OPERATIONS: dict[str, Operation] = {
    o.name: o
    for o in (
        Operation("stop", "power_off", power="shutdown", details=_shutdown),
        Operation("start", "power_on", power="running", connects_volumes=True),
    )
}

#: task_state -> its operation.
BY_TASK_STATE: dict[str, Operation] = {o.during: o for o in OPERATIONS.values() if o.during is not None}
