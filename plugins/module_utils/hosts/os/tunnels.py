# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tunnels of this host: for each VXLAN network a bridge, a VXLAN device in it, and a file that says how both are made.

The devices end with the host's power; the files stay, so that a guest's start makes them again without the inventory. No daemon takes part:
the device learns where MAC addresses are, and sends what goes to all, or to an unknown address, to each peer (head-end replication).
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import json
import os
import socket
import time
import typing as t
from dataclasses import dataclass

from ...core.errors import BootflowError, CommandFailed, HostLacksNetwork, InvalidInput, NetworkError
from ...core.networks.names import check_interface
from ...core.networks.underlay import MOST_VNI, PORT, check_underlay_address, most_mtu, peers_of
from .batch import attempt, progress
from .command import program, run
from .files import remove_files, write_file
from .locks import LOCK_ROOT, host_lock
from .paths import make_dirs

#: A file for each tunnel, named by its bridge: its time is when a build last needed the network.
FOLDER = "/var/lib/bootflow/networks"
#: The alias of the devices that are made here (`ip link`).
MARK = "urn:bootflow:compute:vxlan:1"
LOCK = "networks"
_ALL = "00:00:00:00:00:00"  # the entry of a VXLAN device for frames that go to every peer
_ATTEMPTS = 20  # lists of interfaces that the kernel ends early; the last one is taken as it is

Links = t.Dict[str, t.Mapping[str, t.Any]]  # by their names, as ip shows them


@dataclass(frozen=True)
class Tunnel:
    """A VXLAN network on this host. ``address``: of this host in the underlay; ``peers``: of the other hosts."""

    bridge: str
    vni: int
    address: str
    peers: tuple[str, ...]
    mtu: int

    @property
    def device(self) -> str:
        """Return the name of the VXLAN device."""
        return "vxlan%d" % self.vni

    @property
    def lines(self) -> list[str]:
        """Return what the host has when the tunnel is complete, as _found_lines() says what it has."""
        return [
            "bridge %s: MTU %d, up" % (self.bridge, self.mtu),
            "VXLAN device %s: VNI %d, port %d, address %s, MTU %d, in %s, up"
            % (self.device, self.vni, PORT, self.address, self.mtu, self.bridge),
            *("peer %s" % peer for peer in self.peers),
        ]


class Underlay(t.NamedTuple):
    """The interface of this host that has its address in the underlay."""

    interface: str
    mtu: int


def host_name() -> str:
    """Return this host's name, for messages."""
    return socket.gethostname()


# --- what the host has ------------------------------------------------------------------------------------------------


def find_underlay(address: str) -> Underlay | None:
    """Return the interface that is up and has ``address``; None: no interface has it."""
    for link in _ip("address", "show", "up", "to", address):
        if any(entry.get("local") == address for entry in link.get("addr_info") or ()):
            return Underlay(str(link["ifname"]), int(link["mtu"]))
    return None


def recorded() -> list[Tunnel]:
    """Return the tunnels of this host by their files, also of devices that are gone since it started. A file that cannot be read is left out."""
    try:
        names = sorted(os.listdir(FOLDER))
    except OSError:
        return []
    tunnels = []
    for name in names:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, BootflowError):
            with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
                data = json.load(file)
            tunnel = Tunnel(**{**data, "peers": tuple(str(peer) for peer in data["peers"])})
            if check_interface(tunnel.bridge) == name and 0 < tunnel.vni <= MOST_VNI:
                tunnels.append(tunnel)
    return tunnels


def unneeded_for(tunnel: Tunnel) -> float:
    """Return the seconds since a build needed the network."""
    return time.time() - os.stat(_file_of(tunnel)).st_mtime


def has_ports(tunnel: Tunnel) -> bool:
    """Return whether an interface is in the bridge besides the VXLAN device."""
    if not _exists(tunnel.bridge):
        return False
    return any(link["ifname"] != tunnel.device for link in _ip("link", "show", "master", tunnel.bridge))


def found_text(tunnel: Tunnel) -> str:
    """Return the devices of a tunnel as lines of text; empty where there are none."""
    return _text(_found_lines(tunnel, _links(tunnel)))


