# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Audits of real hosts with real domains: what was changed behind the ledger is found, and what runs is left alone."""

from __future__ import annotations

import uuid as uuid_module
from pathlib import Path

import pytest
from flow import Flow, Run, entry
from printed import changed, findings

pytestmark = pytest.mark.usefixtures("still_guests")
FOREIGN_UUID = "f0000000-0000-4000-8000-000000000001"
ORPHAN_UUID = "0f000000-0000-4000-8000-000000000002"
OURS = """
  <metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1"><nova:name>x</nova:name></nova:instance></metadata>
  <sysinfo type='smbios'><system><entry name='manufacturer'>bootflow.compute</entry></system></sysinfo>"""


def audit(flow: Flow, *options: str, expect: int = 0, **variables) -> tuple[Run, list[dict]]:
    """An audit, and what it found, but for memory that the machine of the tests was given meanwhile, as a virtual machine may be."""
    done = flow.run("audit", *options, timeout=180, **variables)
    assert done.returncode == expect, done.output
    return done, [f for f in findings(done.output) if not is_memory(f)]


def is_memory(finding: dict) -> bool:
    return (finding["kind"], finding["what"]) == ("host_facts", "memory_mb")


def idle_audit(flow: Flow, *options: str, **variables) -> list[dict]:
    """What an audit finds that has nothing to do."""
    for _again in range(3):  # the memory of the machine may have grown
        done, found = audit(flow, *options, **variables)
        if not [f for f in findings(done.output) if is_memory(f)]:
            break
        flow.run("heartbeat")
    assert changed(done.output) == 0, done.output
    return found


def define(host, uuid: str, name: str, more: str = "") -> None:
    xml = "<domain type='qemu'><name>%s</name><uuid>%s</uuid><memory unit='MiB'>64</memory>%s<os><type>hvm</type></os></domain>"
    virsh = 'printf %s "$1" | virsh -q -c qemu:///system define /dev/stdin'
    host.run("sh", "-c", virsh, "sh", xml % (name, uuid, more))


def domains(host) -> set[str]:
    return set(host.run("virsh", "-q", "-c", "qemu:///system", "list", "--all", "--uuid").stdout.split())


@pytest.mark.long
def test_a_host_that_gets_another_hostname(flow: Flow) -> None:
    flow.boot(entry("one"))
    one = flow.instances()["one"]
    host = flow.lab.host(one["host"])
    before = flow.query("SELECT * FROM compute_nodes ORDER BY id")
    host.run("hostname", "renamed.example.org")
    try:
        _done, planned = audit(flow, "--check")
        _done, found = audit(flow)
        assert planned == found
        assert [(f["what"], f["from"], f["to"]) for f in found] == [("compute_node", host.name, "renamed.example.org")]
        assert idle_audit(flow) == []
        after = flow.query("SELECT * FROM compute_nodes ORDER BY id")
        assert [(r["id"], r["host"], r["vcpus_used"], r["num_instances"]) for r in after] == [
            (r["id"], r["host"], r["vcpus_used"], r["num_instances"]) for r in before
        ]
        assert flow.instances()["one"]["node"] == "renamed.example.org"
        assert flow.run("reboot", bootflow_names=["one"], bootflow_reboot_type="HARD").returncode == 0
    finally:
        host.run("hostname", host.name)
    flow.delete("one")
    assert flow.residue() == {}


@pytest.mark.long
def test_a_host_that_is_gone_for_good_is_deleted_and_a_new_one_when_it_reports(flow: Flow) -> None:
    flow.boot(entry("one"))
    one = flow.instances()["one"]
    host = flow.lab.host(one["host"])
    host.fail("network")
    try:
        refused = flow.run("host", bootflow_host=host.name, bootflow_host_state="deleted")
        assert refused.returncode == 2 and "ComputeServiceInUse" in refused.output
        assert flow.run("host", bootflow_host=host.name, bootflow_host_state="forced_down").returncode == 0
        flow.delete("one", bootflow_delete_force=True)
        assert [f["action"] for f in audit(flow)[1] if f["kind"] == "cleanup"] == ["wait"]
        deleted = flow.run("host", bootflow_host=host.name, bootflow_host_state="deleted")
        assert deleted.returncode == 0 and "deleted from the ledger" in deleted.output, deleted.output
        assert not flow.query("SELECT * FROM cleanups") and not flow.query("SELECT * FROM ip_allocations")
        assert host.name not in {r["host"] for r in flow.query("SELECT host FROM compute_nodes")}
    finally:
        host.restore()
    assert flow.run("heartbeat").returncode == 0
    assert [(f["kind"], f["host"]) for f in idle_audit(flow)] == [("orphan_domain", host.name)]
    audit(flow, bootflow_audit_remove_orphans=True)
    assert flow.residue() == {}


