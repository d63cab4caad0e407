# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rows that networks, ports and security groups need, and the transactions of a real ovn-nbctl on a real ovsdb-server with OVN's schema."""

from __future__ import annotations

import subprocess
import time
import typing as t
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import NorthboundError
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.network import Network
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.subnet import Subnet
from ansible_collections.bootflow.compute.plugins.module_utils.core.ovn import acls
from ansible_collections.bootflow.compute.plugins.module_utils.core.ovn.difference import Difference, difference
from ansible_collections.bootflow.compute.plugins.module_utils.core.ovn.render import (
    Ledger,
    LogicalPort,
    dhcp_options,
    render,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.ovn.rows import (
    PORT,
    TABLES,
    FoundRow,
    listing,
    read_rows,
)

LEDGER = "11111111-0000-4000-8000-000000000001"
WEB, CLIENTS = "aaaaaaaa-0000-4000-8000-00000000000a", "aaaaaaaa-0000-4000-8000-00000000000b"
SUBNET = Subnet("s1", "lab-1", "10.9.0.0/24", "10.9.0.1", True, ("10.9.0.2", "9.9.9.9", "fd00::53"))
NETWORK = Network("n1", "lab", (SUBNET, Subnet("s2", "lab-2", "fd00:9::/64")), "ovn", "br-int", 1442)


def rule(key: str, **fields: t.Any) -> t.Any:
    empty = dict.fromkeys(("protocol", "port_range_min", "port_range_max", "remote_ip_prefix", "remote_group_id"))
    return SimpleNamespace(**{"id": key, "direction": "ingress", "ethertype": "IPv4", **empty, **fields})


def port(number: int, **fields: t.Any) -> LogicalPort:
    addresses = (("s1", "10.9.0.%d" % number), ("s2", "fd00:9::%d" % number))
    return LogicalPort(
        "bbbbbbbb-0000-4000-8000-%012d" % number, "n1", "fa:16:3e:00:00:%02d" % number, addresses, "guest", **fields
    )


def a_ledger(**fields: t.Any) -> Ledger:
    rules = [rule("r1", protocol="tcp", port_range_min=80, port_range_max=80, remote_group_id=CLIENTS)]
    values: dict[str, t.Any] = {
        "networks": (NETWORK,),
        "ports": (port(10, groups=(WEB,)), port(11, groups=(CLIENTS,)), port(12, port_security=False)),
        "groups": {WEB: rules, CLIENTS: [rule("r2", direction="egress")]},
        "members": {CLIENTS: {4: ["10.9.0.11/32", "192.0.2.0/28"], 6: []}},
    }
    return Ledger(LEDGER, **{**values, **fields})


class Database:
    """A northbound database without northd: its rows."""

    def __init__(self, folder: Path):
        self.file, self.socket, self.control = folder / "nb.db", folder / "nb.sock", folder / "ctl"
        subprocess.run(["ovsdb-tool", "create", str(self.file), "/usr/share/ovn/ovn-nb.ovsschema"], check=True)

    def start(self) -> subprocess.Popen[bytes]:
        """Start its server."""
        words = ["--no-chdir", "-vconsole:off", "-vsyslog:off", "--remote=punix:%s" % self.socket]
        return subprocess.Popen(["ovsdb-server", *words, "--unixctl=%s" % self.control, str(self.file)])

    def wait(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + 20
        while not self.socket.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        self.call("init")

    def call(self, *words: str) -> str:
        argv = ["ovn-nbctl", "--no-syslog", "--db=unix:%s" % self.socket, "--timeout=20", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rows(self) -> list[FoundRow]:
        words = [word for table in TABLES.values() for word in ("--", *listing(table))][1:]
        return read_rows(self.call("--format=json", "--data=json", *words))

    def follow(self, ledger: Ledger, most: int = 1000) -> Difference:
        step = difference(render(ledger).rows, self.rows(), ledger.id, most)
        if step.commands:
            self.call("--", *step.arguments)
        return step

    def get(self, table: str, name: str, column: str) -> str:
        return self.call("--bare", "get", table, name, column).strip()


@pytest.fixture
def database(tmp_path: Path) -> t.Iterator[Database]:
    made = Database(tmp_path)
    server = made.start()
    try:
        made.wait()
        yield made
    finally:
        server.kill()
        server.wait()


def test_the_rows_are_as_they_are_wanted_after_one_transaction(database: Database) -> None:
    first = database.follow(a_ledger())
    assert first.is_last and first.created[PORT] == 3
    again = database.follow(a_ledger())
    assert again.commands == [], "nothing differs"
    one = port(10).id
    assert database.get(PORT, one, "addresses") == '["fa:16:3e:00:00:10 10.9.0.10 fd00:9::10"]'
    assert database.get(PORT, one, "port_security") == '["fa:16:3e:00:00:10 10.9.0.10 fd00:9::10"]'
    assert database.get(PORT, port(12).id, "addresses") == '["fa:16:3e:00:00:12 10.9.0.12 fd00:9::12", unknown]'
    assert database.get(PORT, port(12).id, "port_security") == "[]"
    assert database.call("lsp-get-dhcpv4-options", one).split()[-1] == "(10.9.0.0/24)"
    assert '"mtu"="1442"' in database.call("list", "DHCP_Options").replace("mtu=", '"mtu"=')
    acl = database.call("--type=port-group", "acl-list", acls.group_name(WEB))
    assert "tcp.dst == 80" in acl and "ip4.src == $%s" % acls.set_name(CLIENTS, 4) in acl
    assert len(database.call("--type=port-group", "acl-list", acls.drop_group_name(LEDGER)).splitlines()) == 5


def test_changes_go_one_by_one(database: Database) -> None:
    database.follow(a_ledger())
    before = {row.uuid for row in database.rows()}
    more = replace(
        a_ledger(),
        ports=(port(10, groups=(WEB, CLIENTS)), port(12, port_security=False), port(13, groups=(CLIENTS,))),
        members={CLIENTS: {4: ["10.9.0.13/32", "192.0.2.0/28"], 6: ["fd00:9::13"]}},
        groups={WEB: [rule("r3", protocol="icmp")], CLIENTS: [rule("r2", direction="egress")]},
        networks=(replace(NETWORK, mtu=1400),),
    )
    step = database.follow(more)
    assert (step.created, step.removed) == ({PORT: 1, "ACL": 1}, {PORT: 1, "ACL": 1})
    assert database.follow(more).commands == []
    after = {row.uuid for row in database.rows()}
    assert len(before - after) == len(after - before) == 2, "the other rows are the same"
    assert "192.0.2.0/28" in database.get("Address_Set", acls.set_name(CLIENTS, 4), "addresses")


def test_rows_of_others_stay(database: Database) -> None:
    database.call(
        "ls-add", "theirs", "--", "lsp-add", "theirs", "their-port", "--", "pg-add", "their_group", "their-port"
    )
    database.call("create", "DHCP_Options", "cidr=10.9.0.0/24")
    other = replace(
        a_ledger(), id="22222222-0000-4000-8000-000000000002", ports=(), groups={}, members={}, networks=(NETWORK,)
    )
    database.follow(a_ledger())
    database.call("lsp-add", "bootflow-n1", "router-port")
    database.follow(a_ledger(ports=(), groups={}, members={}, networks=()))
    names = {row.name for row in database.rows()}
    assert {"theirs", "their-port", "their_group"} <= names and not any(name.startswith("bootflow") for name in names)
    assert "10.9.0.0/24" in database.call("list", "DHCP_Options")
    database.follow(a_ledger())
    assert database.follow(replace(other, networks=())).commands == []


@pytest.mark.parametrize(
    "damage",
    [
        ("lsp-del", port(10).id),
        ("clear", "Logical_Switch_Port", port(10).id, "external_ids"),
        ("lsp-set-addresses", port(10).id, "dynamic"),
        ("lsp-set-dhcpv4-options", port(10).id),
        ("pg-del", acls.group_name(WEB)),
        ("acl-del", acls.drop_group_name(LEDGER)),
        ("clear", "Address_Set", acls.set_name(CLIENTS, 4), "addresses"),
        ("ls-del", "bootflow-n1"),
        ("dhcp-options-del",),
        ("clear", "Port_Group", acls.drop_group_name(LEDGER), "ports"),
    ],
    ids=lambda damage: damage[0],
)
def test_damage_is_repaired(database: Database, damage: tuple[str, ...]) -> None:
    database.follow(a_ledger())
    if damage == ("dhcp-options-del",):
        (row,) = (row for row in database.rows() if row.table == "DHCP_Options")
        damage = (*damage, row.uuid)
    database.call("--type=port-group", *damage) if damage[0] == "acl-del" else database.call(*damage)
    assert database.follow(a_ledger()).commands
    assert database.follow(a_ledger()).commands == []


def test_large_ledgers_take_several_transactions(database: Database) -> None:
    ledger = a_ledger(ports=tuple(port(n, groups=(WEB,)) for n in range(10, 20)), members={})
    ledger = replace(ledger, groups={WEB: []})
    steps = [database.follow(ledger, most=4) for _step in range(3)]
    assert [(step.created[PORT], step.is_last) for step in steps] == [(4, False), (4, False), (2, True)]
    assert database.follow(ledger, most=4).commands == []


def test_two_runs_that_write_at_once_take_nothing_back(database: Database) -> None:
    """Each reads the database before the ledger: what the other one added in between is not left over."""
    database.follow(a_ledger())
    found = database.rows()
    more = a_ledger(ports=(*a_ledger().ports, port(14, groups=(WEB,))))
    database.follow(more)
    other = a_ledger(ports=(*a_ledger().ports, port(15, groups=(WEB,))))
    database.call("--", *difference(render(other).rows, found, LEDGER).arguments)
    both = a_ledger(ports=(*a_ledger().ports, port(14, groups=(WEB,)), port(15, groups=(WEB,))))
    assert database.follow(both).commands == []


def test_a_row_that_is_there_twice_goes_once(database: Database) -> None:
    database.follow(a_ledger())
    ids = 'external_ids={"bootflow:ledger"="%s","bootflow:id"="s1"}' % LEDGER
    database.call("create", "DHCP_Options", "cidr=10.9.0.0/24", ids)
    assert database.follow(a_ledger()).removed == {"DHCP_Options": 1}
    assert database.follow(a_ledger()).commands == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "ip4"),
        ({"direction": "egress", "ethertype": "IPv6"}, "ip6"),
        ({"protocol": "tcp"}, "ip4 && tcp"),
        ({"protocol": "udp", "port_range_min": 1, "port_range_max": 9}, "ip4 && udp && udp.dst >= 1 && udp.dst <= 9"),
        ({"protocol": "icmp", "port_range_min": 8, "port_range_max": 0}, "ip4 && icmp4 && icmp4.type == 8 && icmp4.code == 0"),
        ({"protocol": "icmp", "ethertype": "IPv6"}, "ip6 && icmp6"),
        ({"protocol": "47"}, "ip4 && ip.proto == 47"),
        ({"protocol": "6", "port_range_min": 22, "port_range_max": 22}, "ip4 && tcp && tcp.dst == 22"),
        ({"remote_ip_prefix": "10.1.2.3/8"}, "ip4 && ip4.src == 10.0.0.0/8"),
        ({"remote_ip_prefix": "0.0.0.0/0"}, "ip4"),
        ({"direction": "egress", "remote_group_id": CLIENTS}, "ip4 && ip4.dst == $" + acls.set_name(CLIENTS, 4)),
    ],
)  # fmt: skip
def test_rules(fields: dict[str, t.Any], words: str) -> None:
    asked = rule("r", **fields)
    end = "inport" if asked.direction == "egress" else "outport"
    assert acls.match(WEB, asked) == "%s == @%s && %s" % (end, acls.group_name(WEB), words)