def _found_lines(tunnel: Tunnel, links: Links) -> list[str]:
    lines = []
    bridge, device = links.get(tunnel.bridge), links.get(tunnel.device)
    if bridge is not None:
        lines.append("bridge %s: MTU %d%s" % (tunnel.bridge, bridge["mtu"], _up(bridge)))
    if device is not None:
        data = device.get("linkinfo", {}).get("info_data", {})
        place = ", in %s" % device["master"] if device.get("master") else ""
        address = data.get("local") or data.get("local6") or "none"
        fields = (tunnel.device, data.get("id", 0), data.get("port", 0), address, device["mtu"], place, _up(device))
        lines.append("VXLAN device %s: VNI %d, port %d, address %s, MTU %d%s%s" % fields)
        lines += ["peer %s" % peer for peer in _peers_in(tunnel)]
    return lines


def _up(link: t.Mapping[str, t.Any]) -> str:
    return ", up" if "UP" in link.get("flags", ()) else ""


def _peers_in(tunnel: Tunnel) -> list[str]:
    """Return the peers of the device, in the order of peers_of(); their IP version is that of the address that it was made with."""
    argv = [program("bridge", "iproute2"), "-json", "fdb", "show", "dev", tunnel.device]
    entries = json.loads(run(argv, timeout=60).stdout or "[]")
    peers = {ipaddress.ip_address(e["dst"]) for e in entries if e.get("mac") == _ALL and e.get("dst")}
    return [str(peer) for peer in sorted(peers, key=int)]


def _links(tunnel: Tunnel) -> Links:
    """Return the devices of these names, whoever made them."""
    links: Links = {}
    for name in (tunnel.bridge, tunnel.device):
        if _exists(name):
            links.update({str(link["ifname"]): link for link in _ip("-details", "link", "show", "dev", name)})
    return links


def _exists(name: str) -> bool:
    try:
        return bool(socket.if_nametoindex(name))
    except OSError:
        return False


def _ip(*arguments: str) -> list[t.Mapping[str, t.Any]]:
    """Return interfaces as ``ip`` shows them. While interfaces come and go the kernel may end its list early; it is asked again."""
    argv = [program("ip", "iproute2"), "-json", *arguments]
    for _attempt in range(_ATTEMPTS):
        answer = run(argv, timeout=60)
        if "Dump was interrupted" not in answer.stderr:
            break
    return [link for link in json.loads(answer.stdout or "[]") if link.get("ifname")]


def _text(lines: t.Sequence[str]) -> str:
    return "".join(line + "\n" for line in lines)


# --- what is wanted ---------------------------------------------------------------------------------------------------


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
    return Tunnel(bridge, vni, address, peers, most if mtu is None else mtu)


# --- changes ----------------------------------------------------------------------------------------------------------


def ensure_tunnel(tunnel: Tunnel, network: str, check_mode: bool, is_needed: bool = True) -> dict[str, t.Any]:
    """Make or correct the devices; {changed, defined, started, diff}. To be called with the lock, but in check mode.

    :arg network: its name, for messages. :arg is_needed: false: the time of its file stays, by which it is purged
    :raises NetworkError: a device of its name, or its VNI, is another's; or the kernel refuses the devices.
    """
    links = _links(tunnel)
    _check_owners(tunnel, links, network)
    before = _found_lines(tunnel, links)
    defined = tunnel.bridge not in links
    result: dict[str, t.Any] = {
        "changed": before != tunnel.lines,
        "defined": defined,
        "started": defined or tunnel.device not in links or not all(_up(link) for link in links.values()),
    }
    if result["changed"]:
        after = _text(tunnel.lines)
        result["diff"] = {"before": _text(before), "after": after, "after_header": tunnel.bridge}
    if check_mode:
        return result
    _record(tunnel, is_needed)
    if result["changed"]:
        progress.mark_changed()
        try:
            _make(tunnel, links)
        except CommandFailed as error:
            raise NetworkError(
                message="network %s cannot have bridge %s and VXLAN device %s on %s: %s"
                % (network, tunnel.bridge, tunnel.device, host_name(), error.message),
                remedy="If another program has UDP port %d or the VNI %d there, such as Open vSwitch or Docker Swarm, give it another port, or write"
                " another vni for network %s, or use other hosts." % (PORT, tunnel.vni, network),
            ) from None
    return result


