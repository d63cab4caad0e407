# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the devices of existing guests, and detach them: the common part of disks and interfaces.

source: Nova's libvirt driver (detach_device_with_retry)
"""

from __future__ import annotations

import time
import typing as t

from ...core.disks.rescue import is_rescue
from ...core.errors import Conflict, DeviceDetachFailed, InstanceNotFound
from ...core.guest.domain.element import parse
from .connection import is_code, libvirt, libvirt_errors

TRIES = 8  # Nova's device_detach_attempts
MOST_WAIT = 30.0  # seconds between two of them
POLL = 0.1
LIVE, CONFIG = "live", "config"  # the running guest, and the definition of its next start


def parts_of(domain: t.Any) -> list[str]:
    """Return the parts of the domain: LIVE, CONFIG or both."""
    with libvirt_errors():
        return ([LIVE] if domain.isActive() else []) + ([CONFIG] if domain.isPersistent() else [])


def started_since(domain: t.Any, parts: t.Collection[str]) -> bool:
    """Return whether the guest has started since it had these ``parts``: it may lack what its definition got meanwhile."""
    return LIVE not in parts and LIVE in parts_of(domain)


def forget_memory(domain: t.Any, parts: t.Collection[str]) -> None:
    """Remove the saved memory of a guest whose definition has changed while it is off: its next start would bring its former devices
    back, also a volume that is another guest's by then.

    :arg parts: that the domain had
    """
    if LIVE not in parts:
        with libvirt_errors():
            if domain.hasManagedSaveImage(0):
                domain.managedSaveRemove(0)


def flag_of(parts: t.Collection[str]) -> int:
    """Return libvirt's flags of a change to these."""
    flags = {LIVE: libvirt.VIR_DOMAIN_AFFECT_LIVE, CONFIG: libvirt.VIR_DOMAIN_AFFECT_CONFIG}
    return sum(int(flags[part]) for part in parts)


def devices_of(domain: t.Any, part: str, tag: str) -> list[t.Any]:
    """Return the devices of one kind (disk, interface) in LIVE or CONFIG."""
    return list(_definition(domain, part).iterfind("devices/" + tag))


def _definition(domain: t.Any, part: str) -> t.Any:
    with libvirt_errors():
        return parse(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE if part == CONFIG else 0))


def refuse_rescue(domain: t.Any, uuid: str) -> None:
    """Refuse a guest whose rescue the ledger does not know. The end of the rescue would undo a change of its devices.

    :raises Conflict: the domain is that of a rescue.
    """
    if any(is_rescue(_definition(domain, part), uuid) for part in parts_of(domain)):
        raise Conflict(
            message="guest %s is rescued without the ledger knowing: what changes now would be undone by the end of the rescue"
            % uuid,
            remedy="Run bootflow.compute.heartbeat, which records the rescue in the ledger, then bootflow.compute.unrescue.",
        )


def let_go(
    domain: t.Any,
    xml: str,
    name: str,
    is_there: t.Callable[[], bool],
    tries: int = TRIES,
    wait: float = 2.0,
    remedy: str | None = None,
) -> None:
    """Ask the running guest to release a device until it is gone: a guest may respond late or never.

    :arg name: of the device, for the error. :arg is_there: whether the guest still has it
    :arg remedy: by default that of a disk
    :raises DeviceDetachFailed: it does not release it.
    """
    problem = ""
    for attempt in range(1, tries + 1):
        with libvirt_errors():
            try:
                domain.detachDeviceFlags(xml, flag_of([LIVE]))
            except libvirt.libvirtError as error:
                # The device is gone meanwhile, or QEMU still waits for the guest's response to the previous request.
                if is_code(error, "VIR_ERR_NO_DOMAIN"):
                    return
                problem = (error.get_error_message() or str(error)).strip()
        deadline = time.monotonic() + min(wait * attempt, MOST_WAIT)
        while True:
            if _is_gone(domain, is_there):
                return
            if time.monotonic() >= deadline:
                break
            time.sleep(POLL)
    raise DeviceDetachFailed(
        remedy=remedy,
        device=name,
        reason="Unable to detach the device from the live config after %d tries.%s"
        % (tries, " " + problem if problem else ""),
    )


def _is_gone(domain: t.Any, is_there: t.Callable[[], bool]) -> bool:
    try:
        return not domain.isActive() or not is_there()
    except InstanceNotFound:
        return True
    except libvirt.libvirtError as error:
        if is_code(error, "VIR_ERR_NO_DOMAIN", "VIR_ERR_OPERATION_INVALID"):
            return True
        raise
