# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances that are deleted and can be restored, on real hosts: off, brought back, deleted for good by force and by their time."""

from __future__ import annotations

import time

import pytest
from flow import Flow, entry
from test_operations import guest, operate, states_of

KEPT = {"bootflow_reclaim_instance_interval": 3600}


@pytest.mark.long
@pytest.mark.usefixtures("still_guests")
def test_a_rescued_one_and_one_without_a_domain_are_restored_to_what_the_ledger_has(flow: Flow) -> None:
    flow.boot(entry("web", max_count=2))
    operate(flow, "rescue", "web-1")
    operate(flow, "delete", "web-1", "web-2", **KEPT)
    rows = flow.instances()
    virsh = {n: (flow.lab.host(rows[n]["host"]), rows[n]["uuid"]) for n in rows}
    host, uuid = virsh["web-2"]
    host.run("virsh", "-c", "qemu:///system", "undefine", uuid)
    operate(flow, "restore", "web-1", "web-2")
    assert states_of(flow) == {("active", None)} and {guest(flow, n) for n in rows} == {"running"}
    host, uuid = virsh["web-1"]
    assert "disk.rescue" not in host.run("virsh", "-c", "qemu:///system", "dumpxml", uuid).stdout
    flow.delete("web-1", "web-2")
    assert flow.residue() == {}


def test_deleted_restored_and_reclaimed(flow: Flow) -> None:
    names = ["web-1", "web-2", "web-3"]
    wanted = [entry("web", max_count=3)]
    flow.boot(*wanted)
    planned = operate(flow, "delete", *names, options=("--check",), **KEPT)
    assert "off, can be restored for 3600 s" in planned and states_of(flow) == {("active", None)}
    claims = flow.query("SELECT count(*) AS n FROM claims")[0]["n"]

    deleted = operate(flow, "delete", *names, **KEPT)
    assert "Deleted, can be restored for 3600 s: web-1, web-2, web-3" in deleted
    assert states_of(flow) == {("soft-delete", None)} and {guest(flow, n) for n in names} == {"shut off"}
    assert flow.query("SELECT count(*) AS n FROM claims")[0]["n"] == claims == 3
    flow.check_ledger()
    assert "soft-delete" in flow.run("list").output
    refused = flow.boot(*wanted, expect=2)
    assert "bootflow.compute.restore" in refused.output and states_of(flow) == {("soft-delete", None)}
    assert "changed=0" in operate(flow, "delete", *names, **KEPT)

    operate(flow, "restore", "web-1")
    assert guest(flow, "web-1") == "running" and flow.instances()["web-1"]["vm_state"] == "active"
    assert "Deleted: web-2" in operate(flow, "force_delete", "web-2", **KEPT)
    assert sorted(flow.instances()) == ["web-1", "web-3"]
    early = flow.run("reclaim", **KEPT)
    assert early.returncode == 0 and "Deleted: nothing" in early.output
    time.sleep(1)
    late = flow.run("reclaim", bootflow_reclaim_instance_interval=1)
    assert late.returncode == 0 and "Deleted: web-3" in late.output
    assert sorted(flow.instances()) == ["web-1"]
    flow.delete("web-1")
    assert flow.residue() == {}