def refresh_tunnels(address: str, addresses: t.Sequence[str], check_mode: bool) -> dict[str, dict[str, t.Any]]:
    """Join the tunnels that this host has with these hosts, e.g. with a new one. Returns an outcome for each bridge.

    Devices that are gone since the host started are not made: the start of a guest does that.
    """

    def refresh(tunnel: Tunnel) -> dict[str, t.Any]:
        return _refresh(tunnel, address, addresses, check_mode)

    with contextlib.nullcontext() if check_mode else host_lock(LOCK_ROOT, LOCK):
        return {tunnel.bridge: attempt(refresh, tunnel) for tunnel in recorded()}


def _refresh(tunnel: Tunnel, address: str, addresses: t.Sequence[str], check_mode: bool) -> dict[str, t.Any]:
    lacks = HostLacksNetwork(
        message="address %s of the underlay is on no interface of %s that is up" % (address, host_name()),
        remedy="Correct bootflow_vxlan_address of the host, or give an interface the address.",
    )
    wanted = wanted_tunnel(tunnel.bridge, tunnel.vni, address, addresses, tunnel.mtu, tunnel.bridge, lacks)
    if _exists(tunnel.bridge):
        return ensure_tunnel(wanted, tunnel.bridge, check_mode, is_needed=False)
    changed = wanted != tunnel
    if changed and not check_mode:
        progress.mark_changed()
        _record(wanted, is_needed=False)
    diff = {"diff": {"before": _text(tunnel.lines), "after": _text(wanted.lines), "after_header": tunnel.bridge}}
    return {"changed": changed, "defined": False, "started": False, **(diff if changed else {})}


def restore_tunnels(bridges: t.Callable[[], t.Iterable[str]]) -> None:
    """Make the tunnels of a guest that the host had before it started, so that the guest can start.

    :arg bridges: returns the bridges of the guest. It is called only where a tunnel is incomplete.
    """
    missing = {
        tunnel.bridge: tunnel for tunnel in recorded() if not (_exists(tunnel.bridge) and _exists(tunnel.device))
    }
    if not missing:
        return
    for bridge in sorted(missing.keys() & set(bridges())):
        with host_lock(LOCK_ROOT, LOCK):
            ensure_tunnel(missing[bridge], bridge, False, is_needed=False)


def remove_tunnel(tunnel: Tunnel) -> None:
    """Remove the devices and the file. A device that another made in the meantime stays."""
    links = _links(tunnel)
    names = [name for name in (tunnel.device, tunnel.bridge) if name in links and links[name].get("ifalias") == MARK]
    if names:
        progress.mark_changed()
        _batch("ip", ["link delete dev %s" % name for name in names])
    remove_files(_file_of(tunnel))


def _check_owners(tunnel: Tunnel, links: Links, network: str) -> None:
    """:raises NetworkError: a device that is needed exists, and belongs to another network, or to another program"""
    where = host_name()
    for name, kind in ((tunnel.bridge, "bridge"), (tunnel.device, "vxlan")):
        link = links.get(name)
        if link is not None and (link.get("ifalias"), link.get("linkinfo", {}).get("info_kind")) != (MARK, kind):
            raise NetworkError(
                message="network %s needs the name %s on %s, where another has made an interface of this name"
                % (network, name, where),
                remedy="Remove it (ip link delete %s) if nothing uses it, or write another %s for network %s in bootflow_networks."
                % (name, "source" if name == tunnel.bridge else "vni", network),
            )
    for other in recorded():
        same_bridge, same_vni = other.bridge == tunnel.bridge, other.vni == tunnel.vni
        if same_bridge != same_vni and (_exists(other.bridge) or _exists(other.device)):
            raise NetworkError(
                message="network %s is to have VNI %d on bridge %s, and %s has VNI %d on bridge %s"
                % (network, tunnel.vni, tunnel.bridge, where, other.vni, other.bridge),
                remedy="Correct vni and source in bootflow_networks, or remove the guests of bridge %s there and purge the host"
                % other.bridge
                + " (bootflow.compute.purge -e bootflow_remove_unused_networks=all).",
            )
    if tunnel.device in links:
        return
    for link in _ip("-details", "link", "show", "type", "vxlan"):
        data = link.get("linkinfo", {}).get("info_data", {})
        if (data.get("id"), data.get("port")) == (tunnel.vni, PORT):
            raise NetworkError(
                message="network %s needs VNI %d on %s, where %s has it already"
                % (network, tunnel.vni, where, link["ifname"]),
                remedy="Remove %s if nothing uses it, or write another vni for network %s." % (link["ifname"], network),
            )


