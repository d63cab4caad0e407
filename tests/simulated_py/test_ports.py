# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports that exist before their instances and after them, by whole playbooks."""

from __future__ import annotations

import typing as t

from simulated_site import Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors

MAC = "52:54:00:12:34:56"
PORT = {
    "name": "front",
    "network": "lan",
    "mac_address": MAC,
    "fixed_ips": [{"ip_address": "10.9.0.77"}],
    "tags": ["a"],
}


def port(site: Site, name: str = "front") -> dict[str, t.Any]:
    """The row of a port, with its addresses and the name of its instance."""
    query = "SELECT p.*, i.display_name FROM ports p LEFT JOIN instances i ON i.uuid = p.instance_uuid WHERE p.name = ?"
    (row,) = site.query(query, name)
    found = site.query("SELECT ip_address FROM ip_allocations WHERE port_id = ? ORDER BY id", row["id"])
    return {**dict(row), "addresses": [r["ip_address"] for r in found]}


def bound(site: Site, name: str = "front") -> tuple[str | None, str | None, str, list[str]]:
    row = port(site, name)
    return row["display_name"], row["host"], row["mac_address"], row["addresses"]


def create(site: Site, *ports: dict[str, t.Any], expect: int = 0, options: tuple[str, ...] = ()) -> str:
    return site.play("port_create", *options, ports=list(ports), expect=expect)


def web(*ports: str, name: str = "web", **fields: t.Any) -> dict[str, t.Any]:
    return entry(name, networks=[{"port": p} for p in ports], **fields)


def test_a_port_outlives_its_instances(site: Site) -> None:
    output = create(site, PORT, options=("--check", "--diff"))
    assert "Would create:" in output and "front on lan: 10.9.0.77" in output
    assert site.query("SELECT id FROM ports") == []
    output = create(site, PORT)
    assert MAC in output and "10.9.0.77" in output
    output = create(site, PORT)
    assert "Nothing to do: the ports exist as requested." in output and "changed=0" in output
    site.boots(web("front"))
    ((_state, host),) = site.places().values()
    assert bound(site) == ("web", host, MAC, ["10.9.0.77"])
    assert site.hosts[str(host)].reservations == {MAC: "10.9.0.77"}
    (uuid,) = site.hosts[str(host)].domains
    assert MAC in site.hosts[str(host)].domains[uuid]["xml"]
    assert "preserve_on_delete: true" in site.play("show", names=["web"])
    assert "web" in site.play("port_list") and "10.9.0.77" in site.play("port_show", port_names=["front"])
    site.boots(web("front"))  # there it has its port
    assert "PortInUse" in site.boots(web("front", name="other"), expect=2)
    assert "PortInUse" in site.play("port_delete", port_names=["front"], expect=2)
    site.play("delete", names=["web"])
    assert bound(site) == (None, None, MAC, ["10.9.0.77"])
    site.play("audit")
    site.boots(web(port(site)["id"]))
    assert bound(site)[0] == "web"
    site.play("delete", names=["web"])
    output = site.play("port_delete", "--check", "--diff", port_names=["front"])
    assert "Would delete:" in output and bound(site)[2] == MAC
    assert "Deleted:" in site.play("port_delete", port_names=["front"])
    assert site.query("SELECT id FROM ip_allocations") == []
    assert "PortNotFound" in site.play("port_delete", port_names=["front"], expect=2)
    site.play("port_delete", port_names=["front"], missing_ok=True)
    assert "PortNotFound" in site.play("port_show", port_names=["front"], expect=2)


def test_a_boot_that_fails_and_one_that_goes_to_another_host(site: Site) -> None:
    create(site, PORT)
    for host in site.hosts.values():
        host.items_fail("domain", errors.LibvirtError(reason="no"), times=1)
    site.boots(web("front"), expect=2)
    assert bound(site) == (None, None, MAC, ["10.9.0.77"])
    for host in site.hosts.values():
        host.heal()
    site.hosts["kvm1"].items_fail("domain", errors.LibvirtError(reason="no"), times=1)
    site.boots(web("front"))
    assert bound(site)[0] == "web" and bound(site)[2:] == (MAC, ["10.9.0.77"])
    site.check_ledger()


