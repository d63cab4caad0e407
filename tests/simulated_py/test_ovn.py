# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The northbound database of OVN follows the ledger, by whole playbooks: real ovn-nbctl, and a real database on a socket."""

from __future__ import annotations

import subprocess
import typing as t
from pathlib import Path

import pytest
from simulated_site import HOSTS, Site, entry

LAB = {"name": "lab", "type": "ovn", "subnets": [{"cidr": "10.81.0.0/24", "enable_dhcp": True}]}
RULE = {"security_group": "web", "direction": "ingress", "protocol": "tcp", "port_range_min": 80, "port_range_max": 80}


class Northbound:
    """A northbound database."""

    def __init__(self, folder: Path):
        self.folder, self.socket = folder, folder / "nb.sock"
        self.server: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it with an empty database."""
        file = self.folder / "nb.db"
        file.unlink(missing_ok=True)
        subprocess.run(["ovsdb-tool", "create", str(file), "/usr/share/ovn/ovn-nb.ovsschema"], check=True)
        words = ["--no-chdir", "-vconsole:off", "-vsyslog:off", "--remote=punix:%s" % self.socket]
        words += ["--unixctl=%s" % (self.folder / "ctl"), str(file)]
        self.server = subprocess.Popen(["ovsdb-server", *words])
        Site.wait_until(self.socket.exists, 20)
        self.call("init")

    def stop(self) -> None:
        assert self.server is not None
        self.server.kill()
        self.server.wait()
        self.socket.unlink(missing_ok=True)

    def call(self, *words: str) -> str:
        argv = ["ovn-nbctl", "--db=unix:%s" % self.socket, "--timeout=20", *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def addresses(self) -> list[str]:
        listed = self.call("--bare", "--columns=addresses", "list", "Logical_Switch_Port")
        return sorted(line.split()[1] for line in listed.splitlines() if line)


@pytest.fixture(name="northbound")
def _northbound(tmp_path: Path) -> t.Iterator[Northbound]:
    database = Northbound(tmp_path)
    database.start()
    yield database
    database.stop()


@pytest.fixture(name="site")
def _with_ovn(site: Site, northbound: Northbound) -> Site:
    """kvm3 has no connection."""
    site.variables["bootflow_networks"] = [LAB]
    site.variables["bootflow_ovn_northbound"] = "unix:%s" % northbound.socket
    site.variables["bootflow_ovn_timeout"] = 5
    for name in HOSTS:
        site.hosts[name].has_facts(ovn={"br-int": name != "kvm3"})
    return site


def on_lab(name: str = "web", **fields: t.Any) -> dict[str, t.Any]:
    return entry(name, networks=["lab"], **fields)


def test_rows_come_and_go_with_ports_and_groups(site: Site, northbound: Northbound) -> None:
    plan = site.boots(on_lab(count=2), options=("--check",))
    assert northbound.addresses() == [] and "no connection to the southbound database" in " ".join(plan.split())
    site.boots(on_lab(count=2))
    assert northbound.addresses() == ["10.81.0.2", "10.81.0.3"]
    assert {host for _state, host in site.places().values()} <= {"kvm1", "kvm2"}
    site.play("port_create", ports=[{"name": "p", "network": "lab"}])
    assert northbound.addresses() == ["10.81.0.2", "10.81.0.3", "10.81.0.4"]

    # Hosts filter nothing here, and a group takes effect nevertheless.
    site.play("security_group_create", security_groups=[{"name": "web"}])
    site.play("add_security_group", names=["web-1"], security_group_names=["web"])
    site.play("security_group_rule_create", security_group_rules=[RULE])
    assert "tcp.dst == 80" in northbound.call("list", "ACL")
    site.boots(on_lab("app", security_groups=["web"]))
    site.play("remove_security_group", names=["web-1"], security_group_names=["web"])
    site.play("delete", names=["web-1", "web-2", "app"])
    site.play("port_delete", port_names=["p"])
    for table in ("Logical_Switch", "Logical_Switch_Port", "DHCP_Options", "ACL", "Port_Group", "Address_Set"):
        assert northbound.call("list", table) == "", table
    assert site.residue() == {}


def test_the_database_is_away_or_lost(site: Site, northbound: Northbound) -> None:
    site.boots(on_lab())
    northbound.stop()
    assert "NorthboundError" in site.boots(on_lab("late"), expect=2)
    assert set(site.places()) == {"web"}, "nothing was claimed"
    assert "changed=0" in site.boots(on_lab()), "a boot with nothing to do needs no database"
    assert "Ports of OVN networks are as they were" in site.play("port_create", ports=[{"name": "p", "network": "lab"}])
    assert "Ports of OVN networks were not audited" in site.play("audit")

    northbound.start()
    planned = site.play("audit", "--check")
    assert "The northbound database of OVN would be repaired" in planned and northbound.addresses() == []
    done = site.play("audit")
    assert "Logical_Switch_Port: 2 created" in done and northbound.addresses() == ["10.81.0.2", "10.81.0.3"]
    assert "northbound database" not in site.play("audit")


def test_a_network_of_ovn_needs_its_database(site: Site) -> None:
    del site.variables["bootflow_ovn_northbound"]
    refused = site.boots(on_lab(), expect=2)
    assert "bootflow_ovn_northbound is not set" in refused and site.places() == {}
