# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What guests on a bridge say, and whether others hear it. Prints {name of the test: whether a frame came through} as JSON.

python3 filtered_guests.py sources NFT      frames that say another sender; the filters may lack connection tracking
python3 filtered_guests.py rules FOLDER     connections: FOLDER has the filters as they follow each other, 1.nft and so on
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time

from bridged_guests import (
    ARP,
    BROADCAST,
    IPV4,
    IPV6,
    RARP,
    VLAN,
    Bridged,
    arp,
    ethernet,
    icmpv6,
    inside,
    ipv4,
    ipv6,
    udp,
)

OTHER_MAC = "fa:16:3e:99:99:99"


def load(path):
    subprocess.run(["nft", "-f", path], check=True, timeout=60)


def sources(path, full=False):
    """Each frame of the first guest that another one, without filters, hears or not."""
    with Bridged(["web", "db", "wire"]) as place:
        web, db, wire = place["web"], place["db"], place["wire"]
        frames = {
            "own IPv4": (web.mac, IPV4, ipv4(web.v4, wire.v4, 17, udp(7, 7, b"marked00"))),
            "own ARP": (web.mac, ARP, arp(1, web.mac, web.v4, "00:00:00:00:00:00", wire.v4)),
            "probe for own address": (web.mac, ARP, arp(1, web.mac, "0.0.0.0", "00:00:00:00:00:00", web.v4)),
            "own IPv6": (web.mac, IPV6, ipv6(web.v6, wire.v6, 17, udp(7, 7, b"marked01"))),
            "DHCP client": (web.mac, IPV4, ipv4("0.0.0.0", "255.255.255.255", 17, udp(68, 67, b"marked02"))),
            "announcement of QEMU": (web.mac, RARP, arp(3, web.mac, "0.0.0.0", web.mac, "0.0.0.0")),
            "MAC of another": (db.mac, IPV4, ipv4(web.v4, wire.v4, 17, udp(7, 7, b"marked03"))),
            "MAC of all": (BROADCAST, IPV4, ipv4(web.v4, wire.v4, 17, udp(7, 7, b"marked04"))),
            "IPv4 of another": (web.mac, IPV4, ipv4(db.v4, wire.v4, 17, udp(7, 7, b"marked05"))),
            "IPv4 of nobody": (web.mac, IPV4, ipv4("0.0.0.0", wire.v4, 17, udp(7, 7, b"marked06"))),
            "fragment with IPv4 of another": (web.mac, IPV4, ipv4(db.v4, wire.v4, 17, b"marked07", flags=0x0003)),
            "IPv6 of another": (web.mac, IPV6, ipv6(db.v6, wire.v6, 17, udp(7, 7, b"marked08"))),
            "link-local of another": (web.mac, IPV6, ipv6("fe80::f816:3eff:fe00:2", wire.v6, 17, udp(7, 7, b"marked09"))),
            "ARP with address of another": (web.mac, ARP, arp(2, web.mac, db.v4, BROADCAST, wire.v4)),
            "ARP with MAC of another": (web.mac, ARP, arp(2, db.mac, web.v4, BROADCAST, wire.v4)),
            "probe for address of another": (web.mac, ARP, arp(1, web.mac, "0.0.0.0", "00:00:00:00:00:00", db.v4)),
            "tagged": (web.mac, VLAN, struct.pack("!HH", 5, IPV4) + ipv4(web.v4, wire.v4, 17, udp(7, 7, b"marked10"))),
            "tagged with priority": (web.mac, VLAN, struct.pack("!HH", 0, IPV4) + ipv4(web.v4, wire.v4, 17, udp(7, 7, b"marked11"))),
            "tagged twice": (web.mac, 0x88A8, struct.pack("!HHHH", 5, VLAN, 6, IPV4) + ipv4(web.v4, wire.v4, 17, udp(7, 7, b"marked12"))),
            "another protocol": (web.mac, 0x88B5, b"marked13"),
            "PPPoE": (web.mac, 0x8863, b"marked14"),
            "announcement for another": (web.mac, RARP, arp(3, web.mac, "0.0.0.0", db.mac, "0.0.0.0")),
            "router's advertisement": (web.mac, IPV6, icmpv6("fe80::f816:3eff:fe00:1", "ff02::1", 134, b"\x40\0\0\xff" + b"marked15" * 2)),
            "redirect": (web.mac, IPV6, icmpv6("fe80::f816:3eff:fe00:1", wire.v6, 137, b"marked16" * 5)),
            "neighbour with address of another": (web.mac, IPV6, neighbour(web.v6, "ff02::1", db.v6, db.mac)),
            "neighbour with own address": (web.mac, IPV6, neighbour(web.v6, "ff02::1", web.v6, web.mac)),
            "is the address of another free": (web.mac, IPV6, solicitation(db.v6)),
            "is the own address free": (web.mac, IPV6, solicitation(web.v6)),
            "DHCP server": (web.mac, IPV4, ipv4(web.v4, "255.255.255.255", 17, udp(67, 68, b"marked17"))),
            "DHCP server from another port": (web.mac, IPV4, ipv4(web.v4, "255.255.255.255", 17, udp(1067, 68, b"marked18"))),
            "DHCPv6 server": (web.mac, IPV6, ipv6(web.v6, wire.v6, 17, udp(547, 546, b"marked19"))),
        }  # fmt: skip
        if path:
            load(path)
        heard = {}
        for name, (sender, kind, payload) in frames.items():
            to = BROADCAST if b"\xff\x02\0\0" in payload else wire.mac
            web.send(ethernet(to, sender, kind, payload))
            tagged = kind in (VLAN, 0x88A8)
            heard[name] = wire.gets(payload[-8:] if tagged or kind != ARP and kind != RARP else payload)
        # Frames to such addresses go to the machine, not to the other ports.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.bind(("10.99.0.1", 7))
            own.settimeout(0.4)
            for name, to in (
                ("LLDP", "01:80:c2:00:00:0e"),
                ("spanning tree", "01:80:c2:00:00:00"),
                ("a bridge", "01:80:c2:00:00:03"),
            ):
                web.send(ethernet(to, web.mac, IPV4, ipv4("10.99.0.99", "10.99.0.1", 17, udp(7, 7, b"marked20"))))
                try:
                    heard["frame to the address of " + name] = own.recv(100) == b"marked20"
                except OSError:
                    heard["frame to the address of " + name] = False
        web.send(ethernet(wire.mac, "fa:16:3e:99:99:98", IPV4, ipv4(web.v4, "10.99.0.1", 17, udp(7, 7, b"marked21"))))
        web.send(
            ethernet(
                "01:80:c2:00:00:03", "fa:16:3e:99:99:97", IPV4, ipv4(web.v4, "10.99.0.1", 17, udp(7, 7, b"marked21"))
            )
        )
        time.sleep(0.2)
        show = ["bridge", "fdb", "show", "br", place.bridge]
        learned = subprocess.run(show, stdout=subprocess.PIPE, text=True, check=True).stdout
        heard["addresses that the bridge learns of others"] = "fa:16:3e:99:99" in learned
        # A frame for a card that the bridge does not know goes to all ports, but to no guest that is filtered.
        wire.send(ethernet(OTHER_MAC, wire.mac, IPV4, ipv4(wire.v4, db.v4, 17, udp(7, 7, b"marked22"))))
        heard["frame for another card"] = db.gets(b"marked22")
        if full:
            heard.update(whole_packets(web, db, wire))
        return heard


