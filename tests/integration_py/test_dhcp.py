# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real guests that ask for their addresses: libvirt's server of each host gives them those of the ledger, and no others."""

from __future__ import annotations

import re
import typing as t

from flow import Flow, entry

SETTINGS = {
    "bootflow_wait_console": "BOOTFLOW-GUEST-READY",
    "bootflow_allow_forced_host": True,
    "bootflow_force_config_drive": False,
}
NETWORK: dict[str, t.Any] = {
    "name": "dhcp",
    "source": "bf-dhcp",
    "manage": True,
    "forward": "open",
    "mtu": 1400,
    "subnets": [
        {
            "cidr": "10.78.0.0/24",
            "enable_dhcp": True,
            "allocation_pools": [{"start": "10.78.0.10", "end": "10.78.0.12"}],
            "dns_nameservers": ["192.0.2.53"],
            "host_routes": [{"destination": "10.99.0.0/16", "nexthop": "10.78.0.9"}],
        }
    ],
}
LOOK = "#!/bin/sh\necho LOOK mtu=$(cat /sys/class/net/eth0/mtu); ip route | sed 's/^/LOOK /'; echo LOOK end\n"


def virsh(flow: Flow, host: str, *words: str) -> str:
    return str(flow.lab.host(host).run("virsh", "-c", "qemu:///system", *words).stdout)


def reservations(flow: Flow, host: str, *options: str) -> dict[str, tuple[str, str]]:
    """{address: (MAC, name)}"""
    xml = virsh(flow, host, "net-dumpxml", "bf-dhcp", *options)
    found = re.findall(r"<host mac='([^']*)'(?: name='([^']*)')? ip='([^']*)'/>", xml)
    return {address: (mac, name) for mac, name, address in found}


def ports(flow: Flow) -> dict[str, tuple[str, str, str, str]]:
    """{name: (host, UUID, MAC, address)}"""
    rows = flow.query(
        "SELECT i.display_name, i.host, i.uuid, p.mac_address, a.ip_address FROM instances i"
        " JOIN ports p ON p.instance_uuid = i.uuid JOIN ip_allocations a ON a.port_id = p.id WHERE i.deleted = ''"
    )
    return {r["display_name"]: (r["host"], r["uuid"], r["mac_address"], r["ip_address"]) for r in rows}


def test_guests_get_the_addresses_of_the_ledger(flow: Flow) -> None:
    """What is told to use DHCP finds a server, on each host; a reservation goes with its guest, and so does the lease."""
    flow.variables["bootflow_networks"] = [NETWORK]
    on = {
        host: {"availability_zone": "nova:" + host, "networks": [{"network": "dhcp"}]}
        for host in ("compute1", "compute2")
    }
    flow.boot(
        entry("one", config_drive=True, user_data=LOOK, **on["compute1"]),
        entry("two", **on["compute1"]),
        entry("three", config_drive=True, **on["compute2"]),
        **SETTINGS,
    )
    there = ports(flow)
    assert {host for host, *_rest in there.values()} == {"compute1", "compute2"}
    for name, (host, uuid, mac, address) in there.items():
        assert reservations(flow, host)[address] == reservations(flow, host, "--inactive")[address] == (mac, name)
        told = flow.console(host, uuid)
        assert "BOOTFLOW-GUEST-DHCP address=%s mtu=1400 " % address in told, told
        assert "mac=%s address=%s/24" % (mac, address) in told and "dns=192.0.2.53" in told
    assert set(reservations(flow, "compute2")) == {there["three"][3]}, "a host serves its own guests"
    look = flow.console(there["one"][0], there["one"][1])
    assert "LOOK mtu=1400" in look
    assert "LOOK 10.99.0.0/16 via 10.78.0.9" in look and "LOOK default via 10.78.0.1" in look

    # The guest without a config drive asks, too. All three addresses are taken. The next guest of one of them has another MAC address, and gets it at once.
    flow.delete("one")
    assert there["one"][3] not in {**reservations(flow, "compute1"), **reservations(flow, "compute1", "--inactive")}
    leases = virsh(flow, "compute1", "net-dhcp-leases", "bf-dhcp")
    assert there["one"][3] not in leases and there["two"][3] in leases
    flow.boot(entry("heir", **on["compute1"]), **SETTINGS)
    host, uuid, mac, address = ports(flow)["heir"]
    assert address == there["one"][3] and mac != there["one"][2]
    assert "mac=%s address=%s/24" % (mac, address) in flow.console(host, uuid)

    # A build that fails leaves none.
    flow.lab.host("compute1").fail("spawn")
    flow.delete("two")
    flow.boot(entry("failed", **on["compute1"]), expect=2, **SETTINGS)
    flow.lab.host("compute1").restore()
    assert set(reservations(flow, "compute1")) == {address}

    # Guests have their reservations after somebody removed the network, or a reservation.
    _host, uuid, mac, address = there["three"]
    virsh(flow, "compute2", "net-destroy", "bf-dhcp")
    virsh(flow, "compute2", "net-undefine", "bf-dhcp")
    flow.boot(entry("four", **on["compute2"]), bootflow_allow_forced_host=True)
    for options in ((), ("--inactive",)):
        assert reservations(flow, "compute2", *options)[address] == (mac, "three")
    flow.delete("four")
    lost = "<host mac='%s' ip='%s'/>" % (mac, address)
    virsh(flow, "compute2", "net-update", "bf-dhcp", "delete", "ip-dhcp-host", lost, "--live", "--config")
    added = "<host mac='52:54:00:00:00:99' ip='10.78.0.99'/>"
    virsh(flow, "compute2", "net-update", "bf-dhcp", "add", "ip-dhcp-host", added, "--live", "--config")
    for options in (("--check",), ()):
        assert set(reservations(flow, "compute2")) == {"10.78.0.99"}
        done = flow.run("audit", *options)
        assert done.returncode == 0, done.output
        assert re.search(r"compute2 +missing_reservation +%s .* %s +reserve" % (uuid, address), done.output), (
            done.output
        )
        assert re.search(r"compute2 +orphan_reservation .* 10\.78\.0\.99 +report", done.output), done.output
    for options in ((), ("--inactive",)):
        assert reservations(flow, "compute2", *options)[address] == (mac, "three")
    done = flow.run("audit")
    assert "missing_reservation" not in done.output
    command = re.search(r"virsh (net-update bf-dhcp delete ip-dhcp-host) \"(.*)\" --live --config", done.output)
    assert command, done.output
    virsh(flow, "compute2", *command[1].split(), command[2], "--live", "--config")
    assert set(reservations(flow, "compute2")) == {address}

    # The network keeps its definition: a catalogue that promises more is refused on the host, in words.
    more = {**NETWORK, "subnets": [{**NETWORK["subnets"][0], "dns_nameservers": ["192.0.2.54"]}]}
    flow.boot(entry("more", **on["compute2"]), expect=2, bootflow_networks=[more], **SETTINGS)
    faults = [row["details"] for row in flow.query("SELECT details FROM instance_faults")]
    assert [m for m in faults if "does not serve DHCP as requested" in m and "192.0.2.54" in m], faults
    flow.delete(*flow.instances())
    for host in ("compute1", "compute2"):
        assert reservations(flow, host, "--inactive") == {}
    assert flow.residue() == {}
