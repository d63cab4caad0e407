# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Give the mount namespace that this runs in a /dev/kvm of the group kvm, as udev gives it to a host.

In a container or a small VM the device may belong to the group number of another system: libvirtd can open it, and QEMU's user cannot. libvirt then
discards its cached capabilities of QEMU at each call, and starts QEMU again to ask for its features (0.6 s each).
"""

from __future__ import annotations

import grp
import os
import stat
import subprocess
import sys

DEVICE = "/dev/kvm"
#: In a tmpfs that is private to the namespace.
NODE = "/run/kvm"


def main() -> int:
    try:
        device, group = os.stat(DEVICE), grp.getgrnam("kvm").gr_gid
    except (FileNotFoundError, KeyError):
        return 0
    if stat.S_ISCHR(device.st_mode) and device.st_gid != group and not device.st_mode & stat.S_IWOTH:
        os.mknod(NODE, stat.S_IFCHR, device.st_rdev)
        os.chown(NODE, 0, group)
        os.chmod(NODE, 0o660)
        subprocess.run(["mount", "--bind", NODE, DEVICE], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
