# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that refuse a guest before its live migration begins: whether another host is tried.

source: Nova's LiveMigrationTask._find_destination
"""

from __future__ import annotations

from .. import errors

#: Errors of a host in its checks that another host may not have. Nova tries another host after exception.Invalid and MigrationPreCheckError:
#: CPU, versions, a taken name, too little room, networks that cannot be bound, a host that is down or does not answer in time.
#: Failures of storage hosts and of libvirt itself end the migration, as in Nova.
_OF_HOST = (
    errors.MigrationPreCheckError,
    errors.InvalidCPUInfo,
    errors.DestinationHypervisorTooOld,
    errors.HostUnreachable,
    errors.HypervisorUnavailable,
    errors.HostLacksHardware,
    errors.MissingLibrary,
    errors.DiskFull,
    errors.UnsafeFolder,
    errors.NetworkError,
)


def tries_another(error: errors.BootflowError, named: bool, attempt: int, max_attempts: int) -> bool:
    """Return whether another host is tried after ``error``, with which a host ended its checks. The guest is untouched then.

    :arg named: the operator named the host. :arg attempt: the number of hosts that were tried, this one included.
    """
    if named or attempt >= max_attempts:
        return False
    # Other kinds of Conflict are not about the host.
    return isinstance(error, _OF_HOST) or error.code == "Conflict"
