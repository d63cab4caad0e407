# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole flow on three hosts with real guests: boot, look, boot again, delete; failing hosts in the middle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from flow import Flow, entry

PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"
READY = {"bootflow_wait_console": "BOOTFLOW-GUEST-READY"}


@pytest.mark.always
def test_six_guests_over_three_hosts_with_a_failing_one(flow: Flow) -> None:
    flow.lab.host("compute2").fail("spawn")
    web = entry(
        "web",
        max_count=6,
        metadata={"role": "web"},
        user_data="#!/bin/sh\necho user data runs on $(hostname)\n",
        key_name="ops",
        injected_files=[{"path": "/etc/motd", "contents": "aGVsbG8K"}],
    )
    done = flow.boot(web, **READY)

    rows = flow.instances()
    assert sorted(rows) == ["web-%d" % n for n in range(1, 7)]
    assert {r["vm_state"] for r in rows.values()} == {"active"}
    assert {r["host"] for r in rows.values()} == {"compute1", "compute3"}, "compute2 fails every spawn"
    addresses = set()
    for name, row in rows.items():
        console = flow.console(row["host"], row["uuid"])
        address = flow.query(
            "SELECT ip_address FROM ip_allocations JOIN ports ON ports.id = port_id WHERE instance_uuid = ?",
            row["uuid"],
        )
        assert len(address) == 1
        addresses.add(address[0]["ip_address"])
        assert "BOOTFLOW-GUEST hostname=%s " % name in console
        assert " address=%s/24 uuid=%s userdata=yes" % (address[0]["ip_address"], row["uuid"]) in console
        assert "user data runs on %s" % name in console
        assert "BOOTFLOW-GUEST-FILE path=/etc/motd bytes=6 " in console
        assert "keys=1" in console
        assert name in done.output and row["uuid"] in done.output
    assert len(addresses) == 6
    rescheduled = flow.query(
        "SELECT DISTINCT instance_uuid FROM instance_faults WHERE host = 'compute2' AND details = 'rescheduled'"
    )
    assert rescheduled, "some builds began on compute2"
    for row in rescheduled:
        retry = json.loads(flow.query("SELECT retry FROM instances WHERE uuid = ?", row["instance_uuid"])[0]["retry"])
        assert [h for h, _n in retry["hosts"]][0] == "compute2"
        events = [
            (e["event"], e["host"], e["result"])
            for e in flow.query(
                "SELECT * FROM instance_action_events WHERE instance_uuid = ? ORDER BY id", row["instance_uuid"]
            )
        ]
        assert events[:4] == [
            ("schedule", "compute2", "Success"),
            ("networking", "compute2", "Success"),
            ("block_device_mapping", "compute2", "Success"),
            ("spawning", "compute2", "Error"),
        ]
        assert events[-1][0] == "spawning" and events[-1][2] == "Success"
    assert flow.lab.host("compute2").run("virsh", "-q", "-c", "qemu:///system", "list", "--all").stdout.strip() == ""
    flow.check_ledger()

    # Again: nothing changes, and it says so.
    before = [tuple(r) for r in flow.query("SELECT uuid, host, updated_at FROM instances ORDER BY uuid")]
    again = flow.boot(web, **READY)
    assert "changed=0" in again.output
    names = {
        play["name"]
        for book in ("round", "refresh")
        for play in yaml.safe_load((PLAYBOOKS / (book + ".yml")).read_text())
    }
    shown = {play.partition("]")[0] for play in again.output.split("PLAY [")[1:]}
    assert names and not shown & names, "a round that is not needed is not shown"
    assert before == [tuple(r) for r in flow.query("SELECT uuid, host, updated_at FROM instances ORDER BY uuid")]

    # Another definition of the same name is refused, and nothing is touched.
    other = flow.boot({**web, "flavor": "huge"}, expect=2, **READY)
    assert "already exists with another definition: flavor: is " in other.output and ", requested huge" in other.output

    # Metadata changes in place, and nothing is built for it.
    flow.boot({**web, "metadata": {"role": "db"}}, **READY)
    assert all(r["host"] for r in flow.instances().values())

    listed = flow.run("list")
    assert listed.returncode == 0 and all(name in listed.output for name in rows)

    flow.lab.host("compute2").restore()
    flow.delete(*rows)
    assert flow.residue() == {}
    gone = flow.delete(*rows)
    assert "changed=0" in gone.output