@pytest.mark.long
def test_hosts_are_purged_again_and_again(flow: Flow) -> None:
    """From the second time on the module goes to them as a program that an earlier run has kept."""
    assert flow.run("heartbeat").returncode == 0
    for _again in range(3):
        done = flow.run("purge")
        assert done.returncode == 0, done.output
        assert all("%s: removed nothing" % host.name in done.output for host in flow.lab.hosts), done.output


def test_orphans_and_foreign_domains(flow: Flow) -> None:
    flow.boot(entry("one"))
    row = flow.instances()["one"]
    host = flow.lab.host(row["host"])
    define(host, FOREIGN_UUID, "foreign")
    define(host, ORPHAN_UUID, "orphan", OURS)
    folder = str(uuid_module.UUID(int=7, version=4))
    host.run("mkdir", "-p", "/var/lib/bootflow/instances/%s" % folder)
    assert {(f["kind"], f["instance"], f["action"]) for f in idle_audit(flow)} == {
        ("foreign_domain", FOREIGN_UUID, "report"),
        ("orphan_domain", ORPHAN_UUID, "report"),
        ("orphan_folder", folder, "report"),
    }
    assert "128 MiB are used by domains that are not instances" in audit(flow)[0].output
    assert domains(host) == {row["uuid"], FOREIGN_UUID, ORPHAN_UUID}
    _plan, planned = audit(flow, "--check", bootflow_audit_remove_orphans=True)
    assert sorted(f["action"] for f in planned) == ["remove", "remove", "report"]
    assert domains(host) == {row["uuid"], FOREIGN_UUID, ORPHAN_UUID}, "a plan removes nothing"
    audit(flow, bootflow_audit_remove_orphans=True)
    assert domains(host) == {row["uuid"], FOREIGN_UUID}
    assert folder not in host.run("ls", "/var/lib/bootflow/instances").stdout
    assert [f["kind"] for f in idle_audit(flow, bootflow_audit_remove_orphans=True)] == ["foreign_domain"]
    host.run("virsh", "-q", "-c", "qemu:///system", "undefine", FOREIGN_UUID)
    flow.delete("one")
    assert flow.residue() == {}


@pytest.mark.long
def test_two_ledgers_on_one_host_leave_each_other_alone(flow: Flow, tmp_path) -> None:
    """Each has a guest with the same short name, and the first one a folder of a build that has no domain yet."""
    (tmp_path / "other").mkdir()
    other = Flow(flow.lab, tmp_path / "other", Path(flow.variables["bootflow_images"][0]["path"]))
    same = {"bootflow_domain_names": "short", "bootflow_hosts": [flow.lab.hosts[0].name]}
    host = flow.lab.hosts[0]
    flow.boot(entry("one", networks="none"), **same)
    other.boot(entry("one", networks="none"), **same)
    mine, theirs = flow.instances()["one"], other.instances()["one"]
    named = host.run("virsh", "-q", "-c", "qemu:///system", "list", "--name").stdout.split()
    assert sorted(named) == ["one", "one-" + theirs["uuid"][:8]]
    assert (mine["domain_name"], theirs["domain_name"]) == tuple(sorted(named))
    (ledger,) = flow.query("SELECT id FROM ledger_identity")
    memory = mine["memory_mb"]
    folder = "/var/lib/bootflow/instances/%s" % uuid_module.UUID(int=8, version=4)
    host.run("sh", "-c", "mkdir %s && echo %s > %s/ledger" % (folder, ledger["id"], folder))

    here = {"bootflow_audit_hosts": [host.name]}  # the others have not reported to these ledgers
    for check in (("--check",), ()):
        found = idle_audit(other, *check, bootflow_audit_remove_orphans=True, **here)
        assert [(f["kind"], f["host"], f["action"]) for f in found] == [("other_ledger", host.name, "report")]
        assert found[0]["what"] == "guests of ledger " + ledger["id"]
    done, _found = audit(other, "--check", **here)
    assert "%s: %d MiB are used by domains that are not instances" % (host.name, memory) in done.output
    listed = other.run("hosts").output
    assert "guests of ledger %s: 1; no claim counts their memory (%d MiB), vCPUs (1)" % (ledger["id"], memory) in listed
    assert domains(host) == {mine["uuid"], theirs["uuid"]}

    other.delete("one")
    assert domains(host) == {mine["uuid"]} and other.instances() == {}
    host.run("test", "-f", folder + "/ledger")
    host.run("test", "-f", "/var/lib/bootflow/instances/%s/disk" % mine["uuid"])
    _done, found = audit(flow, **here)
    assert [f["kind"] for f in found] == ["orphan_folder"], "to its own ledger the folder is an orphan"
    host.run("rm", "-r", folder)
    flow.delete("one")
    assert flow.residue() == other.residue() == {}


