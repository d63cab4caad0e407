# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The bridges that are made on this host for networks over hosts: each with a device that leads to other hosts, and a file that says how both are
made.

The devices end with the host's power; the files stay, so that a guest's start makes them again without the inventory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
import typing as t
from dataclasses import dataclass

from ...core.errors import BootflowError, CommandFailed, NetworkError
from ...core.networks.names import check_interface
from ..os.batch import progress
from ..os.files import remove_files, write_file
from ..os.locks import LOCK_ROOT, host_lock
from ..os.paths import make_dirs
from .links import Links, batch, exists, host_name, ip, is_up, links_of, turn_off_ipv6

#: A file for each bridge, named by it: its time is when a build last needed the network.
FOLDER = "/var/lib/bootflow/networks"
LOCK = "networks"


@dataclass(frozen=True)
class MadeBridge:
    """A bridge of a network on this host, with a device in it. A subclass knows the device.

    ``KIND``: of the device, for the kernel. ``NOUN``: for people. ``MARK``: the alias of both devices. ``FIELD``: of bootflow_networks, which names the device.
    """

    bridge: str
    mtu: int

    KIND: t.ClassVar[str]
    NOUN: t.ClassVar[str]
    MARK: t.ClassVar[str]
    FIELD: t.ClassVar[str]

    @property
    def device(self) -> str:
        """Return the name of the device."""
        raise NotImplementedError

    @property
    def number(self) -> str:
        """Return the number of the network, for messages: VNI 100."""
        raise NotImplementedError

    @property
    def device_lines(self) -> list[str]:
        """Return lines for the device when it is complete."""
        raise NotImplementedError

    def found_device_lines(self, link: t.Mapping[str, t.Any]) -> list[str]:
        """Return lines for the device as it is. :arg link: as ip shows it"""
        raise NotImplementedError

    def fits(self, link: t.Mapping[str, t.Any]) -> bool:
        """Return whether the device can be corrected; otherwise it is made again."""
        raise NotImplementedError

    @property
    def kind_words(self) -> str:
        """Return the words by which ``ip link add`` makes the device."""
        raise NotImplementedError

    @property
    def remedy(self) -> str:
        """Return what to do where the kernel refuses the devices, with %s for the network."""
        raise NotImplementedError

    def complete(self) -> None:
        """Do what is left when both devices are there."""

    def check_others(self, links: Links, network: str) -> None:
        """Check devices of other names. :arg links: the devices that exist. :raises NetworkError: one is in the way"""

    def __post_init__(self) -> None:
        if check_interface(self.bridge) == check_interface(self.device):
            raise ValueError(self.bridge)

    @property
    def lines(self) -> list[str]:
        """Return what the host has when all is complete, as found_lines() says what it has."""
        return ["bridge %s: MTU %d, up" % (self.bridge, self.mtu), *self.device_lines]


Bridge = t.TypeVar("Bridge", bound=MadeBridge)


# --- what the host has ------------------------------------------------------------------------------------------------


