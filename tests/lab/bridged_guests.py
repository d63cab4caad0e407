# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests without machines: network namespaces on a bridge, with sockets that say anything. Needs root, iproute2 and the standard library.

with Bridged(["web", "db"], "10.0.0.1/24") as place:
    place["web"].send(ethernet(BROADCAST, place["web"].mac, ARP, arp(...)))
    assert place["db"].gets(b"...")
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import socket
import struct
import subprocess
import time

ARP, IPV4, IPV6, RARP, VLAN = 0x0806, 0x0800, 0x86DD, 0x8035, 0x8100
BROADCAST = "ff:ff:ff:ff:ff:ff"
_LIBC = ctypes.CDLL(None, use_errno=True)


def ip(*argv):
    subprocess.run(["ip", *argv], check=True, timeout=30)


@contextlib.contextmanager
def inside(name):
    """Sockets that are made here are in the namespace; "": in that of the process."""
    if not name:
        yield
        return
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    other = os.open("/run/netns/" + name, os.O_RDONLY)
    try:
        if _LIBC.setns(other, 0x40000000):
            raise OSError(ctypes.get_errno(), "setns")
        yield
    finally:
        _LIBC.setns(own, 0x40000000)
        os.close(own)
        os.close(other)


class End:
    """A guest: a namespace with eth0, whose other end is a device of the bridge."""

    def __init__(self, place, number, name):
        self.number, self.name = number, name
        self.namespace = "%s-%s" % (place.bridge, name)
        self.device = "tap%s%d" % (place.bridge[-4:], number)
        self.mac = "fa:16:3e:00:00:%02x" % number
        self.v4, self.v6 = "10.99.0.%d" % (10 + number), "fd99::%x" % (10 + number)
        ip("netns", "add", self.namespace)
        ip(
            *("link", "add", self.device, "mtu", "1500", "type", "veth", "peer", "name", "eth0"),
            *("address", self.mac, "netns", self.namespace),
        )
        ip("link", "set", self.device, "master", place.bridge, "up")
        for argv in (
            ("address", "add", self.v4 + "/24", "dev", "eth0"),
            ("address", "add", self.v6 + "/64", "dev", "eth0", "nodad"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
            ("route", "add", "default", "via", "10.99.0.1"),
        ):
            ip("-n", self.namespace, *argv)
        with inside(self.namespace):
            self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            self.raw.bind(("eth0", 0))

    def send(self, frame):
        self.raw.send(frame)

    def gets(self, part, seconds=0.25):
        """Whether a frame with these bytes comes, from elsewhere."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.raw], [], [], left)[0]:
                frame, where = self.raw.recvfrom(65535)
                if part in frame and where[2] != socket.PACKET_OUTGOING:
                    return True
        return False

    def socket(self, kind=socket.SOCK_STREAM, family=socket.AF_INET):
        with inside(self.namespace):
            return socket.socket(family, kind)


class Bridged:
    """A bridge with guests on it; ``host`` is the address of the machine there."""

    def __init__(self, names, bridge="bfgx0", host="10.99.0.1/24"):
        self.bridge, self.names, self.host = bridge, names, host
        self.ends = {}

    def __enter__(self):
        ip("link", "add", self.bridge, "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
        try:
            ip("address", "add", self.host, "dev", self.bridge)
            ip("link", "set", self.bridge, "up")
            for number, name in enumerate(self.names, 1):
                self.ends[name] = End(self, number, name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error):
        for name in self.names:
            subprocess.run(
                ["ip", "netns", "delete", "%s-%s" % (self.bridge, name)], check=False, stderr=subprocess.DEVNULL
            )
        for end in self.ends.values():  # a namespace goes some time after its name
            end.raw.close()
            subprocess.run(["ip", "link", "delete", end.device], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "delete", self.bridge], check=False)

    def __getitem__(self, name):
        return self.ends[name]


def _mac(text):
    return bytes.fromhex(text.replace(":", ""))


def ethernet(to, sender, kind, payload):
    return (_mac(to) + _mac(sender) + struct.pack("!H", kind) + payload).ljust(60, b"\0")


def arp(operation, sender_mac, sender, target_mac, target):
    head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation)
    return head + _mac(sender_mac) + socket.inet_aton(sender) + _mac(target_mac) + socket.inet_aton(target)


def _sum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(sender, to, protocol, payload, flags=0, number=1):
    """:arg flags: the field with flags and the offset in 8 bytes"""
    addresses = socket.inet_aton(sender) + socket.inet_aton(to)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), number, flags, 64, protocol, 0) + addresses
    return head[:10] + struct.pack("!H", _sum(head)) + head[12:] + payload


def udp(sport, dport, data):
    return struct.pack("!HHHH", sport, dport, 8 + len(data), 0) + data


def ipv6(sender, to, following, payload, hops=255):
    addresses = socket.inet_pton(socket.AF_INET6, sender) + socket.inet_pton(socket.AF_INET6, to)
    return struct.pack("!IHBB", 0x60000000, len(payload), following, hops) + addresses + payload


def icmpv6(sender, to, kind, body):
    """An ICMPv6 message with its checksum, in IPv6."""
    addresses = socket.inet_pton(socket.AF_INET6, sender) + socket.inet_pton(socket.AF_INET6, to)
    message = struct.pack("!BBH", kind, 0, 0) + body
    total = _sum(addresses + struct.pack("!II", len(message), 58) + message)
    return ipv6(sender, to, 58, message[:2] + struct.pack("!H", total) + message[4:])
