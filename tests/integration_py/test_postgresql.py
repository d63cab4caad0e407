# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole flow with its ledger in PostgreSQL: runs and controllers at once, a server that restarts under a run, a restored backup."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
import yaml
from flow import entry
from postgres import PASSWORD
from postgres_flow import PostgresFlow


def test_two_runs_share_a_ledger(postgres_flow: PostgresFlow) -> None:
    flow = postgres_flow
    flow.boot(entry("first"))
    flow.lab.host("compute2").fail("spawn")
    other = flow.start("boot", {"bootflow_instances": [entry("left", max_count=3)]})
    mine = flow.boot(entry("right", max_count=3), options=("-vvv",))
    assert other.wait(timeout=300) == 0, (flow.folder / "killed.log").read_text()[-3000:]
    rows = flow.instances()
    assert len(rows) == 7 and {r["vm_state"] for r in rows.values()} == {"active"}
    addresses = [r["ip_address"] for r in flow.query("SELECT ip_address FROM ip_allocations")]
    assert len(addresses) == len(set(addresses)) == 7
    assert not [n for n, r in rows.items() if n != "first" and r["host"] == "compute2"]
    flow.check_ledger()
    assert PASSWORD not in mine.output and PASSWORD not in (flow.folder / "killed.log").read_text()
    again = flow.boot(entry("right", max_count=3))
    assert "changed=0" in again.output
    flow.lab.host("compute2").restore()
    flow.delete(*rows)
    assert flow.residue() == {}


def slice_of(flow: PostgresFlow, number: int, entries: t.Sequence[dict[str, t.Any]]) -> subprocess.Popen[bytes]:
    """A slice of a job as AWX starts it: ansible-runner in a folder of its own, with the hosts that fall to this slice."""
    folder = flow.folder / ("slice-%d" % number)
    for name in ("project", "inventory", "env"):
        (folder / name).mkdir(parents=True)
    inventory = yaml.safe_load(Path(flow.lab.inventory).read_text())
    (group,) = inventory["all"]["children"].values()
    hosts = sorted(group["hosts"])
    group["hosts"] = {hosts[number % len(hosts)]: group["hosts"][hosts[number % len(hosts)]]}
    (folder / "inventory" / "hosts.yml").write_text(yaml.safe_dump(inventory))
    (folder / "project" / "boot.yml").write_text("- import_playbook: bootflow.compute.boot\n")
    (folder / "env" / "extravars").write_text(json.dumps({**flow.variables, "bootflow_instances": list(entries)}))
    programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    with (folder / "out").open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "ansible_runner", "run", str(folder), "-p", "boot.yml", "--ident", "boot"],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=flow.environment(PATH=programs), cwd=folder,
        )  # fmt: skip


def finish(flow: PostgresFlow, slices: t.Mapping[int, subprocess.Popen[bytes]]) -> None:
    try:
        for number, process in slices.items():
            assert process.wait(600) == 0, (flow.folder / ("slice-%d" % number) / "out").read_text()[-4000:]
    finally:
        for process in slices.values():
            if process.poll() is None:
                flow.kill(process)


@pytest.mark.long
def test_many_controllers_share_a_ledger(postgres_flow: PostgresFlow) -> None:
    """Eight at once: each boots what it was told to, where its slice is, at the first attempt."""
    flow, each = postgres_flow, 3
    flow.boot(entry("first", max_count=3))  # images and networks are there now
    seconds = []
    wanted = {"first-%d" % n: None for n in (1, 2, 3)}
    for numbers in ((0,), range(1, 9)):
        begun = time.monotonic()
        finish(flow, {n: slice_of(flow, n, [entry("slice%d" % n, max_count=each)]) for n in numbers})
        seconds.append(time.monotonic() - begun)
        wanted.update({"slice%d-%d" % (n, i + 1): "compute%d" % (n % 3 + 1) for n in numbers for i in range(each)})
    rows = flow.instances()
    assert {n: r["host"] if n.startswith("slice") else None for n, r in rows.items()} == wanted
    assert {r["vm_state"] for r in rows.values()} == {"active"}
    assert flow.query("SELECT message FROM instance_faults") == []
    (attempts,) = flow.query("SELECT count(*) AS n FROM instance_actions WHERE action = 'create'")
    assert attempts["n"] == len(wanted)
    addresses = [r["ip_address"] for r in flow.query("SELECT ip_address FROM ip_allocations")]
    assert len(addresses) == len(set(addresses)) == len(wanted)
    flow.check_ledger()
    one, eight = each / seconds[0], 8 * each / seconds[1]
    print("\nmany controllers: one %.2f instances/s, eight %.2f (%.1f times)" % (one, eight, eight / one))
    flow.delete(*rows)
    assert flow.residue() == {}


@pytest.mark.long
def test_a_server_that_restarts_under_a_run(postgres_flow: PostgresFlow) -> None:
    flow = postgres_flow
    flow.boot(entry("first"))  # images and networks are there now
    for number, state in enumerate(("networking", "block_device_mapping", "spawning")):
        names = ["restart-%d-%d" % (number, i) for i in range(3)]
        run = flow.start("boot", {"bootflow_instances": [entry(n) for n in names]})
        flow.wait_for(
            "SELECT 1 FROM instances WHERE deleted = '' AND display_name LIKE 'restart-%d-%%%%' AND"
            " (task_state = '%s' OR vm_state = 'active')" % (number, state),
            120,
            run,
        )
        flow.server.restart("immediate" if number == 2 else "fast")
        assert run.wait(timeout=300) == 0, (flow.folder / "killed.log").read_text()[-3000:]
        rows = flow.instances()
        assert {rows[n]["vm_state"] for n in names} == {"active"}
        flow.check_ledger()
    flow.delete(*flow.instances())
    assert flow.residue() == {}


@pytest.mark.long
def test_a_restored_backup_goes_on(postgres_flow: PostgresFlow) -> None:
    flow, server = postgres_flow, postgres_flow.server
    flow.boot(entry("kept", max_count=2))
    before = {n: (r["uuid"], r["host"], r["vm_state"]) for n, r in flow.instances().items()}
    name = flow.dsn.rpartition("?")[0].rpartition("/")[2]
    dump = "%s/ledger.dump" % server.folder
    where = ("-h", server.folder, "-U", "postgres")
    server.run("pg_dump", *where, "--format=custom", "--file=" + dump, "--dbname=" + name)
    server.drop(name)  # the disaster
    restored = server.create()
    how = ("--no-owner", "--role=checked", "--exit-on-error", "--single-transaction")
    with server.connect() as conn:
        conn.execute("ALTER DATABASE %s OWNER TO checked" % restored)
    server.run("pg_restore", *where, *how, "--dbname=" + restored, dump)
    flow.use(restored)
    assert {n: (r["uuid"], r["host"], r["vm_state"]) for n, r in flow.instances().items()} == before
    assert "changed=0" in flow.boot(entry("kept", max_count=2)).output
    flow.boot(entry("more"))
    flow.check_ledger()
    flow.delete(*flow.instances())
    assert flow.residue() == {}
