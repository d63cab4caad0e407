# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What becomes of an instance whose guest is started again after a restart of its host."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.verdicts import resumption

from .outcomes import FAILED, RUNNING, expanded, said

# The answer, and whether the guest may start later without anybody changing it.
TABLE = """
answer  *         | started        | active
error   temporary | active         | ERROR after any failure (_init_instance)
error   lasting   | error          | ERROR
silence *         | active         | nobody asks a dead host; its guests are resumed when it starts
"""
REFUSED = errors.FailedISCSITargetPortalLogin(message="x").as_dict()
TEMPORARY = [
    errors.HostUnreachable(host="h1", reason="x").as_dict(),
    errors.HypervisorUnavailable(host="h1", reason="x").as_dict(),
    {**REFUSED, "retryable": True},
    errors.LibvirtError(reason="iSCSI: Failed to connect to LUN : Failed to start full connect").as_dict(),
]
LASTING = [FAILED, {**REFUSED, "retryable": False}, errors.InvalidDiskInfo(reason="x").as_dict()]


def test_a_guest_is_started_again() -> None:
    for (answer, kind), outcome in expanded(TABLE, [("answer", "error", "silence"), ("temporary", "lasting")]).items():
        for error in TEMPORARY if kind == "temporary" else LASTING:
            state = resumption.vm_state(said(answer, "h1", RUNNING, {"error": error}))
            assert (state or "started") == outcome, (answer, error)


@pytest.mark.parametrize(("found", "temporary"), [(TEMPORARY, True), (LASTING, False)])
def test_what_may_start_later(found: list[dict[str, object]], temporary: bool) -> None:
    assert {resumption.is_temporary(errors.from_dict(each)) for each in found} == {temporary}
