# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shelved instances on real hosts: what is on their disks, and what hosts that they leave, or that fail, still have of them."""

from __future__ import annotations

import time

import pytest
from flow import Flow, entry
from test_operations import READY, guest, operate, states_of, wait_ready
from test_snapshots import Stores

# Each start tells the label of the root disk, and then writes another one.
MARKER = r"""#!/bin/sh
label=$(dd if=/dev/vda1 bs=1 skip=43 count=11 2>/dev/null | tr -d ' ')
[ "$label" = FIRST ] && next=SECOND || next=FIRST
printf '%-11s' $next | dd of=/dev/vda1 bs=1 seek=43 conv=notrunc,fsync 2>/dev/null
echo label was $label >/dev/console
"""


@pytest.fixture
def stores(flow: Flow) -> Stores:
    return Stores(flow)


def addresses(flow: Flow) -> list[str]:
    return sorted(row["ip_address"] for row in flow.query("SELECT ip_address FROM ip_allocations"))


def another_host(flow: Flow, name: str) -> str:
    return next(host.name for host in flow.lab.hosts if host.name != name)


@pytest.mark.parametrize("before", ["active", pytest.param("suspended", marks=pytest.mark.long)])
def test_a_shelved_instance_comes_back_on_another_host(flow: Flow, stores: Stores, before: str) -> None:
    flow.boot(entry("web", user_data=MARKER), **READY)
    wait_ready(flow, "web", "label was")
    row = flow.instances()["web"]
    address = addresses(flow)
    if before == "suspended":
        operate(flow, "suspend", "web")
    done = operate(flow, "shelve", "web")
    assert states_of(flow) == {("shelved_offloaded", None)} and "image web-shelved" in done
    assert list(stores.rows()) == ["web-shelved"] and stores.left() == []
    assert flow.left_on_hosts() == {} and addresses(flow) == address
    assert flow.query("SELECT 1 FROM claims") == []
    assert "changed=0" in operate(flow, "shelve", "web")

    host = another_host(flow, row["host"])
    operate(flow, "unshelve", "web", bootflow_unshelve_host=host, **READY)
    assert flow.instances()["web"]["host"] == host and states_of(flow) == {("active", None)}
    wait_ready(flow, "web", "label was FIRST")
    assert guest(flow, "web") == "running" and addresses(flow) == address
    assert stores.rows() == {}
    audited = flow.run("audit").output
    assert "nothing to repair" in audited, audited
    operate(flow, "reboot", "web", bootflow_reboot_type="HARD")
    flow.check_ledger()
    flow.delete("web")
    assert flow.residue() == {}
    assert flow.run("image_delete", bootflow_image_names=["web-shelved"]).returncode == 0
    assert list(stores.here.iterdir()) == []


def test_a_shelved_instance_starts_on_its_host(flow: Flow, stores: Stores) -> None:
    flow.boot(entry("web", user_data=MARKER), **READY)
    wait_ready(flow, "web", "label was")
    host = flow.instances()["web"]["host"]
    operate(flow, "shelve", "web", bootflow_shelved_offload_time=-1, bootflow_snapshot_store="shared")
    assert states_of(flow) == {("shelved", None)} and guest(flow, "web") == "shut off"
    operate(flow, "unshelve", "web")
    wait_ready(flow, "web", "label was FIRST")
    assert flow.instances()["web"]["host"] == host and stores.rows() == {}
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
@pytest.mark.parametrize("task_state", ["shelving_image_uploading", "shelving_offloading"])
def test_a_shelve_that_is_killed(flow: Flow, stores: Stores, task_state: str) -> None:
    """At any moment there are the disks of the instance, or a whole image. The same command, run again, ends it."""
    fill = "dd if=/dev/urandom of=/dev/vda bs=1M seek=200 count=300 conv=notrunc,fsync 2>/dev/null\necho filled\n"
    flow.boot(entry("web", user_data=MARKER + fill), **READY)
    wait_ready(flow, "web", "filled")
    process = flow.start("shelve", {"bootflow_names": ["web"]})
    flow.wait_for("SELECT 1 FROM instances WHERE task_state = '%s'" % task_state, 120, process)
    time.sleep(0.5)
    flow.kill(process)
    deadline = time.monotonic() + 120
    while {task for _state, task in states_of(flow)} != {None}:
        done = flow.run("audit").output
        assert time.monotonic() < deadline, done
        time.sleep(1)
    operate(flow, "shelve", "web")
    assert states_of(flow) == {("shelved_offloaded", None)} and flow.left_on_hosts() == {}
    operate(flow, "unshelve", "web", **READY)
    wait_ready(flow, "web", "label was")
    flow.delete("web")
    assert flow.run("image_delete", bootflow_image_names=["web-shelved"]).returncode == 0  # and files of deleted images
    assert flow.residue() == {} and stores.left() == []


def test_a_host_that_fails_keeps_nothing(flow: Flow, stores: Stores) -> None:
    """The host that an instance gets has no room for its disk: it is shelved as before, and comes to another host."""
    flow.boot(entry("web", user_data=MARKER), **READY)
    wait_ready(flow, "web", "label was")
    host = another_host(flow, flow.instances()["web"]["host"])
    operate(flow, "shelve", "web")
    base = "/var/lib/bootflow/instances/_base"
    flow.lab.host(host).run("sh", "-c", "mkdir -p %s && mv %s %s.away && touch %s" % (base, base, base, base))
    try:
        operate(flow, "unshelve", "web", expect=2, bootflow_unshelve_host=host)
    finally:
        flow.lab.host(host).run("sh", "-c", "rm %s && mv %s.away %s" % (base, base, base))
    assert states_of(flow) == {("shelved_offloaded", None)} and list(stores.rows()) == ["web-shelved"]
    assert flow.left_on_hosts() == {} and flow.query("SELECT 1 FROM claims") == []
    operate(flow, "unshelve", "web", **READY)
    wait_ready(flow, "web", "label was FIRST")
    flow.delete("web")
    assert flow.residue() == {}
