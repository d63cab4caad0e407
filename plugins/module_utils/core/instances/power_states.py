# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hypervisor's state of a guest, in Nova's numbers. A separate file, because hosts need no other states."""

from __future__ import annotations

NOSTATE = 0
RUNNING = 1
POWER_PAUSED = 3
SHUTDOWN = 4
CRASHED = 6
POWER_SUSPENDED = 7

#: Nova's names for them.
POWER_STATES: dict[int, str] = {
    NOSTATE: "NOSTATE",
    RUNNING: "RUNNING",
    POWER_PAUSED: "PAUSED",
    SHUTDOWN: "SHUTDOWN",
    CRASHED: "CRASHED",
    POWER_SUSPENDED: "SUSPENDED",
}


# virDomainState -> power_state. A domain that is shutting down is still running.
LIBVIRT_POWER_STATES: dict[int, int] = {
    0: NOSTATE,  # nostate
    1: RUNNING,  # running
    2: RUNNING,  # blocked
    3: POWER_PAUSED,  # paused
    4: RUNNING,  # shutdown, in progress
    5: SHUTDOWN,  # shutoff
    6: CRASHED,  # crashed
    7: POWER_SUSPENDED,  # pmsuspended
}


def power_state_of(libvirt_state: int) -> int:
    """The power_state of a virDomainState; NOSTATE for an unknown one."""
    return LIBVIRT_POWER_STATES.get(libvirt_state, NOSTATE) if isinstance(libvirt_state, int) else NOSTATE
