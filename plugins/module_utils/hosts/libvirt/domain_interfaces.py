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

from ...core.errors import InterfaceAttachFailed, InvalidInput
from ...core.guest.domain.element import parse
from ..os.locks import LOCK_ROOT, host_lock
from ..os.paths import checked_uuid
from .dhcp import Reservation, release, reserve
from .hot_plug import ATTACHED, CONFIG, DETACHED, LIVE, TRIES, Device, ensure_device, refuse_rescue
from .vifs import macvtap_devices_of, wait_plugged

STATES = (ATTACHED, DETACHED)
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")


@dataclass(frozen=True)
class DomainInterface(Device):
    """An interface, by its MAC address. ``reservations`` with ATTACHED; ``network``, of libvirt, with DETACHED.

    ``plugging``: seconds that a new interface has to be up in, and whether it is an error if it is not.
    """

    TAG = "interface"
    #: Of the running guest first: one that keeps the interface has it at its next start, too, as the ledger says.
    DETACH_ORDER = (LIVE, CONFIG)
    LOOKS = 3
    NO_DOMAIN_REMEDY = "Reboot the instance with bootflow_reboot_type: HARD, which gives it all of its interfaces."
    REFUSAL_REMEDY = (
        "Make sure that the guest runs and that its system takes part in hot-unplug (ACPI), and detach again;"
        " or stop the instance and detach then."
    )

    reservations: tuple[Reservation, ...] = ()
    network: str = ""
    plugging: tuple[float, bool] = (0.0, False)

    def key_of(self, element: t.Any) -> str:
        mac = element.find("mac")
        return "" if mac is None else str(mac.get("address") or "").lower()

    def name_of(self, element: t.Any) -> str:
        return self.key

    def check_guest(self, domain: t.Any) -> None:
        refuse_rescue(domain, self.uuid)

    def prepare(self, connection: t.Any, check_mode: bool) -> bool:
        """:raises NetworkError: an address cannot be reserved."""
        changes = [reserve(connection, reservation, check_mode) for reservation in self.reservations]
        return any(changes)

    def raise_refused(self, error: t.Any) -> None:
        raise InterfaceAttachFailed(
            message="Failed to attach network adapter device to %s: %s" % (self.uuid, error.get_error_message()),
            remedy="A guest with the machine type q35 takes no more devices than it has free PCI ports while it runs: stop it, attach the"
            " interface, and start it; or give guests more ports (bootflow_num_pcie_ports).",
        ) from None

    def wait(self, domain: t.Any, element: t.Any) -> None:
        """:raises VirtualInterfaceCreateException: the interface does not come up."""
        target = element.find("target")
        device = "" if target is None else str(target.get("dev") or "")
        if device and device not in macvtap_devices_of(domain):
            wait_plugged(domain, *self.plugging, devices=[device])

    def clean(self, connection: t.Any, check_mode: bool) -> bool:
        return bool(self.network) and bool(release(connection, self.network, self.key, check_mode))


def desired_interface(args: t.Mapping[str, t.Any], plugging: tuple[float, bool] = (0.0, False)) -> DomainInterface:
    """The desired interface in an element of the option ``interfaces``. :arg plugging: see DomainInterface

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
        tuple(Reservation(**reservation) for reservation in args.get("reservations") or ()),
        str(args.get("network") or ""),
        plugging,
    )
    if desired.state == ATTACHED:
        element = parse(desired.xml)
        if element.tag != "interface" or desired.key_of(element) != mac:
            raise InvalidInput(reason="the XML of interface %s must be an interface with this address" % mac)
    return desired


def ensure_interface(
    connection: t.Any, desired: DomainInterface, check_mode: bool = False, tries: int = TRIES, wait: float = 2.0
) -> dict[str, t.Any]:
    """Attach or detach an interface where needed, in the running guest and in its definition, with its addresses in libvirt's DHCP servers.

    Returns {changed, live, config, before, after}.

    :raises BootflowError: see ensure_device() and DomainInterface.
    """
    if check_mode:
        return ensure_device(connection, desired, True, tries, wait)
    # libvirt takes an interface twice: two runs that give it to the guest take turns.
    with host_lock(LOCK_ROOT, "interface-" + desired.key.replace(":", "")):
        return ensure_device(connection, desired, False, tries, wait)