@pytest.mark.long
def test_claims_of_a_killed_run_go_back_at_once(flow: Flow) -> None:
    """With a lease of 600 s: on the same machine it is seen that the process is gone."""
    wanted = [entry("killed", max_count=3, image="linux")]
    # Guests that are waited for are told as spawning while they start.
    process = flow.start("boot", {"bootflow_instances": wanted, "bootflow_wait_console": "BOOTFLOW-GUEST-READY"})
    try:
        flow.wait_for("SELECT 1 FROM instance_action_events WHERE event = 'spawning'", 120, process)
    finally:
        flow.kill(process)
    rows = flow.instances()
    assert "building" in {r["vm_state"] for r in rows.values()}
    hosts = {r["host"] for r in rows.values()}
    away = flow.lab.host(sorted(h for h in hosts if h)[0])
    away.fail("libvirtd")
    done, found = audit(flow)
    assert {f["action"] for f in found if f["kind"] == "dead_build" and f["host"] == away.name} <= {"end"}
    left = flow.query("SELECT host FROM cleanups")
    assert {r["host"] for r in left} <= {away.name}
    ended = [r for r in flow.instances().values() if r["vm_state"] == "error"]
    assert ended and "building" not in {r["vm_state"] for r in flow.instances().values()}, done.output
    flow.check_ledger()
    away.restore()
    audit(flow)
    active = {r["uuid"] for r in flow.instances().values() if r["vm_state"] == "active"}
    assert {r["instance_uuid"] for r in flow.query("SELECT instance_uuid FROM claims")} == active
    assert set().union(*(domains(h) for h in flow.lab.hosts)) == active
    assert flow.query("SELECT 1 FROM cleanups") == []
    assert idle_audit(flow) == []
    flow.boot(*wanted)
    assert {r["vm_state"] for r in flow.instances().values()} == {"active"}
    flow.delete(*flow.instances())
    assert flow.residue() == {}


@pytest.mark.long
def test_audits_beside_a_running_boot_lose_nothing(flow: Flow) -> None:
    flow.boot(entry("before"))
    wanted = [entry("beside", max_count=4, image="linux")]
    process = flow.start("boot", {"bootflow_instances": wanted, "bootflow_wait_console": "BOOTFLOW-GUEST-READY"})
    try:
        flow.wait_for("SELECT 1 FROM instances WHERE display_name LIKE 'beside%'", 120, process)
        audits = 0
        while process.poll() is None:
            done, found = audit(flow, bootflow_audit_remove_orphans=True)
            assert [f for f in found if f["kind"] not in ("host_facts",)] == [], done.output
            flow.check_ledger()
            audits += 1
        assert audits > 1
        assert process.wait() == 0, (flow.folder / "killed.log").read_text()[-3000:]
    finally:
        if process.poll() is None:
            flow.kill(process)
    rows = flow.instances()
    assert len(rows) == 5 and {r["vm_state"] for r in rows.values()} == {"active"}
    assert set().union(*(domains(h) for h in flow.lab.hosts)) == {r["uuid"] for r in rows.values()}
    flow.delete(*rows)
    assert flow.residue() == {}


@pytest.mark.long
def test_a_killed_deletion_is_finished(flow: Flow) -> None:
    flow.boot(entry("gone", max_count=2))
    process = flow.start("delete", {"bootflow_names": ["gone-1", "gone-2"]})
    try:
        flow.wait_for("SELECT 1 FROM instances WHERE task_state = 'deleting'", 60, process)
    finally:
        flow.kill(process)
    done, found = audit(flow)
    assert {f["kind"] for f in found} <= {"dead_delete", "cleanup"} and found, done.output
    assert flow.residue() == {}
