# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which refusals of a live migration are answered with another host."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.live_refusals import tries_another

CPU = errors.InvalidCPUInfo(reason="x")

#: (error, whether another host is tried; beside it what Nova does)
TABLE = [
    (CPU, True),  # exception.Invalid
    (errors.DestinationHypervisorTooOld(), True),  # exception.Invalid
    (errors.MigrationPreCheckError(reason="x"), True),
    (errors.HostUnreachable(host="h", reason="x"), True),  # ComputeServiceUnavailable, which is exception.Invalid
    (errors.HostTimeout(host="h", module="m", seconds=1), True),  # MigrationPreCheckError after MessagingTimeout
    (errors.HypervisorUnavailable(host="h", reason="x"), True),
    (errors.DiskFull(host="h", path="/", reason="x"), True),  # MigrationPreCheckError
    (errors.NetworkError(reason="x"), True),  # MigrationPreCheckError where ports cannot be bound
    (errors.Conflict(message="a domain of its name"), True),  # DestinationDiskExists
    (errors.VolumeIsBusy(volume_name="v"), False),  # not the host's
    (errors.VolumeBackendAPIException(data="x"), False),
    (errors.MigrationError(reason="x"), False),  # under way
    (errors.LiveMigrationAborted(instance_uuid="u", reason="x"), False),
    (errors.LeaseOver(module="m", host="h", seconds=1), False),
    (errors.RemoteError(reason="x"), False),
]


@pytest.mark.parametrize(("error", "another"), TABLE, ids=lambda each: getattr(each, "code", None))
def test_whose_errors_another_host_may_not_have(error: errors.BootflowError, another: bool) -> None:
    assert tries_another(error, False, 1, 3) is another


@pytest.mark.parametrize(
    ("named", "attempt", "most", "another"),
    [(False, 1, 3, True), (False, 2, 3, True), (False, 3, 3, False), (False, 1, 1, False), (True, 1, 3, False)],
)
def test_how_often(named: bool, attempt: int, most: int, another: bool) -> None:
    assert tries_another(CPU, named, attempt, most) is another
