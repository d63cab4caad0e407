# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger that is older than its hosts, as after a restored backup: nothing of a guest is removed, and none runs twice."""

from __future__ import annotations

import contextlib
import sqlite3
import time

import pytest
from flow import Flow, entry
from test_moves import COUNTING, READY, running, traces, wait_boots
from test_operations import operate, states_of


def backed_up(flow: Flow) -> bytes:
    """The ledger as it is now."""
    copy = flow.folder / "backup.db"
    with contextlib.closing(sqlite3.connect(flow.ledger_path)) as ledger:
        ledger.execute("VACUUM INTO ?", (str(copy),))
    said = copy.read_bytes()
    copy.unlink()
    return said


def restored(flow: Flow, ledger: bytes, only: str = "") -> None:
    """The ledger is an older one, whose hosts reported a moment ago. :arg only: the one host that instances may go to"""
    for path in flow.folder.glob(flow.ledger_path.name + "*"):
        path.unlink()
    flow.ledger_path.write_bytes(ledger)
    write(flow, "UPDATE compute_nodes SET reported_at = ?", time.time() + 600)
    if only:
        write(flow, "UPDATE compute_nodes SET service_disabled = 1 WHERE host != ?", only)


def write(flow: Flow, statement: str, *values: object) -> None:
    with contextlib.closing(sqlite3.connect(flow.ledger_path, timeout=30, isolation_level=None)) as ledger:
        ledger.execute(statement, values)


def moved(flow: Flow, operation: str = "migrate") -> tuple[bytes, str, str]:
    """A guest that moved after a backup: (the backup, its former host, its host)."""
    flow.boot(entry("web", user_data=COUNTING), **READY)
    source = str(flow.instances()["web"]["host"])
    ledger = backed_up(flow)
    operate(flow, operation, "web")
    here = str(flow.instances()["web"]["host"])
    if operation == "migrate":  # the console's log of one that goes over running begins anew
        wait_boots(flow, "web", 2)
    return ledger, source, here


@pytest.mark.long
def test_a_move_that_its_new_host_refuses_removes_nothing(flow: Flow) -> None:
    ledger, source, here = moved(flow)
    restored(flow, ledger, only=here)
    said = operate(flow, "migrate", "web", expect=2)
    assert "%s already has a domain of instance" % here in said, said
    assert running(flow, "web") == [here]  # nothing was removed, and nothing was started on the former host
    assert traces(flow, "web")[here] == (True, "running")
    assert not flow.query("SELECT 1 FROM cleanups") and len(flow.query("SELECT 1 FROM claims")) == 1
    flow.check_ledger()

    said = flow.run("audit").output
    assert "instance_elsewhere" in said, said
    for operation, variables in (
        ("start", {}),
        ("reboot", {"bootflow_reboot_type": "HARD"}),
        ("migrate", {}),
        ("rebuild", {}),
    ):
        refused = operate(flow, operation, "web", expect=2, **variables)
        assert "InstanceElsewhere" in refused and "%s has the domain of the instance (running)" % here in refused, (
            refused
        )
    refused = flow.run("apply", bootflow_instances=[entry("web", state="running", user_data=COUNTING)])
    assert refused.returncode == 2 and "InstanceElsewhere" in refused.output, refused.output
    assert running(flow, "web") == [here]


@pytest.mark.long
def test_a_guest_that_went_over_running_is_not_started_again(flow: Flow) -> None:
    ledger, source, here = moved(flow, "live_migrate")
    restored(flow, ledger, only=here)
    write(flow, "UPDATE compute_nodes SET reported_at = 0")  # all hosts report first
    for operation in ("live_migrate", "migrate", "start", "stop"):
        operate(flow, operation, "web", expect=0 if operation == "stop" else 2)
        assert running(flow, "web") == [here], operation


@pytest.mark.long
def test_a_live_migration_that_its_new_host_refuses_leaves_what_is_there(flow: Flow) -> None:
    flow.boot(entry("web", user_data=COUNTING), **READY)
    row = flow.instances()["web"]
    there = next(h for h in flow.lab.hosts if h.name != row["host"])
    folder = "/var/lib/bootflow/instances/%s" % row["uuid"]
    there.run("sh", "-c", "mkdir -p %s && echo data > %s/disk" % (folder, folder))
    write(flow, "UPDATE compute_nodes SET reported_at = ?", time.time() + 600)
    said = operate(flow, "live_migrate", "web", expect=2, bootflow_live_migrate_host=there.name)
    assert "%s already has a folder of instance" % there.name in said, said
    assert there.run("cat", folder + "/disk").stdout.strip() == "data" and running(flow, "web") == [row["host"]]
    flow.run("audit")
    said = operate(flow, "migrate", "web")  # to the third host: the one with the folder is none
    assert flow.instances()["web"]["host"] not in (row["host"], there.name), said
    assert there.run("cat", folder + "/disk").stdout.strip() == "data"
    operate(flow, "confirm_resize", "web")
    there.run("rm", "-rf", folder)
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_what_was_decided_after_the_backup_is_not_decided_again(flow: Flow) -> None:
    """A revert needs the former host's disks; a confirmation needs the guest where it is."""
    ledger, source, here = moved(flow)
    unconfirmed = backed_up(flow)
    operate(flow, "confirm_resize", "web")
    restored(flow, unconfirmed)
    said = operate(flow, "revert_resize", "web", expect=2)
    assert "host %s, which it came from, has nothing of it" % source in said, said
    assert running(flow, "web") == [here] and states_of(flow) == {("resized", None)}
    operate(flow, "confirm_resize", "web")
    assert running(flow, "web") == [here] and states_of(flow) == {("active", None)}

    operate(flow, "migrate", "web")
    there = str(flow.instances()["web"]["host"])
    unconfirmed = backed_up(flow)
    operate(flow, "revert_resize", "web")
    assert running(flow, "web") == [here]
    restored(flow, unconfirmed)
    write(flow, "UPDATE compute_nodes SET reported_at = 0")
    said = operate(flow, "confirm_resize", "web", expect=2)
    assert "%s has not reported the guest" % there in said, said
    assert running(flow, "web") == [here]
    operate(flow, "revert_resize", "web")
    assert running(flow, "web") == [here] and states_of(flow) == {("active", None)}
    flow.delete("web")
    assert flow.residue() == {}


@pytest.mark.long
def test_an_evacuation_leaves_the_guest_of_its_new_host(flow: Flow) -> None:
    ledger, source, here = moved(flow)
    restored(flow, ledger, only=here)
    write(flow, "UPDATE compute_nodes SET forced_down = 1 WHERE host = ?", source)
    said = operate(flow, "evacuate", "web", expect=2, bootflow_instances=[entry("web", user_data=COUNTING)])
    assert "%s already has a domain of instance" % here in said, said
    assert traces(flow, "web")[here] == (True, "running")
    write(flow, "UPDATE compute_nodes SET reported_at = 0")
    flow.run("audit")
    said = operate(flow, "evacuate", "web", expect=2, bootflow_instances=[entry("web", user_data=COUNTING)])
    assert "InstanceElsewhere" in said, said
    assert traces(flow, "web")[here] == (True, "running")
