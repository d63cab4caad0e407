# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The DHCP reservations that a host's managed networks have to have: one for each address of a guest that was spawned there."""

from __future__ import annotations

import typing as t

from ...core.instances import states
from ...core.networks import dhcp
from ...ledger.compute import instances, ports
from ...ledger.db.transaction import Transaction


def of_hosts(tx: Transaction, hosts: t.Collection[str]) -> dict[str, dict[str, list[dict[str, str]]]]:
    """host -> UUID of a guest -> its reservations (network, mac, address, name). Guests without any are left out.

    A build is not among them: it makes its reservations when it spawns its guest.
    """
    if not hosts:
        return {}
    rows = {r.uuid: r for r in instances.select_live(tx, hosts=sorted(hosts)) if _has_guest(r)}
    needed_by_host: dict[str, dict[str, list[dict[str, str]]]] = {}
    for uuid, its_ports in ports.ports_of(tx, sorted(rows)).items():
        row = rows[uuid]
        needed = [
            reservation
            for port, network in its_ports
            if port.host == row.host
            for reservation in dhcp.reservations(port.mac_address, port.fixed_ips, network, row.hostname)
        ]
        if needed:
            needed_by_host.setdefault(str(row.host), {})[uuid] = needed
    return needed_by_host


def _has_guest(row: instances.Instance) -> bool:
    return row.launched_at is not None and row.vm_state != states.BUILDING and row.task_state != states.DELETING
