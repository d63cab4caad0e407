# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interfaces are attached to guests and detached while they run: the guest sees them, libvirt has them, the ledger has their addresses."""

from __future__ import annotations

import json
import sqlite3
import time
import typing as t
from xml.etree import ElementTree

import pytest
from flow import GUEST_NETWORK, Flow, entry

DATA = {
    "name": "data",
    "type": "network",
    "source": "bf-data",
    "manage": True,
    "subnets": [
        {
            "name": "data-v4",
            "cidr": "10.78.0.0/24",
            "allocation_pools": [{"start": "10.78.0.10", "end": "10.78.0.12"}],
            "enable_dhcp": True,
        }
    ],
}
# Tells the console of each change of the guest's interfaces.
WATCH = """#!/bin/sh
(while :; do
    now=$(cat /sys/class/net/*/address | grep -v 00:00:00:00:00:00 | sort | tr '\\n' ' ')
    [ "$now" = "$before" ] || echo "LINKS $now." >/dev/console
    before=$now
    sleep 1
done) &
"""
VIRSH = ("virsh", "-q", "-c", "qemu:///system")


@pytest.fixture
def networks(flow: Flow) -> Flow:
    flow.variables["bootflow_networks"] = [GUEST_NETWORK, DATA]
    return flow


def change(
    flow: Flow, playbook: str, *entries: dict[str, t.Any], expect: int = 0, options: tuple[str, ...] = ()
) -> str:
    done = flow.run(playbook, *options, bootflow_interfaces=list(entries))
    assert done.returncode == expect, done.output
    return done.output


def ports(flow: Flow, name: str) -> dict[str, str]:
    """MAC address -> address of the instance's interfaces, in their order."""
    rows = flow.query(
        "SELECT mac_address, ip_address FROM ports JOIN ip_allocations ON port_id = ports.id WHERE instance_uuid = ? AND position >= 0"
        " ORDER BY position",
        flow.instances()[name]["uuid"],
    )
    return {row["mac_address"]: row["ip_address"] for row in rows}


def macs(flow: Flow, name: str, *options: str) -> list[str]:
    """Those of the guest's domain."""
    row = flow.instances()[name]
    xml = flow.lab.host(row["host"]).run(*VIRSH, "dumpxml", row["uuid"], *options).stdout
    return [str(mac.get("address")) for mac in ElementTree.fromstring(xml).iterfind("devices/interface/mac")]


def reserved(flow: Flow, host: str) -> dict[str, str]:
    """MAC address -> what the DHCP server of the network data keeps for it."""
    xml = flow.lab.host(host).run(*VIRSH, "net-dumpxml", "bf-data").stdout
    return {str(each.get("mac")): str(each.get("ip")) for each in ElementTree.fromstring(xml).iterfind("ip/dhcp/host")}


def until_said(flow: Flow, name: str, text: str) -> None:
    row = flow.instances()[name]
    end = time.monotonic() + 120
    while text not in (said := flow.console(row["host"], row["uuid"])):
        assert time.monotonic() < end, said[-1500:]
        time.sleep(0.5)


def links(found: t.Iterable[str]) -> str:
    return "LINKS %s ." % " ".join(sorted(found))


def everywhere(flow: Flow, name: str) -> list[str]:
    """The MAC addresses of the instance, which running guest, definition and ledger agree on."""
    of_ledger = list(ports(flow, name))
    assert sorted(macs(flow, name)) == sorted(macs(flow, name, "--inactive")) == sorted(of_ledger)
    return of_ledger


