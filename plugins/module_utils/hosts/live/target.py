# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""This host before a guest comes to it running: whether it can, and where its hypervisor is reached.

source: Nova's check_can_live_migrate_destination
"""

from __future__ import annotations

import os
import typing as t
import urllib.parse

from ...core.errors import Conflict, DestinationHypervisorTooOld, HypervisorUnavailable, InvalidCPUInfo
from ...core.guest.domain.element import parse
from ..libvirt.connection import libvirt, libvirt_errors, tolerating
from ..libvirt.qemu_user import owner_of

_SOCKETS = ("/run/libvirt/virtqemud-sock", "/run/libvirt/libvirt-sock", "/var/run/libvirt/libvirt-sock")
_RESULT = "CPU doesn't have compatibility.\n\n%(ret)s\n\nRefer to %(u)s"  # Nova's words
_RESULTS = "http://libvirt.org/html/libvirt-libvirt-host.html#virCPUCompareResult"


def check(connection: t.Any, guest: t.Mapping[str, t.Any]) -> None:
    """Check whether the guest can run here. Writes nothing.

    :arg guest: as guests.describe() gives it.
    :raises InvalidCPUInfo: the CPU lacks something that the guest's has.
    :raises DestinationHypervisorTooOld: QEMU or libvirt are older than where it is.
    :raises Conflict: another domain has its name.
    """
    with libvirt_errors():
        older = connection.getVersion() < guest["hypervisor_version"]
        older = older or connection.getLibVersion() < guest["libvirt_version"]
    if older:
        raise DestinationHypervisorTooOld()
    if guest["cpu"]:
        _check_cpu(connection, guest)
    other = tolerating(lambda: connection.lookupByName(guest["name"]), "VIR_ERR_NO_DOMAIN")
    if other is not None:
        raise Conflict(
            message="%s has a domain %s with UUID %s" % (os.uname().nodename, guest["name"], other.UUIDString()),
            remedy="Remove or rename that domain; bootflow.compute.audit removes what is left of an earlier move.",
        )


def _check_cpu(connection: t.Any, guest: t.Mapping[str, t.Any]) -> None:
    """Check the CPU. source: Nova's _compare_cpu. With its flag libvirt reports the missing features."""
    result: int
    tells = libvirt.VIR_CONNECT_COMPARE_CPU_FAIL_INCOMPATIBLE
    try:
        if guest["cpu_of_host"]:
            result = connection.compareCPU(guest["cpu"], tells)
        else:
            machine = (guest["arch"], guest["machine"], guest["virt_type"])
            result = connection.compareHypervisorCPU(None, *machine, guest["cpu"], tells)
    except libvirt.libvirtError as error:
        raise InvalidCPUInfo(reason="%s: %s" % (os.uname().nodename, error.get_error_message() or error)) from None
    if result <= 0:
        raise InvalidCPUInfo(reason="%s: %s" % (os.uname().nodename, _RESULT % {"ret": result, "u": _RESULTS}))


def qemu_owner(connection: t.Any, virt_type: str) -> tuple[int, int]:
    """Return the user and the group of QEMU's processes."""
    with libvirt_errors():
        capabilities = parse(connection.getCapabilities())
    return owner_of(capabilities, virt_type)


def emulators(connection: t.Any) -> list[str]:
    """Return the programs that libvirt runs guests with on this host."""
    with libvirt_errors():
        capabilities = parse(connection.getCapabilities())
    return sorted({(node.text or "").strip() for node in capabilities.iterfind("guest/arch//emulator")})


def libvirt_socket(uri: str) -> str:
    """Return where libvirt listens on this host. :raises HypervisorUnavailable: nowhere."""
    named = urllib.parse.parse_qs(urllib.parse.urlsplit(uri).query).get("socket")
    for path in named or _SOCKETS:
        if os.path.exists(path):
            return path
    raise HypervisorUnavailable(
        host=os.uname().nodename, reason="libvirt listens on none of its sockets (%s)" % ", ".join(_SOCKETS)
    )
