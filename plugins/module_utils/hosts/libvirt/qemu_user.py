# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The user of QEMU's processes, by libvirt's capabilities."""

from __future__ import annotations

import contextlib
import os
import pwd
import typing as t

from ..os.command import User


def owner_of(capabilities: t.Any, virt_type: str) -> tuple[int, int]:
    """Return the user and the group of QEMU's processes; 0 and 0 without libvirt's security model dac.

    :arg capabilities: libvirt's, parsed. :arg virt_type: of the guests, kvm or qemu.
    """
    for model in capabilities.iterfind("host/secmodel"):
        label = model.findtext("baselabel[@type='%s']" % virt_type) or ""
        user, colon, group = label.replace("+", "").partition(":")
        if model.findtext("model") == "dac" and colon and user.isdigit() and group.isdigit():
            return int(user), int(group)
    return 0, 0


def other_user(capabilities: t.Any) -> User | None:
    """Return the user of QEMU's processes with KVM; None: it is root, or this process is not and cannot become another one.

    The groups are the user's, by its entry in passwd, and the group that libvirt sets. Without an entry it is that group only.
    source: libvirt's virGetGroupList

    :arg capabilities: libvirt's, parsed
    """
    uid, gid = owner_of(capabilities, "kvm")
    if uid == 0 or os.geteuid() != 0:
        return None
    groups = {gid}
    with contextlib.suppress(KeyError):
        entry = pwd.getpwuid(uid)  # on Debian its group is kvm, and libvirt sets libvirt-qemu
        groups.update(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return User(uid, gid, tuple(sorted(groups)))
