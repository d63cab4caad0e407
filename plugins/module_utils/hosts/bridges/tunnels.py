# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tunnels of this host: for each VXLAN network a bridge, and a VXLAN device in it.

No daemon takes part: the device learns where MAC addresses are, and sends what goes to all, or to an unknown address, to each peer (head-end
replication).
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import typing as t
from dataclasses import dataclass

from ...core.errors import HostLacksNetwork, InvalidInput, NetworkError
from ...core.networks.underlay import MOST_VNI, PORT, check_underlay_address, most_mtu, peers_of
from ..os.batch import attempt, progress
from ..os.command import program, run
from ..os.locks import LOCK_ROOT, host_lock
from .links import Links, batch, exists, host_name, info_of, ip
from .made_bridges import LOCK, MadeBridge, ensure_bridge, in_words, record, recorded, text_of, up_words

_ALL = "00:00:00:00:00:00"  # the entry of a VXLAN device for frames that go to every peer


@dataclass(frozen=True)
class Tunnel(MadeBridge):
    """A VXLAN network on this host. ``address``: of this host in the underlay; ``peers``: of the other hosts."""

    vni: int
    address: str
    peers: tuple[str, ...]

    KIND = "vxlan"
    NOUN = "VXLAN device"
    MARK = "urn:bootflow:compute:vxlan:1"
    FIELD = "vni"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.vni <= MOST_VNI:
            raise ValueError(self.vni)

    @property
    def device(self) -> str:
        return "vxlan%d" % self.vni

    @property
    def number(self) -> str:
        return "VNI %d" % self.vni

    @property
    def device_lines(self) -> list[str]:
        return [
            "VXLAN device %s: VNI %d, port %d, address %s, MTU %d, in %s, up"
            % (self.device, self.vni, PORT, self.address, self.mtu, self.bridge),
            *("peer %s" % peer for peer in self.peers),
        ]

    def found_device_lines(self, link: t.Mapping[str, t.Any]) -> list[str]:
        data = info_of(link)
        address = data.get("local") or data.get("local6") or "none"
        fields = (self.device, data.get("id", 0), data.get("port", 0), address, link["mtu"])
        line = "VXLAN device %s: VNI %d, port %d, address %s, MTU %d%s%s" % (*fields, in_words(link), up_words(link))
        return [line, *("peer %s" % peer for peer in self.present_peers())]

    def present_peers(self) -> list[str]:
        """Return the peers of the device, in the order of peers_of(); their IP version is that of the address that it was made with."""
        argv = [program("bridge", "iproute2"), "-json", "fdb", "show", "dev", self.device]
        entries = json.loads(run(argv, timeout=60).stdout or "[]")
        peers = {ipaddress.ip_address(e["dst"]) for e in entries if e.get("mac") == _ALL and e.get("dst")}
        return [str(peer) for peer in sorted(peers, key=int)]

    def fits(self, link: t.Mapping[str, t.Any]) -> bool:
        data = info_of(link)
        address = data.get("local") or data.get("local6")
        return (data.get("id"), data.get("port"), address) == (self.vni, PORT, self.address)

    @property
    def kind_words(self) -> str:
        kind = "type vxlan id %d local %s dstport %d learning" % (self.vni, self.address, PORT)
        return "%s mtu %d %s" % (self.device, self.mtu, kind)

    @property
    def remedy(self) -> str:
        return (
            "If another program has UDP port %d or the VNI %d there, such as Open vSwitch or Docker Swarm, give it another port, or write"
            " another vni for network %%s, or use other hosts." % (PORT, self.vni)
        )

    def check_others(self, links: Links, network: str) -> None:
        """:raises NetworkError: another device has the VNI"""
        if self.device in links:
            return
        for link in ip("-details", "link", "show", "type", "vxlan"):
            data = info_of(link)
            if (data.get("id"), data.get("port")) == (self.vni, PORT):
                raise NetworkError(
                    message="network %s needs VNI %d on %s, where %s has it already"
                    % (network, self.vni, host_name(), link["ifname"]),
                    remedy="Remove %s if nothing uses it, or write another vni for network %s."
                    % (link["ifname"], network),
                )

    def complete(self) -> None:
        """Correct the list of peers."""
        before, wanted = set(self.present_peers()), set(self.peers)
        entry = "%s dev %s dst" % (_ALL, self.device)
        changes = ["fdb append %s %s self permanent" % (entry, peer) for peer in sorted(wanted - before)]
        changes += ["fdb del %s %s self" % (entry, peer) for peer in sorted(before - wanted)]
        if changes:
            batch("bridge", changes)
        if before - wanted:
            _forget_learned(self.device, before - wanted)


