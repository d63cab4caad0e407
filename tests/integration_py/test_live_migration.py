# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guests that move to other hosts while they run, and count meanwhile; that stay where they are; and whose runs die on the way."""

from __future__ import annotations

import re
import time

from flow import Flow, entry
from test_moves import COUNTING, address_of, traces
from test_operations import operate, states_of, wait_ready

READY = {"bootflow_wait_console": "BOOTFLOW-GUEST-READY"}
# It counts its boots on its disk, and then seconds in its memory.
TICKING = COUNTING + "(i=0; while :; do i=$((i+1)); echo tick $i >/dev/console; sleep 1; done) &\n"
KEPT = "/var/lib/bootflow/console-%s"


def where(flow: Flow, name: str) -> str:
    return str(flow.instances()[name]["host"])


def keep_console(flow: Flow, name: str) -> None:
    """Its console on its present host stays when the host is cleaned."""
    row = flow.instances()[name]
    log = "/var/lib/bootflow/instances/%s/console.log" % row["uuid"]
    flow.lab.host(row["host"]).run("ln", "-f", log, KEPT % row["uuid"])


def said(flow: Flow, name: str, source: str) -> str:
    """What it printed there before, and here since."""
    row = flow.instances()[name]
    before = flow.lab.host(source).run("cat", KEPT % row["uuid"]).stdout
    return before + flow.console(row["host"], row["uuid"])


def ticks(text: str) -> list[int]:
    """Without those of its boot, in whose lines others are."""
    return [n for n in map(int, re.findall(r"^tick (\d+)\r?$", text, re.MULTILINE)) if n > 4]


def wait_ticks(flow: Flow, name: str, more: int = 3) -> None:
    """It counts on where it is."""
    row = flow.instances()[name]
    begun = len(ticks(flow.console(row["host"], row["uuid"])))
    end = time.monotonic() + 60
    while len(ticks(flow.console(row["host"], row["uuid"]))) < begun + more:
        assert time.monotonic() < end, flow.console(row["host"], row["uuid"])
        time.sleep(0.5)


def statuses(flow: Flow) -> list[str]:
    return [r["status"] for r in flow.query("SELECT status FROM migrations ORDER BY id")]


def ended(flow: Flow) -> None:
    """No process and no socket of a migration is left."""
    for host in flow.lab.hosts:
        assert "domain_migration" not in host.run("sh", "-c", "ps axww -o args= || true").stdout
        assert not host.run("sh", "-c", "ls -d /run/libvirt/bf-* 2>/dev/null || true").stdout


def test_guests_go_over_while_they_count(flow: Flow) -> None:
    home = flow.lab.hosts[0].name
    flow.boot(entry("web", max_count=2, user_data=TICKING), **READY, bootflow_hosts=[home])
    names = ["web-1", "web-2"]
    addresses = {n: address_of(flow, n) for n in names}
    for name in names:
        wait_ticks(flow, name)
        keep_console(flow, name)

    planned = operate(flow, "live_migrate", *names, options=("--check", "--diff"))
    assert "Would live_migrate" in planned and {where(flow, n) for n in names} == {home}
    refused = operate(flow, "live_migrate", "web-1", expect=2, bootflow_live_migrate_host=home)
    assert "UnableToMigrateToSelf" in refused
    refused = operate(flow, "live_migration_abort", "web-1", expect=2)
    assert "Cannot 'live_migrate_abort'" in refused and states_of(flow) == {("active", None)}

    done = operate(flow, "live_migrate", *names)
    assert "stood still for" in done and states_of(flow) == {("active", None)}
    for name in names:
        row = flow.instances()[name]
        assert row["host"] != home and row["launched_on"] == row["host"]
        assert traces(flow, name) == {row["host"]: (True, "running")} and address_of(flow, name) == addresses[name]
        wait_ticks(flow, name)
        counted = ticks(said(flow, name, home))
        assert counted == list(range(5, len(counted) + 5)), counted
    assert statuses(flow) == ["completed"] * 2 and len(flow.query("SELECT 1 FROM claims")) == 2
    assert not flow.query("SELECT 1 FROM cleanups")
    flow.check_ledger()
    ended(flow)

    operate(flow, "reboot", "web-1", bootflow_reboot_type="HARD")
    wait_ready(flow, "web-1")
    row = flow.instances()["web-1"]
    assert "BOOTS=2=" in flow.console(row["host"], row["uuid"]), "its disk did not go along"
    agreed = flow.run("audit")
    assert agreed.returncode == 0, agreed.output
    flow.delete(*names)
    assert flow.residue() == {}
