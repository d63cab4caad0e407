# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documents of port filters for the guests of filtered_guests.py, as they follow each other."""

from __future__ import annotations

import copy

WEB, DB = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"
EGRESS = [{"direction": "egress", "ethertype": family} for family in ("IPv4", "IPv6")]


def port(number, *groups):
    """The port of the guest with this number."""
    port_id = "%08x-1111-4000-8000-%012x" % (number, number)
    return {
        "port_id": port_id,
        "instance": port_id,
        "device": "tapfgx0%d" % number,
        "mac": "fa:16:3e:00:00:%02x" % number,
        "addresses": ["10.99.0.%d" % (10 + number), "fd99::%x" % (10 + number)],
        "port_security_enabled": True,
        "groups": list(groups),
    }


def documents():
    """web lets all to its port 80, with IPv6 to 8080, and pings; db lets members of web's group. A member comes; web leaves; db may not send by itself."""
    web = [
        *EGRESS,
        {"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 80, "port_range_max": 80},
        {"direction": "ingress", "ethertype": "IPv4", "protocol": "icmp", "port_range_min": 8},
        {
            "direction": "ingress",
            "ethertype": "IPv6",
            "protocol": "tcp",
            "port_range_min": 8080,
            "port_range_max": 8081,
        },
    ]
    members = {"IPv4": ["10.99.0.11"], "IPv6": []}
    db = [*EGRESS, {"direction": "ingress", "ethertype": "IPv4", "remote_group_id": WEB}]
    first = {
        "version": 1,
        "revision": 1,
        "ports": [port(1, WEB), port(2, DB)],
        "groups": {WEB: {"rules": web, "members": members}, DB: {"rules": db}},
    }
    second = copy.deepcopy({**first, "revision": 2})
    second["groups"][WEB]["members"]["IPv4"].append("10.99.0.77")
    third = copy.deepcopy({**second, "revision": 3})
    third["groups"][WEB]["members"]["IPv4"] = ["10.99.0.77"]
    third["groups"][DB]["rules"] = db[2:]
    return first, second, third