def test_the_states_a_build_goes_through(flow: Flow) -> None:
    flow.boot(entry("steps"), bootflow_notify_on_state_change="vm_and_task_state")
    uuid = flow.instances()["steps"]["uuid"]
    payloads = [
        json.loads(r["payload"])
        for r in flow.query(
            "SELECT payload FROM notifications WHERE instance_uuid = ? AND event_type = 'compute.instance.update' ORDER BY id",
            uuid,
        )
    ]
    # The first is that of the accepted instance, which has no task_state in it, as Nova's.
    stages = ["networking", "block_device_mapping", "spawning"]
    assert [p["new_task_state"] for p in payloads] == [None, None, *stages, None]
    assert (payloads[0]["old_state"], payloads[0]["state"], payloads[-1]["state"]) == (None, "building", "active")
    events = [
        r["event_type"]
        for r in flow.query("SELECT event_type FROM notifications WHERE instance_uuid = ? ORDER BY id", uuid)
    ]
    assert [e for e in events if e != "compute.instance.update"] == [
        "compute.instance.create.start",
        "compute.instance.create.end",
    ]
    action = flow.query("SELECT * FROM instance_actions WHERE instance_uuid = ?", uuid)
    assert [(a["action"], a["message"]) for a in action] == [("create", None)] and action[0]["finish_time"] is not None
    flow.delete("steps")
    assert flow.residue() == {}


def test_check_mode_shows_the_plan_and_touches_nothing(flow: Flow) -> None:
    flow.variables["bootflow_availability_zone"] = "nova"
    plan = flow.boot(entry("plan", max_count=2), options=("--check", "--diff"))
    assert not flow.ledger_path.exists()
    assert "plan-1" in plan.output and "plan-2" in plan.output
    assert "<domain type=" in plan.output
    assert "compute1" in plan.output
    flow.boot(entry("big"), bootflow_notify_on_state_change="none")
    before = flow.query("SELECT count(*) AS n FROM instances")[0]["n"]
    refused = flow.run("boot", "--check", bootflow_instances=[entry("huge", flavor="huge")])
    assert refused.returncode == 2
    assert "RamFilter" in refused.output and "9000000" in refused.output
    assert flow.query("SELECT count(*) AS n FROM instances")[0]["n"] == before
    wanted = flow.run("delete", "--check", bootflow_names=["big"])
    assert wanted.returncode == 0 and "big" in wanted.output
    assert flow.instances()["big"]["vm_state"] == "active"
    flow.delete("big")
    assert flow.residue() == {}


def test_every_disk_and_the_raw_backend(flow: Flow) -> None:
    flow.boot(entry("disks", flavor="full"), bootflow_disk_backend="raw", **READY)
    row = flow.instances()["disks"]
    console = flow.console(row["host"], row["uuid"])
    assert "BOOTFLOW-GUEST-DISK name=vda bytes=1073741824 " in console
    assert "BOOTFLOW-GUEST-DISK name=vdb bytes=1073741824 label=ephemeral0" in console
    assert "BOOTFLOW-GUEST-DISK name=vdc bytes=67108864 " in console
    flow.delete("disks")
    assert flow.residue() == {}


@pytest.mark.long
def test_hosts_that_are_away_or_broken(flow: Flow) -> None:
    """One host is off the network and one has no libvirtd: everything lands on the third; afterwards nothing is left."""
    flow.boot(entry("first"))  # every host has reported
    flow.lab.host("compute1").fail("network")
    flow.lab.host("compute2").fail("libvirtd")
    done = flow.boot(entry("away", max_count=2), bootflow_facts_max_age=0)
    rows = flow.instances()
    assert {rows[n]["host"] for n in ("away-1", "away-2")} == {"compute3"}
    assert "compute1" in done.output and "compute2" in done.output, "the person is told who did not report"
    for host in ("compute1", "compute2"):
        flow.lab.host(host).restore()
    flow.delete("first", "away-1", "away-2")
    assert flow.residue() == {}


