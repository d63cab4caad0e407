# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Domains of other software are adopted, operated and released: what the ledger has of them, and what nothing here touches."""

from __future__ import annotations

import json
import typing as t

import pytest
from printed import changed, findings
from simulated_site import Site, entry

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors

WEB, DB, LOST = ("a0000000-0000-4000-8000-00000000000%d" % number for number in (1, 2, 3))
MAC = "52:54:00:aa:bb:0%d"
OWNER = "urn:bootflow:compute:owner:1"


def xml(name: str, uuid: str, devices: str = "", more: str = "", memory: int = 3000) -> str:
    return (
        "<domain type='kvm'><name>%s</name><uuid>%s</uuid><memory unit='MiB'>%d</memory><vcpu>2</vcpu>%s"
        "<os><type arch='x86_64' machine='pc-q35-9.0'>hvm</type></os><devices>"
        "<disk type='file' device='disk'><source file='/images/%s.qcow2'/><target dev='vda' bus='virtio'/></disk>"
        "%s</devices></domain>" % (name, uuid, memory, more, name, devices)
    )


def nic(number: int, source: str = "network='bf-lan'") -> str:
    kind = source.partition("=")[0]
    return "<interface type='%s'><mac address='%s'/><source %s/></interface>" % (kind, MAC % number, source)


def gets(site: Site, host: str, uuid: str, name: str, text: str, power_state: int = 1, **libvirt: t.Any) -> None:
    """Somebody defines a domain by other means."""
    site.hosts[host].gets(uuid, text, name)
    with site.hosts[host].state() as state:
        state["model"]["domains"][uuid].update(power_state=power_state, libvirt=libvirt)


def claims(site: Site) -> dict[str, tuple[int, int, int]]:
    rows = site.query(
        "SELECT i.display_name AS name, c.memory_mb, c.disk_gb, c.vcpus FROM claims c JOIN instances i ON i.uuid = c.instance_uuid"
    )
    return {r["name"]: (r["memory_mb"], r["disk_gb"], r["vcpus"]) for r in rows}


def addresses(site: Site) -> dict[str, list[tuple[str, str | None]]]:
    rows = site.query(
        "SELECT i.display_name AS name, p.mac_address AS mac, a.ip_address AS address FROM ports p JOIN instances i ON i.uuid = p.instance_uuid"
        " LEFT JOIN ip_allocations a ON a.port_id = p.id ORDER BY p.position"
    )
    found: dict[str, list[tuple[str, str | None]]] = {}
    for row in rows:
        found.setdefault(row["name"], []).append((row["mac"], row["address"]))
    return found


@pytest.fixture
def reported(site: Site) -> Site:
    """Hosts that reported, and one guest of ours."""
    site.boots(entry("ours"))
    return site


