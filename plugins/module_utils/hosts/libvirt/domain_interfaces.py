# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attaches interfaces to existing guests, and detaches them. Interfaces are identified by their MAC addresses.

source: Nova's libvirt driver (attach_interface, detach_interface)
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ...core.errors import Conflict, InstanceNotFound, InterfaceAttachFailed, InvalidInput
from ...core.guest.domain.element import parse, to_text
from ..os.batch import progress
from ..os.locks import LOCK_ROOT, host_lock
from ..os.paths import checked_uuid
from .connection import libvirt, libvirt_errors
from .dhcp import Reservation, release, reserve
from .domain_devices import (
    CONFIG,
    LIVE,
    TRIES,
    devices_of,
    flag_of,
    forget_memory,
    let_go,
    parts_of,
    refuse_rescue,
    started_since,
)
from .running import find_domain
from .vifs import wait_plugged

ATTACHED, DETACHED = "attached", "detached"
STATES = (ATTACHED, DETACHED)
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")
KEPT = "Make sure that the guest runs and that its system takes part in hot-unplug (ACPI), and detach again; or stop the instance and detach then."
_LOOKS = 3  # a guest may start while its definition is changed


@dataclass(frozen=True)
class DomainInterface:
    """An interface of the domain ``uuid``. ``xml`` and ``reservations`` with ATTACHED; ``network``, of libvirt, with DETACHED."""

    uuid: str
    mac: str
    state: str = ATTACHED
    xml: str = ""
    reservations: tuple[Reservation, ...] = ()
    network: str = ""


def desired_interface(args: t.Mapping[str, t.Any]) -> DomainInterface:
    """The desired interface in an element of the option ``interfaces``.

    :raises InvalidInput: a UUID or MAC address is not valid, or the XML is not an interface with this address.
    """
    mac = str(args.get("mac") or "").lower()
    if not _MAC.match(mac):
        raise InvalidInput(reason="%r is not a MAC address" % mac[:200])
    desired = DomainInterface(
        checked_uuid(args.get("uuid") or ""),
        mac,
        args.get("state") or ATTACHED,
        str(args.get("xml") or ""),
        tuple(Reservation(**each) for each in args.get("reservations") or ()),
        str(args.get("network") or ""),
    )
    if desired.state == ATTACHED:
        element = parse(desired.xml)
        if element.tag != "interface" or _mac_of(element) != mac:
            raise InvalidInput(reason="the XML of interface %s must be an interface with this address" % mac)
    return desired


def ensure_interface(
    connection: t.Any,
    desired: DomainInterface,
    check_mode: bool = False,
    tries: int = TRIES,
    wait: float = 2.0,
    plugging: tuple[float, bool] = (0.0, False),
) -> dict[str, t.Any]:
    """Attach or detach an interface where needed, in the running guest and in its definition, with its addresses in libvirt's DHCP servers.

    Returns {changed, live, config, before, after}.

    :arg tries: how often a guest is asked to release an interface, with ``wait``, 2 * ``wait``... seconds in between.
    :arg plugging: seconds that a new interface has to be up in, and whether it is an error if it is not.
    :raises InstanceNotFound: the domain that an interface is attached to does not exist. :raises Conflict: it is that of a rescue.
    :raises InterfaceAttachFailed: libvirt refuses it. :raises DeviceDetachFailed: the guest does not release it.
    :raises NetworkError: an address cannot be reserved. :raises VirtualInterfaceCreateException: the interface does not come up.
    """
    if check_mode:
        return _ensure(connection, desired, True, tries, wait, plugging)
    # libvirt takes an interface twice: two runs that give it to the guest take turns.
    with host_lock(LOCK_ROOT, "interface-" + desired.mac.replace(":", "")):
        return _ensure(connection, desired, False, tries, wait, plugging)