@pytest.mark.long
def test_a_host_breaks_after_it_reported(flow: Flow) -> None:
    """Fresh facts lie: libvirtd dies, another host leaves the network, a third's disk is full. Builds go where it works."""
    flow.boot(entry("first"))
    flow.delete("first")
    flow.lab.host("compute1").fail("libvirtd")
    flow.lab.host("compute2").fail("network")
    done = flow.boot(entry("late", max_count=3))
    rows = flow.instances()
    assert {r["host"] for r in rows.values()} == {"compute3"}, done.output
    flow.check_ledger()
    flow.lab.host("compute1").restore()
    flow.lab.host("compute2").restore()
    flow.delete(*rows)
    # What the broken hosts still had to be rid of goes when they report again.
    flow.boot(entry("after"), bootflow_facts_max_age=0)
    flow.delete("after")
    assert flow.residue() == {}


def test_a_full_disk_reschedules_and_no_host_left_is_an_error(flow: Flow) -> None:
    flow.boot(entry("first"))
    flow.delete("first")
    for host in flow.lab.hosts:
        host.fail("disk")
    done = flow.boot(entry("full"), expect=2)
    row = flow.instances()["full"]
    assert (row["vm_state"], row["task_state"], row["host"]) == ("error", None, None)
    assert flow.query("SELECT count(*) AS n FROM claims")[0]["n"] == 0
    assert flow.query("SELECT count(*) AS n FROM ports")[0]["n"] == 0
    tried = {r["host"] for r in flow.query("SELECT host FROM instance_faults WHERE details = 'rescheduled'")}
    assert tried == {"compute1", "compute2", "compute3"}
    assert (
        "No space left" in done.output
        or "MaxRetriesExceeded" in done.output
        or "Exceeded max scheduling attempts" in done.output
    )
    for host in flow.lab.hosts:
        host.restore()
    # The same request again builds it.
    flow.boot(entry("full"))
    assert flow.instances()["full"]["vm_state"] == "active"
    flow.delete("full")
    assert flow.residue() == {}


@pytest.mark.long
def test_guests_on_a_bridge_answer(flow: Flow) -> None:
    """A Linux bridge that joins the hosts: the boot ends when every guest's address answers its host."""
    subnet = flow.lab.subnet
    bridge = {
        "name": "lan",
        "type": "bridge",
        "source": "br-guests",
        "subnets": [
            {
                "name": "lan-v4",
                "cidr": "198.19.%d.0/24" % subnet,
                "gateway_ip": None,
                "allocation_pools": [{"start": "198.19.%d.100" % subnet, "end": "198.19.%d.120" % subnet}],
            }
        ],
    }
    wanted = [
        entry("lan", max_count=2, networks=[{"network": "lan"}]),
        entry(
            "fixed",
            networks=[{"network": "lan", "fixed_ip": "198.19.%d.200" % subnet}],
            availability_zone="nova:compute3",
        ),
    ]
    flow.boot(*wanted, bootflow_networks=[bridge], bootflow_wait_address=True, bootflow_allow_forced_host=True)
    rows = flow.instances()
    assert rows["fixed"]["host"] == "compute3"
    # Across hosts: every guest answers the first host.
    for address in ("198.19.%d.100" % subnet, "198.19.%d.101" % subnet, "198.19.%d.200" % subnet):
        flow.lab.host("compute1").run("ping", "-c", "1", "-W", "5", address)
    taken = flow.run(
        "boot",
        bootflow_networks=[bridge],
        bootflow_instances=[entry("other", networks=[{"network": "lan", "fixed_ip": "198.19.%d.200" % subnet}])],
    )
    assert (
        taken.returncode == 2 and "IP address 198.19.%d.200 already allocated in subnet lan-v4" % subnet in taken.output
    )
    flow.delete(*rows)
    assert flow.residue() == {}