def recorded(made: type[Bridge]) -> list[Bridge]:
    """Return the bridges of a kind by their files, also of devices that are gone since the host started. A file that cannot be read is left out."""
    try:
        names = sorted(os.listdir(FOLDER))
    except OSError:
        return []
    bridges = []
    for name in names:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, BootflowError):
            with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
                data: dict[str, t.Any] = json.load(file)
            fields: dict[str, t.Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
            bridge = made(**fields)
            if bridge.bridge == name:
                bridges.append(bridge)
    return bridges


def unneeded_for(made: MadeBridge) -> float:
    """Return the seconds since a build needed the network."""
    return time.time() - os.stat(_file_of(made)).st_mtime


def has_ports(made: MadeBridge) -> bool:
    """Return whether an interface is in the bridge besides the device."""
    if not exists(made.bridge):
        return False
    return any(link["ifname"] != made.device for link in ip("link", "show", "master", made.bridge))


def found_text(made: MadeBridge) -> str:
    """Return the devices as lines of text; empty where there are none."""
    return text_of(_found_lines(made, _links(made)))


def _found_lines(made: MadeBridge, links: Links) -> list[str]:
    lines = []
    bridge, device = links.get(made.bridge), links.get(made.device)
    if bridge is not None:
        lines.append("bridge %s: MTU %d%s" % (made.bridge, bridge["mtu"], up_words(bridge)))
    return lines + ([] if device is None else made.found_device_lines(device))


def _links(made: MadeBridge) -> Links:
    return links_of((made.bridge, made.device))


def up_words(link: t.Mapping[str, t.Any]) -> str:
    """Return the end of a line for an interface."""
    return ", up" if is_up(link) else ""


def in_words(link: t.Mapping[str, t.Any]) -> str:
    """Return the words for the bridge that an interface is in."""
    return ", in %s" % link["master"] if link.get("master") else ""


def text_of(lines: t.Sequence[str]) -> str:
    """Return lines as a text."""
    return "".join(line + "\n" for line in lines)


# --- changes ----------------------------------------------------------------------------------------------------------


def ensure_bridge(made: MadeBridge, network: str, check_mode: bool, is_needed: bool = True) -> dict[str, t.Any]:
    """Make or correct the devices; {changed, defined, started, diff}. To be called with the lock, but in check mode.

    :arg network: its name, for messages. :arg is_needed: false: the time of its file stays, by which it is purged
    :raises NetworkError: a device of its name is another's, or the kernel refuses the devices.
    """
    links = _links(made)
    _check_owners(made, links, network)
    made.check_others(links, network)
    before = _found_lines(made, links)
    defined = made.bridge not in links
    result: dict[str, t.Any] = {
        "changed": before != made.lines,
        "defined": defined,
        "started": defined or made.device not in links or not all(is_up(link) for link in links.values()),
    }
    if result["changed"]:
        after = text_of(made.lines)
        result["diff"] = {"before": text_of(before), "after": after, "after_header": made.bridge}
    if check_mode:
        return result
    record(made, is_needed)
    if result["changed"]:
        progress.mark_changed()
        try:
            _make(made, links)
        except CommandFailed as error:
            raise NetworkError(
                message="network %s cannot have bridge %s and %s %s on %s: %s"
                % (network, made.bridge, made.NOUN, made.device, host_name(), error.message),
                remedy=made.remedy % network,
            ) from None
    return result


def restore_bridges(made: type[Bridge], bridges: t.Callable[[], t.Iterable[str]]) -> None:
    """Make the bridges of a guest that the host had before it started, so that the guest can start.

    :arg bridges: returns the bridges of the guest. It is called only where one is incomplete.
    """
    missing = {b.bridge: b for b in recorded(made) if not (exists(b.bridge) and exists(b.device))}
    if not missing:
        return
    for bridge in sorted(missing.keys() & set(bridges())):
        with host_lock(LOCK_ROOT, LOCK):
            ensure_bridge(missing[bridge], bridge, False, is_needed=False)


def remove_bridge(made: MadeBridge) -> None:
    """Remove the devices and the file. A device that another made in the meantime stays."""
    links = _links(made)
    names = [name for name in (made.device, made.bridge) if name in links and links[name].get("ifalias") == made.MARK]
    if names:
        progress.mark_changed()
        batch("ip", ["link delete dev %s" % name for name in names])
    remove_files(_file_of(made))


def _check_owners(made: MadeBridge, links: Links, network: str) -> None:
    """:raises NetworkError: a device that is needed exists, and belongs to another network, or to another program"""
    for name, kind in ((made.bridge, "bridge"), (made.device, made.KIND)):
        link = links.get(name)
        if link is not None and (link.get("ifalias"), link.get("linkinfo", {}).get("info_kind")) != (made.MARK, kind):
            raise NetworkError(
                message="network %s needs the name %s on %s, where another has made an interface of this name"
                % (network, name, host_name()),
                remedy="Remove it (ip link delete %s) if nothing uses it, or write another %s for network %s in bootflow_networks."
                % (name, "source" if name == made.bridge else made.FIELD, network),
            )
    for other in recorded(type(made)):
        same_bridge, same_device = other.bridge == made.bridge, other.device == made.device
        if same_bridge != same_device and (exists(other.bridge) or exists(other.device)):
            raise NetworkError(
                message="network %s is to have %s on bridge %s, and %s has %s on bridge %s"
                % (network, made.number, made.bridge, host_name(), other.number, other.bridge),
                remedy="Correct %s and source in bootflow_networks, or remove the guests of bridge %s there and purge the host"
                " (bootflow.compute.purge -e bootflow_remove_unused_networks=all)." % (made.FIELD, other.bridge),
            )


def _make(made: MadeBridge, links: Links) -> None:
    """Make or correct the devices. :arg links: the devices that exist"""
    bridge, device = made.bridge, made.device
    commands = []
    # The same process of ip sets the mark, also when this one is killed.
    if bridge not in links:
        commands.append("link add %s type bridge stp_state 0 forward_delay 0 mcast_snooping 0" % bridge)
        commands.append("link set dev %s alias %s" % (bridge, made.MARK))
    if device in links and not made.fits(links[device]):
        commands.append("link delete dev %s" % device)
        links = {name: link for name, link in links.items() if name != device}
    if device not in links:
        commands.append("link add %s" % made.kind_words)
        commands.append("link set dev %s alias %s" % (device, made.MARK))
    # The host has no address in the network: guests do not reach it there, and it takes no routes from them.
    commands.append("link set dev %s addrgenmode none mtu %d" % (device, made.mtu))
    commands.append("link set dev %s master %s up" % (device, bridge))
    commands.append("link set dev %s addrgenmode none mtu %d up" % (bridge, made.mtu))
    batch("ip", commands)
    turn_off_ipv6(bridge, device)
    made.complete()


def record(made: MadeBridge, is_needed: bool) -> None:
    """Write the file of a bridge, before its devices are made, so that none is forgotten."""
    path = _file_of(made)
    data = json.dumps(dataclasses.asdict(made), sort_keys=True).encode()
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


def _file_of(made: MadeBridge) -> str:
    return os.path.join(FOLDER, made.bridge)
