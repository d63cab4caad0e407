# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which start of this host this is, and whether it ends."""

from __future__ import annotations

import os

from ...core.errors import HostUnreachable
from .command import program, run
from .files import read_text

BOOT_ID = "/proc/sys/kernel/random/boot_id"
SYSTEMD = "/run/systemd/system"  # exists where systemd runs the host


def boot_id() -> str:
    """Return the kernel's name for its start: another one after each restart. "" where it cannot be read."""
    return read_text(BOOT_ID)


def check_not_ending() -> None:
    """Refuse to report while the host shuts down: its guests end then without their own decision.

    :raises HostUnreachable: systemd shuts the host down, or restarts it.
    """
    if not os.path.isdir(SYSTEMD):
        return
    said = run([program("systemctl", "systemd"), "is-system-running"], timeout=10.0, check=False)
    if said.stdout.strip() == "stopping":
        raise HostUnreachable(host=os.uname().nodename, reason="it is shutting down")