class Underlay(t.NamedTuple):
    """The interface of this host that has its address in the underlay."""

    interface: str
    mtu: int


def find_underlay(address: str) -> Underlay | None:
    """Return the interface that is up and has ``address``; None: no interface has it."""
    for link in ip("address", "show", "up", "to", address):
        if any(entry.get("local") == address for entry in link.get("addr_info") or ()):
            return Underlay(str(link["ifname"]), int(link["mtu"]))
    return None


def wanted_tunnel(
    bridge: str,
    vni: int,
    address: str,
    addresses: t.Iterable[str],
    mtu: int | None,
    network: str,
    lacks: HostLacksNetwork,
) -> Tunnel:
    """Return the tunnel of a network on this host.

    :arg address: of this host in the underlay. :arg addresses: of all hosts. :arg mtu: None: the largest that fits.
    :arg network: its name, for messages. :arg lacks: the error for an address that no interface has
    :raises NetworkError: the MTU does not fit into the tunnel. :raises HostLacksNetwork: no interface has the address.
    :raises InvalidInput: an address is wrong.
    """
    address = check_underlay_address(address)
    peers = peers_of(address, addresses)
    underlay = find_underlay(address)
    if underlay is None:
        raise lacks
    if underlay.interface == "lo":
        raise InvalidInput(
            message="bootflow_vxlan_address %s of %s is on lo, which has no MTU of the way to other hosts"
            % (address, host_name()),
            remedy="Set it to the address of an interface that leads to the other compute hosts.",
        )
    most = most_mtu(address, underlay.mtu)
    if mtu is not None and mtu > most:
        raise NetworkError(
            message="network %s has MTU %d, and the tunnel on %s has room for %d: %s has MTU %d, of which VXLAN takes %d"
            % (network, mtu, host_name(), most, underlay.interface, underlay.mtu, underlay.mtu - most),
            remedy="Write mtu: %d on network %s in bootflow_networks, or raise the MTU of %s and of all between the hosts."
            % (most, network, underlay.interface),
        )
    return Tunnel(bridge=bridge, vni=vni, address=address, peers=peers, mtu=most if mtu is None else mtu)


def refresh_tunnels(address: str, addresses: t.Sequence[str], check_mode: bool) -> dict[str, dict[str, t.Any]]:
    """Join the tunnels that this host has with these hosts, e.g. with a new one. Returns an outcome for each bridge.

    Devices that are gone since the host started are not made: the start of a guest does that.
    """

    def refresh(tunnel: Tunnel) -> dict[str, t.Any]:
        return _refresh(tunnel, address, addresses, check_mode)

    with contextlib.nullcontext() if check_mode else host_lock(LOCK_ROOT, LOCK):
        return {tunnel.bridge: attempt(refresh, tunnel) for tunnel in recorded(Tunnel)}


def _refresh(tunnel: Tunnel, address: str, addresses: t.Sequence[str], check_mode: bool) -> dict[str, t.Any]:
    lacks = HostLacksNetwork(
        message="address %s of the underlay is on no interface of %s that is up" % (address, host_name()),
        remedy="Correct bootflow_vxlan_address of the host, or give an interface the address.",
    )
    wanted = wanted_tunnel(tunnel.bridge, tunnel.vni, address, addresses, tunnel.mtu, tunnel.bridge, lacks)
    if exists(tunnel.bridge):
        return ensure_bridge(wanted, tunnel.bridge, check_mode, is_needed=False)
    changed = wanted != tunnel
    if changed and not check_mode:
        progress.mark_changed()
        record(wanted, is_needed=False)
    diff = {"diff": {"before": text_of(tunnel.lines), "after": text_of(wanted.lines), "after_header": tunnel.bridge}}
    return {"changed": changed, "defined": False, "started": False, **(diff if changed else {})}


def _forget_learned(device: str, peers: t.Collection[str]) -> None:
    """Forget the MAC addresses that the device learned at former peers: their guests may be at another address by now."""
    argv = [program("bridge", "iproute2"), "-json", "fdb", "show", "dev", device]
    for entry in json.loads(run(argv, timeout=60).stdout or "[]"):
        if entry.get("dst") in peers and entry.get("mac") != _ALL:
            argv = [
                program("bridge", "iproute2"),
                "fdb",
                "del",
                entry["mac"],
                "dev",
                device,
                "dst",
                entry["dst"],
                "self",
            ]
            run(argv, timeout=60, check=False)  # it may have been learned elsewhere meanwhile