def neighbour(sender, to, target, mac):
    link = b"\x02\x01" + bytes.fromhex(mac.replace(":", ""))
    return icmpv6(sender, to, 136, b"\x20\0\0\0" + socket.inet_pton(socket.AF_INET6, target) + link)


def solicitation(target):
    return icmpv6("::", "ff02::1", 135, b"\0\0\0\0" + socket.inet_pton(socket.AF_INET6, target))


def whole_packets(web, db, wire):
    """What is hidden in fragments is seen: the packet is put together before it is judged."""
    heard = {}
    answer = udp(67, 68, b"x" * 24 + b"marked30")
    for offset, part in ((0, answer[:8]), (1, answer[8:])):
        flags = (0x2000 if offset == 0 else 0) | offset
        web.send(ethernet(wire.mac, web.mac, IPV4, ipv4(web.v4, wire.v4, 17, part, flags=flags, number=77)))
    heard["DHCP server in fragments"] = wire.gets(b"marked30")
    plain = udp(700, 700, b"x" * 24 + b"marked31")
    for offset, part in ((0, plain[:8]), (1, plain[8:])):
        flags = (0x2000 if offset == 0 else 0) | offset
        web.send(ethernet(wire.mac, web.mac, IPV4, ipv4(web.v4, wire.v4, 17, part, flags=flags, number=78)))
    heard["fragments of an allowed packet"] = wire.gets(b"marked31")
    advertisement = icmpv6("fe80::f816:3eff:fe00:1", "ff02::1", 134, b"\x40\0\0\xff" + b"marked32" * 2)[40:]
    options = struct.pack("!BB6x", 58, 0)[:8]
    web.send(ethernet(wire.mac, web.mac, IPV6, ipv6("fe80::f816:3eff:fe00:1", wire.v6, 60, options + advertisement)))
    heard["router's advertisement behind an extension header"] = wire.gets(b"marked32")
    fragments = ((0, advertisement[:8]), (1, advertisement[8:]))
    for offset, part in fragments:
        head = struct.pack("!BBHI", 58, 0, offset << 3 | (offset == 0), 99)
        web.send(ethernet(wire.mac, web.mac, IPV6, ipv6("fe80::f816:3eff:fe00:1", wire.v6, 44, head + part)))
    heard["router's advertisement in fragments"] = wire.gets(b"marked32")
    return heard


