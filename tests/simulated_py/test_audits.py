# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Audits, reports and states of hosts: what differs between hosts and ledger is found, and what runs is left alone."""

from __future__ import annotations

import typing as t

from printed import changed, findings
from simulated_site import HOSTS, Site, entry

FOREIGN_UUID = "f0000000-0000-4000-8000-000000000001"
ORPHAN_UUID = "f0000000-0000-4000-8000-000000000002"
OURS = """
  <metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1"><nova:name>x</nova:name></nova:instance></metadata>
  <sysinfo type='smbios'><system><entry name='manufacturer'>bootflow.compute</entry></system></sysinfo>"""


def audit(site: Site, *options: str, **variables: t.Any) -> list[dict[str, str]]:
    return findings(site.play("audit", *options, **variables))


def idle_audit(site: Site, *options: str, **variables: t.Any) -> list[dict[str, str]]:
    """What an audit finds that has nothing to do."""
    output = site.play("audit", *options, **variables)
    assert changed(output) == 0, output
    return findings(output)


def domain_xml(name: str, uuid: str, more: str = "") -> str:
    xml = "<domain type='qemu'><name>%s</name><uuid>%s</uuid><memory unit='MiB'>64</memory>%s<os><type>hvm</type></os></domain>"
    return xml % (name, uuid, more)


def test_a_wrong_ledger_and_a_lost_domain(site: Site) -> None:
    site.boots(entry("one"), entry("two"))
    one, two = site.instances()["one"], site.instances()["two"]
    assert audit(site) == []
    # Behind the ledger: usage, a claim, and a guest.
    site.spoil("UPDATE compute_nodes SET memory_mb_used = 1, vcpus_used = 99 WHERE host = ?", one["host"])
    site.spoil("DELETE FROM claims WHERE instance_uuid = ?", two["uuid"])
    site.hosts[two["host"]].loses(two["uuid"])
    before = site.dump()
    plan = site.play("audit", "--check", "--diff")
    assert "nothing is touched" in plan and changed(plan) > 0
    assert site.dump() == before
    output = site.play("audit")
    found = findings(output)
    assert [(f["kind"], f["what"], f["action"]) for f in found] == [
        (f["kind"], f["what"], f["action"]) for f in findings(plan)
    ]
    by_kind = {(f["kind"], f["what"]): f for f in found}
    assert (by_kind["usage", "vcpus_used"]["host"], by_kind["usage", "vcpus_used"]["from"]) == (one["host"], "99")
    assert by_kind["missing_claim", "claim"]["instance"] == two["uuid"]
    told = by_kind["instance_without_domain", "domain"]
    assert (told["host"], told["instance"], told["action"]) == (two["host"], two["uuid"], "report")
    assert "reboot the instance with bootflow_reboot_type: HARD" in output
    site.check_ledger()
    assert site.instances()["two"]["vm_state"] == "active", "the state is somebody else's to change"
    assert sorted(f["kind"] for f in idle_audit(site)) == ["instance_without_domain", "orphan_reservation"]
    site.play("delete", names=["one", "two"])
    assert site.left_in_the_ledger() == {}
    # The network still serves the address of the domain that somebody undefined: the next audit removes what no domain has.
    assert list(site.left_on_hosts()) == ["reservations on %s" % two["host"]]