def test_a_running_guest_gets_an_interface_and_loses_it(networks: Flow) -> None:
    flow = networks
    flow.boot(entry("web", user_data=WATCH), bootflow_wait_console="BOOTFLOW-GUEST-READY")
    row = flow.instances()["web"]
    (first,) = everywhere(flow, "web")
    wanted = {"instance": "web", "network": "data", "fixed_ip": "10.78.0.11"}

    planned = change(flow, "attach_interface", wanted, options=("--check", "--diff"))
    assert "Would attach interface 10.78.0.11 of network data, instance web" in planned and "changed=0" not in planned
    assert everywhere(flow, "web") == [first]

    change(flow, "attach_interface", wanted)
    (_first, second) = everywhere(flow, "web")
    assert ports(flow, "web")[second] == "10.78.0.11" and reserved(flow, row["host"]) == {second: "10.78.0.11"}
    until_said(flow, "web", links((first, second)))
    again = change(flow, "attach_interface", wanted)
    assert "nothing to do" in again and "changed=0" in again
    assert "changed=0" in flow.boot(entry("web", user_data=WATCH)).output, "what it was booted with is the same"

    told = flow.run("events", bootflow_names=["web"]).output
    assert "attach_interface" in told, told
    # What defines the guest anew has both.
    done = flow.run("reboot", bootflow_names=["web"], bootflow_reboot_type="HARD")
    assert done.returncode == 0, done.output
    assert everywhere(flow, "web") == [first, second]

    until_said(flow, "web", "BOOTFLOW-GUEST-READY")
    time.sleep(5)
    change(flow, "detach_interface", {"instance": "web", "network": "data"})
    assert everywhere(flow, "web") == [first] and reserved(flow, row["host"]) == {}
    again = change(flow, "detach_interface", {"instance": "web", "network": "data"})
    assert "Nothing to do" in again and "changed=0" in again
    assert {r["network_id"] for r in flow.query("SELECT network_id FROM ports")} != set()
    flow.check_ledger()
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.usefixtures("still_guests")
def test_many_at_once_and_those_that_cannot(networks: Flow) -> None:
    """Guests on all hosts, paused and off; each that cannot have its interface is told alone."""
    flow = networks
    flow.boot(*[entry("web", max_count=4)])
    names = ["web-%d" % n for n in range(1, 5)]
    assert flow.run("pause", bootflow_names=["web-2"]).returncode == 0
    assert flow.run("stop", bootflow_names=["web-3"], bootflow_shutdown_timeout=0).returncode == 0
    assert flow.run("suspend", bootflow_names=["web-4"]).returncode == 0
    said = change(flow, "attach_interface", *({"instance": n, "network": "data"} for n in names), expect=2)
    assert "AttachInterfaceFailed" in said and "InstanceInvalidState" in said and "suspended" in said
    assert [len(ports(flow, n)) for n in names] == [2, 2, 2, 1]
    assert sorted(macs(flow, "web-2")) == sorted(ports(flow, "web-2"))
    assert sorted(macs(flow, "web-3", "--inactive")) == sorted(ports(flow, "web-3"))
    for bad, code in (
        ({"instance": "web-1", "network": "nowhere"}, "NetworkNotFound"),
        ({"instance": "nobody", "network": "data"}, "InstanceNotFound"),
        ({"instance": "web-1", "fixed_ip": "10.78.0.11"}, "InvalidInput"),
        ({"instance": "web-1"}, "NetworkAmbiguous"),
        (
            {"instance": "web-1", "network": "data", "fixed_ip": list(ports(flow, "web-2").values())[1]},
            "FixedIpAlreadyInUse",
        ),
        ({"instance": "web-1", "network": "data", "subnet": "guests-v4"}, "SubnetNotFound"),
        ({"instance": "web-4", "network": "data"}, "InstanceInvalidState"),
    ):
        said = change(flow, "attach_interface", bad, expect=2)
        assert code in said, said
    # Three addresses are in the pool, and all are taken.
    said = change(
        flow,
        "attach_interface",
        {"instance": "web-1", "network": "data"},
        {"instance": "web-1", "network": "data"},
        expect=2,
    )
    assert "NoMoreFixedIps" in said, said
    flow.check_ledger()

    done = flow.run("start", bootflow_names=["web-3"])
    assert done.returncode == 0, done.output
    assert len(everywhere(flow, "web-3")) == 2
    done = flow.run("migrate", bootflow_names=["web-1"])
    assert done.returncode == 0, done.output
    assert flow.run("confirm_resize", bootflow_names=["web-1"]).returncode == 0
    assert len(everywhere(flow, "web-1")) == 2
    done = flow.run("live_migrate", bootflow_names=["web-3"])
    assert done.returncode == 0, done.output
    assert len(everywhere(flow, "web-3")) == 2
    listed = json.dumps(list(ports(flow, "web-3").values()))
    assert "10.78.0." in listed
    # As after a detach whose host gave no answer: the guest takes the interface along, and nobody gets its address.
    row = flow.instances()["web-3"]
    with sqlite3.connect(flow.ledger_path, timeout=30) as ledger:
        ledger.execute(
            "UPDATE ports SET position = -2 - position WHERE position > 0 AND instance_uuid = ?", [row["uuid"]]
        )
    ledger.close()
    done = flow.run("live_migrate", bootflow_names=["web-3"])
    assert done.returncode == 0, done.output
    assert len(macs(flow, "web-3")) == 2 and len(ports(flow, "web-3")) == 1
    (left,) = flow.query("SELECT host FROM ports WHERE position < -1")
    assert left["host"] == flow.instances()["web-3"]["host"] != row["host"]
    assert flow.run("heartbeat").returncode == 0 and flow.query("SELECT id FROM ports WHERE position < -1")
    # A guest without a system lets go of nothing while it runs.
    done = flow.run("stop", bootflow_names=["web-1", "web-3"], bootflow_shutdown_timeout=0)
    assert done.returncode == 0, done.output
    first = {"instance": "web-1", "mac_address": next(iter(ports(flow, "web-1"))).upper()}
    change(flow, "detach_interface", first, {"instance": "web-3", "network": "data"})
    assert [len(ports(flow, n)) for n in names] == [1, 2, 1, 1]
    assert sorted(macs(flow, "web-3", "--inactive")) == sorted(ports(flow, "web-3"))
    (left,) = ports(flow, "web-1").values()
    assert left.startswith("10.78.0.")
    flow.delete(*names)
    assert flow.residue() == {}