def test_every_move_takes_the_port_along(site: Site) -> None:
    site.variables["bootflow_image_stores"] = [{"name": "nfs", "path": "/net/images", "kind": "shared"}]
    create(site, PORT)
    site.boots(web("front"))

    def there(host: str | None = "") -> str:
        name, now, mac, addresses = bound(site)
        assert (name, mac, addresses) == ("web", MAC, ["10.9.0.77"])
        if host == "":
            host = str(site.places()["web"][1])
        assert now == host
        return str(now)

    first = there()
    site.play("migrate", names=["web"])
    site.play("revert_resize", names=["web"])
    assert there() == first
    site.play("migrate", names=["web"])
    site.play("confirm_resize", names=["web"])
    assert there() != first
    site.play("shelve", names=["web"])
    assert there(None) == "None"
    site.play("unshelve", names=["web"])
    there()
    site.play("rebuild", names=["web"])
    second = there()
    site.play("delete", names=["web"], reclaim_instance_interval=600)
    assert there(second)
    site.play("restore", names=["web"])
    assert there() == second
    site.hosts[second].is_silent()
    site.play("host", host=second, host_state="forced_down")
    site.play("evacuate", host=second)
    third = there()
    assert third != second
    site.hosts[second].heal()
    site.play("host", host=second, host_state="up")
    site.play("heartbeat")
    assert there() == third
    assert MAC in site.hosts[third].reservations and MAC not in site.hosts[second].reservations
    site.check_ledger()


def test_attached_and_detached(site: Site) -> None:
    create(site, PORT, {"name": "back", "network": "lan"})
    site.boots(entry("web", networks="none"), entry("db", networks="none"))
    wish = [{"instance": "web", "port": "front"}]
    assert "Would attach" in site.play("attach_interface", "--check", interfaces=wish)
    site.play("attach_interface", interfaces=wish)
    assert bound(site)[0] == "web"
    assert "changed=0" in site.play("attach_interface", interfaces=wish)
    assert "PortInUse" in site.play("attach_interface", interfaces=[{"instance": "db", "port": "front"}], expect=2)
    assert "PortNotFound" in site.play("attach_interface", interfaces=[{"instance": "db", "port": "x"}], expect=2)
    update = [{"port": "front", "fixed_ips": [{"ip_address": "10.9.0.78"}]}]
    assert "PortInUse" in site.play("port_update", ports=update, expect=2)
    site.play("detach_interface", interfaces=wish)
    assert bound(site) == (None, None, MAC, ["10.9.0.77"])
    output = site.play("port_update", "--check", "--diff", ports=update)
    assert "front fixed_ips: 10.9.0.78" in output and bound(site)[3] == ["10.9.0.77"]
    site.play("port_update", ports=update)
    assert "Nothing to do: the ports are as requested." in site.play("port_update", ports=update)
    site.play("attach_interface", interfaces=[{"instance": "db", "port_id": port(site)["id"]}])
    assert bound(site)[0] == "db" and bound(site)[3] == ["10.9.0.78"]
    site.check_ledger()


def test_bad_ports(site: Site) -> None:
    for bad, code in (
        ({"name": "a", "network": "nowhere"}, "NetworkNotFound"),
        ({"name": "a", "mac_address": "<x/>"}, "InvalidInput"),
        ({"name": "a", "fixed_ips": [{"ip_address": "10.9.0.1"}]}, "IpAddressInUse"),
        ({"name": "a", "fixed_ips": [{"ip_address": "10.8.0.9"}]}, "InvalidIpForNetwork"),
    ):
        assert code in create(site, bad, expect=2)
    create(site, PORT)
    for bad, code in (
        ({**PORT, "mac_address": "52:54:00:00:00:01"}, "PortExists"),
        ({**PORT, "name": "b", "fixed_ips": None}, "MacAddressInUse"),
        ({**PORT, "name": "b", "mac_address": None}, "FixedIpAlreadyInUse"),
    ):
        assert code in create(site, bad, expect=2)
    for networks, code in (
        ([{"port": "nothing"}], "PortNotFound"),
        ([{"port": "front", "fixed_ip": "10.9.0.9"}], "InvalidInput"),
        ([{"port": "front"}, {"port": "front"}], "PortInUse"),
    ):
        assert code in site.boots(entry("web", networks=networks), expect=2)
    assert "MultiplePortsNotApplicable" in site.boots(web("front", count=2), expect=2)
    output = site.boots(entry("web", networks=[{"network": "lan", "fixed_ip": "10.9.0.77"}]), expect=2)
    assert "FixedIpAlreadyInUse" in output and "Port front has it." in output