def test_domains_become_instances_and_leave_again(reported: Site) -> None:
    site = reported
    gets(site, "kvm1", WEB, "web", xml("web", WEB, nic(1)))
    gets(site, "kvm2", DB, "db", xml("db", DB), power_state=4)
    site.hosts["kvm1"].has_facts(arp={MAC % 1: ["10.9.0.77", "192.0.2.9"]})
    before = site.dump(), {name: host.domains for name, host in site.hosts.items()}
    plan = site.play("adopt", "--check", "--diff")
    assert "Plan (nothing is touched):" in plan and "2 to adopt." in plan and "lan=10.9.0.77" in plan, plan
    assert "web: address 192.0.2.9 is in no subnet of lan: it is not reserved" in plan
    assert before == (site.dump(), {name: host.domains for name, host in site.hosts.items()})

    output = site.play("adopt", adopt_all=True, adopt_names={WEB: "www"})
    assert "2 adopted." in output and changed(output) > 0, output
    rows = site.instances()
    assert {n: (r["vm_state"], r["host"], r["uuid"]) for n, r in rows.items() if n != "ours"} == {
        "www": ("active", "kvm1", WEB),
        "db": ("stopped", "kvm2", DB),
    }
    assert claims(site)["www"] == claims(site)["db"] == (3000, 3, 2)
    assert addresses(site)["www"] == [(MAC % 1, "10.9.0.77")]
    for host, uuid in (("kvm1", WEB), ("kvm2", DB)):
        domain = site.hosts[host].domains[uuid]
        assert OWNER in domain["xml"] and 'adopted="yes"' in domain["xml"]
    site.check_ledger()
    listed = site.play("list")
    assert "www" in listed and "adopted" in listed
    again = site.play("adopt", adopt_all=True)
    assert changed(again) == 0 and "2 adopted before." in again, again

    # A host reserves the address of the interface, as of any guest in a managed network with DHCP; then nothing is left to do.
    assert [f["kind"] for f in findings(site.play("audit"))] == ["missing_reservation"]
    assert findings(site.play("audit")) == []

    kept = claims(site), addresses(site)
    planned = site.play("release", "--check", names=["www", "db"])
    assert "Would release (nothing is touched):" in planned
    assert (claims(site), addresses(site)) == kept
    released = site.play("release", names=["www", "db"])
    assert "its domain stays" in released
    assert set(site.instances()) == {"ours"} and set(claims(site)) == {"ours"}
    assert site.hosts["kvm1"].domains[WEB]["power_state"] == 1 and OWNER not in site.hosts["kvm1"].domains[WEB]["xml"]
    site.check_ledger()
    assert {f["kind"] for f in findings(site.play("audit"))} == {"foreign_domain"}

    site.play("adopt", adopt_all=True, adopt_names={WEB: "www"})
    assert (claims(site), addresses(site)) == kept
    site.check_ledger()


def test_operations_work_or_are_refused_in_words(reported: Site) -> None:
    site = reported
    gets(site, "kvm1", WEB, "web", xml("web", WEB))
    site.play("adopt", adopt_domains=["web"])
    definition = site.hosts["kvm1"].domains[WEB]["xml"]
    for playbook, state, power in (
        ("stop", "stopped", 4),
        ("start", "active", 1),
        ("pause", "paused", 3),
        ("unpause", "active", 1),
        ("suspend", "suspended", 4),
        ("resume", "active", 1),
        ("reboot", "active", 1),
    ):
        site.play(playbook, names=["web"])
        assert site.instances()["web"]["vm_state"] == state, playbook
        assert site.hosts["kvm1"].domains[WEB]["power_state"] == power, playbook
    refused = {
        "delete": {},
        "force_delete": {},
        "rebuild": {},
        "rescue": {},
        "shelve": {},
        "migrate": {},
        "live_migrate": {},
        "resize": {"resize_flavor": "large"},
        "set_admin_password": {"admin_password_dir": str(site.folder)},
        "attach_interface": {"interfaces": [{"instance": "web", "network": "lan"}]},
    }
    for playbook, variables in refused.items():
        selected = {} if "interfaces" in variables else {"names": ["web"]}
        output = site.play(playbook, expect=2, **selected, **variables)
        assert "it is adopted, other software made its disks and its definition" in output, (playbook, output)
        assert "bootflow.compute.release" in output, playbook
    hard = site.play("reboot", expect=2, names=["web"], reboot_type="HARD")
    assert "InstanceIsAdopted" in hard or "it is adopted" in hard, hard
    row = site.instances()["web"]
    assert (row["vm_state"], row["task_state"]) == ("active", None)
    assert site.hosts["kvm1"].domains[WEB]["xml"] == definition
    drained = site.play("drain", "--check", expect=2, drain_host="kvm1")
    assert "web stays" in drained and "it is adopted" in drained, drained
    site.check_ledger()


