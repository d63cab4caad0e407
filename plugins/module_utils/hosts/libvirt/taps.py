# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The interfaces of running guests on this host, and the bridges of libvirt networks that they are on.

libvirt plugs guests that lost their network in again when its daemon starts, not when the network does.
"""

from __future__ import annotations

import contextlib
import json
import typing as t
from dataclasses import dataclass

from ...core.errors import CommandFailed
from ...core.guest.domain.element import parse
from ..os.batch import progress
from ..os.command import program, run
from .connection import libvirt, libvirt_errors
from .dhcp import find_network


@dataclass(frozen=True)
class Tap:
    """An interface of a running guest, on the host."""

    uuid: str  # of the guest
    device: str  # vnet0
    mac: str
    source: str  # name of its libvirt network or bridge
    bridge: str  # that it belongs to; "": the network is not active


def unplugged(connection: t.Any, network: str = "") -> list[Tap]:
    """Return the interfaces of running guests that belong to a bridge and are on none.

    :arg network: only interfaces of this libvirt network.
    """
    taps = list(_taps(connection, network))
    masters = _masters() if taps else {}
    return [tap for tap in taps if tap.device in masters and not masters[tap.device]]


def plug_in(taps: t.Iterable[Tap]) -> list[Tap]:
    """Put interfaces on their bridges again. Returns the interfaces on bridges; the audit reports the others."""
    done = []
    for tap in taps:
        if tap.bridge:
            progress.mark_changed()
            with contextlib.suppress(CommandFailed):  # the guest ended meanwhile
                run([program("ip", "iproute2"), "link", "set", "dev", tap.device, "master", tap.bridge], timeout=60)
                done.append(tap)
    return done


def _taps(connection: t.Any, network: str) -> t.Iterator[Tap]:
    bridges: dict[str, str] = {}
    with libvirt_errors():
        domains = connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
    for domain in domains:
        try:
            uuid, xml = domain.UUIDString(), domain.XMLDesc(0)
        except libvirt.libvirtError:
            continue  # it ended meanwhile
        for interface in parse(xml).iterfind("devices/interface"):
            source, target, mac = interface.find("source"), interface.find("target"), interface.find("mac")
            if source is None or target is None or not target.get("dev") or mac is None:
                continue
            # Of a running guest, where a libvirt network has a bridge, its name stands there, too.
            bridge, name = source.get("bridge") or "", source.get("network") or ""
            if not bridge or (network and name != network) or interface.find("virtualport") is not None:
                continue  # Open vSwitch and its like have no bridge of Linux
            if name:
                if name not in bridges:
                    bridges[name] = _active_bridge(connection, name)
                bridge = bridges[name]
            yield Tap(uuid, str(target.get("dev")), str(mac.get("address")).lower(), name or bridge, bridge)


def _active_bridge(connection: t.Any, name: str) -> str:
    network = find_network(connection, name)
    with libvirt_errors():
        return bridge_of(network) if network is not None and network.isActive() else ""


def _masters() -> dict[str, str]:
    """Return interface of the host -> its bridge or other master; "": none."""
    answer = run([program("ip", "iproute2"), "-json", "link", "show"], timeout=60)
    return {str(link["ifname"]): str(link.get("master") or "") for link in json.loads(answer.stdout or "[]")}


def bridge_of(network: t.Any) -> str:
    """Return the name of the bridge of a libvirt network; "" if there is none."""
    try:
        return str(network.bridgeName() or "")
    except libvirt.libvirtError:
        return ""  # a network without a bridge, such as macvtap or SR-IOV