def test_ports_of_protocols_that_ovn_does_not_know_stay_closed() -> None:
    lite = rule("lite", protocol="136", port_range_min=1, port_range_max=2)
    rendered = render(a_ledger(groups={WEB: [lite], CLIENTS: []}))
    assert rendered.unsaid == ["lite"] and "lite" not in {row.key for row in rendered.rows}


def test_dhcp_options_are_what_guests_need() -> None:
    options = dhcp_options(replace(SUBNET, host_routes=({"destination": "10.0.0.0/8", "nexthop": "10.9.0.9"},)), 1442)
    assert options["dns_server"] == "{10.9.0.2, 9.9.9.9}" and options["mtu"] == "1442"
    assert options["classless_static_route"] == "{10.0.0.0/8,10.9.0.9, 0.0.0.0/0,10.9.0.1}"
    assert options["server_mac"] == dhcp_options(SUBNET, None)["server_mac"] and "mtu" not in dhcp_options(SUBNET, None)


def test_allowed_address_pairs_may_be_sent() -> None:
    pairs = ({"ip_address": "10.9.0.100"}, {"ip_address": "192.0.2.0/24", "mac_address": "FA:16:3E:99:00:01"})
    (row,) = (row for row in render(a_ledger(ports=(port(10, pairs=pairs),))).rows if row.table == PORT)
    assert row.values["port_security"] == (
        "fa:16:3e:00:00:10 10.9.0.10 fd00:9::10 10.9.0.100",
        "fa:16:3e:99:00:01 192.0.2.0/24",
    )
    assert row.values["addresses"] == ("fa:16:3e:00:00:10 10.9.0.10 fd00:9::10", "fa:16:3e:99:00:01")


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"headings": ["_uuid"], "data": [[["uuid", "x"]]]}'])
def test_what_is_no_listing_is_refused(text: str) -> None:
    with pytest.raises(NorthboundError):
        read_rows(text)
