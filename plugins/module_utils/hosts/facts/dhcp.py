# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The DHCP reservations of a host's libvirt networks, as it reports them to the audit."""

from __future__ import annotations

import dataclasses
import typing as t

from ...core.guest.domain.element import parse
from ..libvirt.domains import definitions
from ..libvirt.network_types.registry import served_networks
from ..libvirt.taps import unplugged
from ..os.module_errors import as_bootflow_error


def dhcp_networks(connection: t.Any) -> dict[str, t.Any]:
    """Return {networks, unplugged, error}: each network has name, ours and reservations, these have mac, address, complete and used.

    ``unplugged``: interfaces of running guests that are on no bridge: uuid, device, mac, source and bridge, see Tap.
    ``complete``: the running and the persistent definition have it. ``used``: a domain of the host has the MAC address.
    A failure does not fail the host: ``error`` has the reason.
    """
    answer: dict[str, t.Any] = {"networks": [], "error": None}
    try:
        networks = served_networks(connection)
        # After the reservations, because a guest is defined before its address is reserved.
        macs = {
            str(mac_element.get("address")).lower()
            for text in definitions(connection)
            for mac_element in parse(text).iterfind("devices/interface/mac")
        }
        answer["networks"] = [
            {
                "name": network.name,
                "ours": network.ours,
                "reservations": [
                    {"mac": mac, "address": address, "complete": complete, "used": mac in macs}
                    for (mac, address), complete in network.reservations.items()
                ],
            }
            for network in sorted(networks, key=lambda network: network.name)
        ]
        answer["unplugged"] = [dataclasses.asdict(tap) for tap in unplugged(connection)]
    except Exception as error:  # for any error: the other facts of the host are still reported
        answer["error"] = as_bootflow_error(error).as_dict()
    return answer