def _ensure(
    connection: t.Any, desired: DomainInterface, check_mode: bool, tries: int, wait: float, plugging: tuple[float, bool]
) -> dict[str, t.Any]:
    domain = find_domain(connection, desired.uuid)
    if domain is not None:
        refuse_rescue(domain, desired.uuid)
    if desired.state == DETACHED:
        return _detach(connection, domain, desired, check_mode, tries, wait)
    if domain is None:
        raise InstanceNotFound(
            message="domain %s does not exist on this host" % desired.uuid,
            remedy="Reboot the instance with bootflow_reboot_type: HARD, which gives it all of its interfaces.",
        )
    return _attach(connection, domain, desired, check_mode, plugging)


def _result(changed: bool, before: t.Any, after: t.Any, parts: t.Collection[str]) -> dict[str, t.Any]:
    return {
        "changed": changed,
        "live": LIVE in parts,
        "config": CONFIG in parts,
        "before": "" if before is None else to_text(before),
        "after": "" if after is None else to_text(after),
    }


def _attach(
    connection: t.Any, domain: t.Any, desired: DomainInterface, check_mode: bool, plugging: tuple[float, bool]
) -> dict[str, t.Any]:
    parts = parts_of(domain)
    there = {part: _find(domain, part, desired.mac) for part in parts}
    missing = [part for part in parts if there[part] is None]
    before = next((found for found in there.values() if found is not None), None)
    reserved = False
    for each in desired.reservations:
        reserved = reserve(connection, each, check_mode) or reserved
    if not missing or check_mode:
        return _result(bool(missing) or reserved, before, parse(desired.xml) if missing else before, parts)
    progress.mark_changed()
    with libvirt_errors():
        try:
            domain.attachDeviceFlags(desired.xml, flag_of(missing))
        except libvirt.libvirtError as error:
            raise InterfaceAttachFailed(
                message="Failed to attach network adapter device to %s: %s" % (desired.uuid, error.get_error_message()),
                remedy="A guest with the machine type q35 takes no more devices than it has free PCI ports while it runs: stop it, attach the"
                " interface, and start it; or give guests more ports (bootflow_num_pcie_ports).",
            ) from None
    forget_memory(domain, parts)
    after = _find(domain, parts[0], desired.mac)
    target = after.find("target") if after is not None else None
    if LIVE in missing and target is not None and target.get("dev"):
        wait_plugged(domain, *plugging, devices=[str(target.get("dev"))])
    if started_since(domain, parts):
        return {**_attach(connection, domain, desired, check_mode, plugging), "changed": True}
    return _result(True, before, after, parts)


def _detach(
    connection: t.Any, domain: t.Any, desired: DomainInterface, check_mode: bool, tries: int, wait: float
) -> dict[str, t.Any]:
    before = None
    for _look in range(_LOOKS if domain is not None else 0):
        parts = parts_of(domain)
        found = {part: _find(domain, part, desired.mac) for part in parts}
        there = [part for part in found if found[part] is not None]
        if not there:
            break
        before = found[there[0]] if before is None else before
        if check_mode:
            return _result(True, before, None, [])
        progress.mark_changed()
        # Of the running guest first: one that keeps the interface has it at its next start, too, as the ledger says.
        if LIVE in there:
            let_go(
                domain,
                to_text(found[LIVE]),
                desired.mac,
                lambda: _find(domain, LIVE, desired.mac) is not None,
                tries,
                wait,
                KEPT,
            )
        if CONFIG in there:
            with libvirt_errors():
                domain.detachDeviceFlags(to_text(found[CONFIG]), flag_of([CONFIG]))
            forget_memory(domain, parts)
    else:
        if domain is not None:
            raise Conflict(
                message="interface %s of guest %s is there again after it was detached" % (desired.mac, desired.uuid),
                remedy="Run the same command again.",
            )
    released = release(connection, desired.network, desired.mac, check_mode) if desired.network else []
    return _result(before is not None or bool(released), before, None, [])


def _find(domain: t.Any, part: str, mac: str) -> t.Any:
    return next((each for each in devices_of(domain, part, "interface") if _mac_of(each) == mac), None)


def _mac_of(element: t.Any) -> str:
    mac = element.find("mac")
    return "" if mac is None else str(mac.get("address") or "").lower()