@pytest.mark.long
def test_interfaces_of_a_file(networks: Flow) -> None:
    flow = networks
    ready = {"bootflow_wait_console": "BOOTFLOW-GUEST-READY"}
    one, two = entry("web"), entry("web", networks=["guests", {"network": "data", "fixed_ip": "10.78.0.12"}])
    for wanted, sign in (
        (one, "+ web boot"),
        (two, "~ web attach interface data 10.78.0.12"),
        (one, "~ web detach interface data 10.78.0.12"),
    ):
        planned = flow.run("apply", "--check", "--diff", bootflow_instances=[wanted], **ready)
        assert planned.returncode == 0 and sign in planned.output, planned.output
        done = flow.run("apply", bootflow_instances=[wanted], **ready)
        assert done.returncode == 0 and sign in done.output, done.output
        assert len(everywhere(flow, "web")) == len(wanted["networks"])
        again = flow.run("apply", bootflow_instances=[wanted], **ready)
        assert "nothing to do" in again.output and "changed=0" in again.output, again.output
        until_said(flow, "web", "BOOTFLOW-GUEST-READY")
        time.sleep(5)
    process = flow.start("apply", {"bootflow_instances": [two], **ready})
    try:
        flow.wait_for("SELECT 1 FROM ports WHERE position = 1", 60, process)
    finally:
        flow.kill(process)
    time.sleep(3)
    done = flow.run("apply", bootflow_instances=[two], **ready)
    assert done.returncode == 0, done.output
    assert len(everywhere(flow, "web")) == 2
    # A guest that is off loses it before it is started: it need not let go of it.
    assert flow.run("stop", bootflow_names=["web"]).returncode == 0
    done = flow.run("apply", bootflow_instances=[{**one, "state": "running"}])
    assert done.returncode == 0, done.output
    actions = [r["action"] for r in flow.query("SELECT action FROM instance_actions ORDER BY id")]
    assert actions[-3:] == ["stop", "detach_interface", "start"] and len(everywhere(flow, "web")) == 1
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_faults_and_dead_runs(networks: Flow) -> None:
    """No address is free while a guest may have it, and the same again comes to its end."""
    flow = networks
    flow.boot(entry("web"), bootflow_wait_console="BOOTFLOW-GUEST-READY")
    row = flow.instances()["web"]
    host = flow.lab.host(row["host"])
    wanted = {"instance": "web", "network": "data"}

    host.fail("libvirtd")
    said = change(flow, "attach_interface", wanted, expect=2)
    assert "AttachInterfaceFailed" in said
    host.restore()
    assert len(ports(flow, "web")) == 2 and len(macs(flow, "web")) == 1, (
        "the ledger has it: nobody knows what the host did"
    )
    assert "changed=0" not in change(flow, "attach_interface", wanted)
    assert len(everywhere(flow, "web")) == 2

    host.fail("libvirtd")
    said = change(flow, "detach_interface", wanted, expect=2)
    assert "DetachInterfaceFailed" in said
    host.restore()
    assert len(ports(flow, "web")) == 1 and len(flow.query("SELECT * FROM ports")) == 2, "its address is not free"
    done = flow.run("reboot", bootflow_names=["web"], bootflow_reboot_type="HARD")
    assert done.returncode == 0, done.output
    assert len(macs(flow, "web")) == 1, "a guest that is defined meanwhile has it no more"
    until_said(flow, "web", "BOOTFLOW-GUEST-READY")
    change(flow, "detach_interface", wanted)
    assert len(flow.query("SELECT * FROM ports")) == 1

    for playbook, sql in (
        ("attach_interface", "SELECT 1 FROM ports WHERE position = 1"),
        ("detach_interface", "SELECT 1 FROM ports WHERE position < 0"),
    ):
        process = flow.start(playbook, {"bootflow_interfaces": [wanted]})
        try:
            flow.wait_for(sql, 60, process)
        finally:
            flow.kill(process)
        time.sleep(3)
        audited = flow.run("audit")
        assert audited.returncode == 0, audited.output
        change(flow, playbook, wanted)
        assert len(everywhere(flow, "web")) == (2 if playbook == "attach_interface" else 1)
        assert len(flow.query("SELECT * FROM ports")) == len(ports(flow, "web"))

    process = flow.start("detach_interface", {"bootflow_interfaces": [{"instance": "web", "network": "guests"}]})
    try:
        flow.wait_for("SELECT 1 FROM ports WHERE position < 0", 60, process)
    finally:
        flow.kill(process)
    time.sleep(3)
    flow.delete("web")
    assert flow.residue() == {}, "its address is free with the instance"