def test_hooks_and_passwords(flow: Flow, tmp_path) -> None:
    """A failing hook before stops the boot; one after sees the instances and the passwords that no log shows."""
    stop = tmp_path / "stop.yml"
    stop.write_text("- ansible.builtin.fail: {msg: not on a Friday}\n")
    refused = flow.boot(entry("hooked"), expect=2, bootflow_hook_create_instance_pre=str(stop))
    assert "not on a Friday" in refused.output and not flow.ledger_path.exists()

    after = tmp_path / "after.yml"
    seen = tmp_path / "seen.json"
    after.write_text(
        '- ansible.builtin.copy:\n    content: "{{ [bootflow_booted.instances, bootflow_admin_passwords.admin_passwords] | to_json }}"\n'
        "    dest: %s\n    mode: '0600'\n  no_log: true\n" % seen
    )
    entries = [entry("hooked"), entry("known", admin_password="correct horse")]
    folder = tmp_path / "passwords"
    done = flow.boot(
        *entries,
        options=("-vvv",),
        bootflow_hook_create_instance_post=str(after),
        bootflow_admin_password_dir=str(folder),
        **READY,
    )
    instances, known = json.loads(seen.read_text())
    assert {(i["uuid"], i["name"], i["project"]) for i in instances} == {
        (uuid, each["name"], each["project"]) for uuid, each in known.items()
    }
    passwords = {each["name"]: each["password"] for each in known.values()}
    assert passwords["known"] == "correct horse" and len(passwords["hooked"]) >= 12
    for name, row in flow.instances().items():
        drive = "/var/lib/bootflow/instances/%s/disk.config" % row["uuid"]
        for text, there in (
            ('"admin_pass": "%s"' % passwords[name], name == "hooked"),
            ("chpasswd", name == "known"),  # cloud-init sets it, and the drive has a hash only
        ):
            found = flow.lab.host(row["host"]).run("grep", "-a", "-c", text, drive, check=False).stdout
            assert (int(found) > 0) is there, (name, text)
        assert passwords[name] not in done.output
        assert (folder / row["uuid"]).read_text() == passwords[name] + "\n"
    assert "in %s, in files named by UUID" % folder in done.output
    with open(flow.ledger_path, "rb") as ledger:
        content = ledger.read()
    assert not [p for p in passwords.values() if p.encode() in content]
    flow.delete("hooked", "known")
    assert flow.residue() == {}


@pytest.mark.long
def test_a_filter_of_the_user(flow: Flow) -> None:
    """A file in bootflow_filters beside the inventory is enough; it sees the host's variables, and the plan names it."""
    folder = Path(flow.lab.inventory).parent / "bootflow_filters"
    folder.mkdir()
    (folder / "quiet.py").write_text(
        "class QuietHostFilter:\n"
        "    def host_passes(self, host_state, spec):\n"
        "        if host_state.vars.get('inventory_hostname') != 'compute3':\n"
        "            return False, 'it is noisy'\n"
        "        return True\n"
    )
    try:
        plan = flow.boot(entry("quiet", max_count=2), options=("--check",))
        assert "QuietHostFilter: it is noisy" in plan.output
        flow.boot(entry("quiet", max_count=2))
        assert {r["host"] for r in flow.instances().values()} == {"compute3"}
        flow.delete("quiet-1", "quiet-2")
    finally:
        shutil.rmtree(folder)
    assert flow.residue() == {}


@pytest.mark.long
def test_hosts_report_again_before_a_round_that_needs_them(flow: Flow) -> None:
    """What a long first round left without a host is not placed by reports that are too old."""
    for host in ("compute1", "compute2"):
        flow.lab.host(host).fail("spawn")
    output = flow.boot(entry("again", max_count=3), bootflow_facts_max_age=0).output
    assert {r["host"] for r in flow.instances().values()} == {"compute3"}
    asked = output.split("PLAY [Update the facts of the hosts]")[1].split("PLAY [")[0]
    assert "ok: [compute3]" in asked and "Report the capacity" in asked, output
    flow.delete("again-1", "again-2", "again-3")
    for host in ("compute1", "compute2"):
        flow.lab.host(host).restore()