def _make(tunnel: Tunnel, links: Links) -> None:
    """Make or correct the devices. :arg links: the devices that exist"""
    bridge, device = tunnel.bridge, tunnel.device
    commands = []
    # The same process of ip sets the mark, also when this one is killed.
    if bridge not in links:
        commands.append("link add %s type bridge stp_state 0 forward_delay 0 mcast_snooping 0" % bridge)
        commands.append("link set dev %s alias %s" % (bridge, MARK))
    if device in links and not _has_address(tunnel, links[device]):
        commands.append("link delete dev %s" % device)
        links = {name: link for name, link in links.items() if name != device}
    if device not in links:
        kind = "type vxlan id %d local %s dstport %d learning" % (tunnel.vni, tunnel.address, PORT)
        commands.append("link add %s mtu %d %s" % (device, tunnel.mtu, kind))
        commands.append("link set dev %s alias %s" % (device, MARK))
    # The host has no address in the network: guests do not reach it there, and it takes no routes from them.
    commands.append("link set dev %s addrgenmode none mtu %d" % (device, tunnel.mtu))
    commands.append("link set dev %s master %s up" % (device, bridge))
    commands.append("link set dev %s addrgenmode none mtu %d up" % (bridge, tunnel.mtu))
    _batch("ip", commands)
    _turn_off_ipv6(bridge, device)
    before, wanted = set(_peers_in(tunnel)), set(tunnel.peers)
    entry = "%s dev %s dst" % (_ALL, device)
    changes = ["fdb append %s %s self permanent" % (entry, peer) for peer in sorted(wanted - before)]
    changes += ["fdb del %s %s self" % (entry, peer) for peer in sorted(before - wanted)]
    if changes:
        _batch("bridge", changes)
    if before - wanted:
        _forget_learned(device, before - wanted)


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


def _has_address(tunnel: Tunnel, link: t.Mapping[str, t.Any]) -> bool:
    data = link.get("linkinfo", {}).get("info_data", {})
    address = data.get("local") or data.get("local6")
    return (data.get("id"), data.get("port"), address) == (tunnel.vni, PORT, tunnel.address)


def _turn_off_ipv6(*names: str) -> None:
    for name in names:
        with contextlib.suppress(OSError):  # a kernel without IPv6
            with open("/proc/sys/net/ipv6/conf/%s/disable_ipv6" % name, "w", encoding="ascii") as file:
                file.write("1")


def _batch(name: str, commands: t.Sequence[str]) -> None:
    """Run commands of ``ip`` or ``bridge`` one after the other, until one fails."""
    run([program(name, "iproute2"), "-batch", "-"], timeout=120, stdin="".join(line + "\n" for line in commands))


def _record(tunnel: Tunnel, is_needed: bool) -> None:
    """Write the file of a tunnel, before its devices are made, so that none is forgotten."""
    path = _file_of(tunnel)
    data = json.dumps(dataclasses.asdict(tunnel), sort_keys=True).encode()
    former, times = None, None
    with contextlib.suppress(OSError):
        with open(path, "rb") as file:
            former = file.read()
            times = os.fstat(file.fileno()).st_mtime
    if former != data:
        make_dirs(FOLDER, 0o711)
        write_file(path, data, 0o600)
    if is_needed:
        os.utime(path)
    elif former != data and times is not None:
        os.utime(path, (times, times))


def _file_of(tunnel: Tunnel) -> str:
    return os.path.join(FOLDER, tunnel.bridge)
