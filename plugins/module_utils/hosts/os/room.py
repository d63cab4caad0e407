# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether disks have room in a folder, asked before anything is written there."""

from __future__ import annotations

import os
import shutil

from ...core.errors import DiskFull


def check_room(folder: str, needed: int, what: str = "the guest's disks need") -> None:
    """Check the free space. :arg needed: bytes that the guest's disks take in ``folder``. :arg what: takes them, for the message

    :raises DiskFull: fewer are free on its file system
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        reason = "%s %d MiB, and %d MiB are free" % (what, needed >> 20, free >> 20)
        raise DiskFull(host=os.uname().nodename, path=folder, reason=reason)