# --- connections


class Echo:
    """A server of one guest, or of the machine, that sends back what it gets."""

    def __init__(self, namespace, port, family=socket.AF_INET):
        with inside(namespace):
            self.listener = socket.socket(family)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            self.listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self.listener.bind(("", port))
        self.listener.listen(16)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            connection, _address = self.listener.accept()
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    @staticmethod
    def _echo(connection):
        while data := connection.recv(65536):
            connection.sendall(data)


def connect(namespace, address, port, seconds=1.5):
    """A connection; None where none comes about."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with inside(namespace):
        made = socket.socket(family)
    made.settimeout(seconds)
    try:
        made.connect((address, port))
        return made
    except OSError:
        made.close()
        return None


def connects(*argv):
    made = connect(*argv)
    if made is not None:
        made.close()
    return made is not None


def lives(connection, seconds=1.5):
    """Whether what is sent comes back."""
    if connection is None:
        return False
    connection.settimeout(seconds)
    try:
        connection.sendall(b"still there?")
        return connection.recv(100) != b""
    except OSError:
        return False


def pings(namespace, address, seconds=1.0):
    with inside(namespace):
        probe = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    message = struct.pack("!BBHHH", 8, 0, 0xF7FF - os.getpid() % 256, os.getpid() % 256, 0)
    probe.sendto(message, (address, 0))
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([probe], [], [], left)[0]:
            packet, where = probe.recvfrom(2000)
            if packet[20] == 0 and where[0] == address:
                return True
    return False


def rules(folder):
    heard = {}
    with Bridged(["web", "db", "wire"]) as place:
        web, db, wire = place["web"], place["db"], place["wire"]
        spaces = {end.name: end.namespace for end in place.ends.values()}
        spaces["host"] = ""
        for space in spaces.values():
            for port in (80, 5432):
                Echo(space, port)
        for end in (web, db, wire):
            Echo(end.namespace, 8080, socket.AF_INET6)
        with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as file:
            file.write("1")
        load(os.path.join(folder, "1.nft"))  # web: 80 from all, ping; db: all from members of its group, which web is
        for name, argv in {
            "web answers the wire at 80": (spaces["wire"], web.v4, 80),
            "web answers the wire at 5432": (spaces["wire"], web.v4, 5432),
            "db answers web": (spaces["web"], db.v4, 5432),
            "db answers the wire": (spaces["wire"], db.v4, 5432),
            "web answers the host at 80": ("", web.v4, 80),
            "db answers the host": ("", db.v4, 5432),
            "the host answers web": (spaces["web"], "10.99.0.1", 5432),
            "the host answers db": (spaces["db"], "10.99.0.1", 5432),
            "the wire answers web": (spaces["web"], wire.v4, 80),
            "web answers the wire over IPv6": (spaces["wire"], web.v6, 8080),
            "db answers the wire over IPv6": (spaces["wire"], db.v6, 8080),
            "the wire answers db over IPv6": (spaces["db"], wire.v6, 8080),
        }.items():
            heard[name] = connects(*argv)
        heard["web answers a ping"] = pings(spaces["wire"], web.v4)
        heard["db answers a ping"] = pings(spaces["wire"], db.v4)
        allowed = connect(spaces["web"], db.v4, 5432)
        other = connect(spaces["wire"], web.v4, 80)
        heard["a connection of members works"] = lives(allowed)
        load(os.path.join(folder, "1.nft"))
        heard["a connection lives while the same filters are loaded"] = lives(allowed) and lives(other)
        load(os.path.join(folder, "2.nft"))  # another member comes
        heard["a connection lives when another member comes"] = lives(allowed)
        load(os.path.join(folder, "3.nft"))  # web is no member any more; db may not send by itself
        heard["a connection lives when its member has left"] = lives(allowed)
        heard["a connection lives when others are cut"] = lives(other)
        heard["db answers web, a former member"] = connects(spaces["web"], db.v4, 5432)
        heard["db sends by itself to the host"] = connects(spaces["db"], "10.99.0.1", 80)
        heard["db sends by itself to the wire"] = connects(spaces["db"], wire.v4, 80)
    with Bridged(["web", "db", "wire"]) as place:
        heard.update({"routed: " + name: found for name, found in routed(place, folder).items()})
    return heard


def routed(place, folder):
    """A world behind the machine, as behind a libvirt network with NAT."""
    load(os.path.join(folder, "1.nft"))
    web, db = place["web"], place["db"]
    subprocess.run(["ip", "netns", "add", "bfworld"], check=True)
    try:
        for line in (
            "ip link add bfworld0 type veth peer name eth0 netns bfworld",
            "ip address add 192.0.2.1/24 dev bfworld0",
            "ip link set bfworld0 up",
            "ip -n bfworld address add 192.0.2.9/24 dev eth0",
            "ip -n bfworld link set eth0 up",
            "ip -n bfworld route add 10.99.0.0/24 via 192.0.2.1",
        ):
            subprocess.run(line.split(), check=True)
        nat = "table ip bfnat { chain p { type nat hook postrouting priority 100; ip saddr 10.99.0.0/24 oifname bfworld0 masquerade; }; }"
        subprocess.run(["nft", "-f", "-"], input=nat, text=True, check=True)
        Echo("bfworld", 80)
        Echo(web.namespace, 80)
        Echo(db.namespace, 80)
        return {
            "the world answers web": lives(connect(web.namespace, "192.0.2.9", 80)),
            "web answers the world": connects("bfworld", web.v4, 80),
            "db answers the world": connects("bfworld", db.v4, 80),
        }
    finally:
        subprocess.run(["nft", "delete", "table", "ip", "bfnat"], check=False)
        subprocess.run(["ip", "netns", "delete", "bfworld"], check=False)


if __name__ == "__main__":
    work = {"sources": sources, "all sources": lambda path: sources(path, full=True), "rules": rules}[sys.argv[1]]
    print(json.dumps(work(sys.argv[2])))