def test_a_named_domain_that_is_not_adoptable_ends_the_run(reported: Site) -> None:
    site = reported
    gets(site, "kvm1", WEB, "web", xml("web", WEB, nic(1, "bridge='br9'")))
    gets(site, "kvm2", DB, "db", xml("db", DB))
    before = site.dump()
    output = site.play("adopt", expect=2, adopt_domains=["web", "db"])
    assert "network_unknown" in output and "bootflow_adopt_other_interfaces: true" in output, output
    assert site.dump() == before and OWNER not in site.hosts["kvm2"].domains[DB]["xml"]
    output = site.play("adopt", expect=2, adopt_domains=["nothing"])
    assert "No host has a domain nothing" in output
    output = site.play("adopt", expect=2)
    assert "no domain is selected" in output and "bootflow_adopt_all: true" in output
    output = site.play("adopt", adopt_all=True)
    assert "1 adopted, 1 not adoptable." in output and "! web on kvm1: interface" in output, output
    site.play("adopt", adopt_domains=[WEB], adopt_other_interfaces=True)
    assert set(site.instances()) == {"ours", "web", "db"} and "web" not in addresses(site)
    output = site.play("release", expect=2, names=["ours"])
    assert "cannot be released: this collection made its disks" in output, output


def test_a_host_beyond_its_limits_takes_no_more(reported: Site) -> None:
    site = reported
    gets(site, "kvm1", WEB, "web", xml("web", WEB, memory=60000))
    output = site.play("adopt", adopt_all=True)
    assert "kvm1 is beyond its limits: memory by" in output and "it takes no new instances" in output, output
    assert claims(site)["web"] == (60000, 3, 2)
    refused = site.boots(entry("more"), expect=2, hosts=["kvm1"])
    assert "NoValidHost" in refused, refused
    site.play("audit")
    assert claims(site)["web"] == (60000, 3, 2)


def test_a_run_that_could_not_mark_is_completed_by_the_next(reported: Site) -> None:
    site = reported
    gets(site, "kvm1", WEB, "web", xml("web", WEB))
    site.hosts["kvm1"].items_fail("domain_adoption", errors.LibvirtError(reason="no"), times=2)
    output = site.play("adopt", expect=2, adopt_all=True)
    assert "its domain has no mark yet" in output, output
    assert site.instances()["web"]["vm_state"] == "active"
    site.hosts["kvm1"].heal()
    output = site.play("adopt", adopt_all=True)
    assert changed(output) > 0 and OWNER in site.hosts["kvm1"].domains[WEB]["xml"]
    site.hosts["kvm1"].items_fail("domain_adoption", errors.LibvirtError(reason="no"), times=1)
    output = site.play("release", expect=2, names=["web"])
    assert site.instances()["web"]["vm_state"] == "active", output
    site.hosts["kvm1"].heal()
    site.play("release", names=["web"])
    assert set(site.instances()) == {"ours"}


def test_hosts_that_do_not_answer_are_left_out_and_copies_are_refused(reported: Site) -> None:
    site = reported
    for host in ("kvm1", "kvm2"):
        gets(site, host, WEB, "web", xml("web", WEB))
    gets(site, "kvm3", DB, "db", xml("db", DB))
    gets(site, "kvm2", LOST, "transient", xml("transient", LOST), persistent=False)
    site.hosts["kvm3"].is_silent("domain_adoption")
    output = site.play("adopt", adopt_all=True)
    assert "kvm3 did not answer and is left out" in output
    assert output.count("(uuid_on_two_hosts)") == 2 and "(transient)" in output, output
    assert set(site.instances()) == {"ours"}
    site.hosts["kvm3"].heal()
    site.hosts["kvm2"].loses(WEB)
    done = json.loads(json.dumps(site.play("adopt", adopt_all=True)))
    assert "2 adopted, 1 not adoptable." in done, done


def test_a_host_that_restarts_leaves_adopted_guests_to_libvirt(reported: Site) -> None:
    site = reported
    gets(site, "kvm1", WEB, "web", xml("web", WEB))
    site.play("adopt", adopt_all=True)
    site.play("heartbeat")
    site.hosts["kvm1"].powers(WEB, 4)
    site.hosts["kvm1"].has_facts(boot_id="b0000000-0000-4000-8000-000000000001")
    site.play("power_sync", resume_guests_state_on_host_boot=True)
    assert site.instances()["web"]["vm_state"] == "stopped"
    assert site.hosts["kvm1"].domains[WEB]["power_state"] == 4
    assert "domain" not in site.hosts["kvm1"].asked()[-3:]
    site.play("start", names=["web"])
    assert site.instances()["web"]["vm_state"] == "active"
