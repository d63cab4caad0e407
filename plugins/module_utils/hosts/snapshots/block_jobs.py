# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs of QEMU that copy a disk of a running guest and follow what the guest writes meanwhile."""

from __future__ import annotations

import typing as t

from ...core.guest.domain.element import parse
from ..libvirt.connection import libvirt_errors


def mirror_of(domain: t.Any, target: str) -> t.Any:
    """Return the <mirror> of a disk in the running domain; None without one."""
    with libvirt_errors():
        root = parse(domain.XMLDesc(0))
    for disk in root.iterfind("devices/disk"):
        element = disk.find("target")
        if element is not None and element.get("dev") == target:
            return disk.find("mirror")
    return None


def is_ready(domain: t.Any, target: str, job: t.Mapping[str, t.Any]) -> bool:
    """Return whether the copy is complete, and QEMU writes to both. :arg job: blockJobInfo() of the disk"""
    if job["cur"] != job["end"]:
        return False
    mirror = mirror_of(domain, target)
    return mirror is not None and mirror.get("ready") == "yes"