def test_domains_that_the_ledger_does_not_know_are_told_and_removed_when_they_are_ours(site: Site) -> None:
    site.boots(entry("one"))
    row = site.instances()["one"]
    host = site.hosts[row["host"]]
    host.gets(FOREIGN_UUID, domain_xml("foreign", FOREIGN_UUID), "foreign")
    host.gets(ORPHAN_UUID, domain_xml("orphan", ORPHAN_UUID, OURS), "orphan")
    assert {(f["kind"], f["instance"], f["action"]) for f in idle_audit(site)} == {
        ("foreign_domain", FOREIGN_UUID, "report"),
        ("orphan_domain", ORPHAN_UUID, "report"),
    }
    planned = audit(site, "--check", audit_remove_orphans=True)
    assert sorted(f["action"] for f in planned) == ["remove", "report"]
    assert set(host.domains) == {row["uuid"], FOREIGN_UUID, ORPHAN_UUID}, "a plan removes nothing"
    audit(site, audit_remove_orphans=True)
    assert set(host.domains) == {row["uuid"], FOREIGN_UUID}
    assert [f["kind"] for f in idle_audit(site, audit_remove_orphans=True)] == ["foreign_domain"]


def test_a_killed_boot_is_rolled_back_at_once(site: Site) -> None:
    site.hosts["kvm1"].is_slow("instance_build", 60.0, times=1)
    process = site.begin("boot", instances=[entry("web")], hosts=["kvm1"])
    try:
        site.wait_for_module("kvm1", "instance_build", process)
    finally:
        site.kill(process)
    assert {f["kind"] for f in audit(site) if f["host"] == "kvm1"} == {"dead_build"}
    assert site.places() == {"web": ("error", None)}
    assert site.query("SELECT 1 FROM claims") == [] and site.left_on_hosts() == {}
    assert idle_audit(site) == []


def test_a_host_that_does_not_answer_is_told_and_nothing_of_it_is_repaired(site: Site) -> None:
    site.boots(entry("web", count=3))
    away = site.instances()["web-1"]["host"]
    site.hosts[away].is_silent()
    output = site.play("audit")
    assert "%s did not answer" % away in output
    assert {row["vm_state"] for row in site.instances().values()} == {"active"}


def test_a_heartbeat_lists_the_hosts_and_names_the_silent_one(site: Site) -> None:
    site.hosts["kvm2"].has_facts(memory_mb=4096, vcpus=2)
    output = site.play("heartbeat", periodic_fuzzy_delay=1)
    (row,) = [line for line in output.splitlines() if line.startswith("kvm2") and "nova" in line]
    assert "32/2 x16" in row and "/4096" in row and " up " in row
    site.hosts["kvm2"].is_silent()
    again = site.play("heartbeat")
    assert "kvm2 did not report and is left out: " in again and " down " in again
    assert [r["host"] for r in site.query("SELECT host FROM compute_nodes ORDER BY host")] == list(HOSTS)
    site.boots(entry("web", count=2))
    assert {host for _state, host in site.places().values()} == {"kvm1", "kvm3"}


def test_hosts_are_disabled_and_enabled(site: Site) -> None:
    first, *others = HOSTS
    site.play("heartbeat")
    closed = {"host": ",".join(others), "host_state": "disabled", "host_reason": "new memory"}
    site.play("host", **closed)
    assert changed(site.play("host", **closed)) == 0
    assert "new memory" in site.boots(entry("here", count=2), options=("--check",))
    site.boots(entry("here", count=2))
    assert {host for _state, host in site.places().values()} == {first}
    site.play("host", host=first, host_state="forced_down", host_reason="fire")
    site.boots(entry("nowhere"), expect=2)
    site.play("host", host=first, host_state="up")
    site.boots(entry("nowhere"))
    assert site.places()["nowhere"] == ("active", first)
    for wrong, word in (
        ({"host": "kvm9", "host_state": "disabled"}, "ComputeHostNotFound"),
        ({"host": first, "host_state": "broken"}, "InvalidInput"),
        ({"host": first, "host_state": "enabled", "host_reason": "x"}, "InvalidInput"),
        ({"host_state": "enabled"}, "bootflow_host is not set"),
    ):
        refused = site.play("host", expect=2, **wrong)
        assert word in refused and "Remedy: " in refused
    assert "kvm9" in site.play("audit", expect=2, audit_hosts=["kvm9"])
    site.play("delete", names=sorted(site.instances()))
    assert site.residue() == {}
