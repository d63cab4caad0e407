# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks that look after the ledger itself, on both databases: no compute host has a part in them."""

from __future__ import annotations

import json
import sqlite3
import stat
import threading
import time
import typing as t
from pathlib import Path

import psycopg
import pytest
from flow import run_plainly
from postgres import PASSWORD, PostgresServer

DAY = 86400.0


class Runner:
    def __init__(self, folder: Path):
        self.folder = folder
        self.calls = 0

    def __call__(self, playbook: str, *options: str, environment: t.Any = None, **variables: t.Any) -> tuple[int, str]:
        self.calls += 1
        path = self.folder / ("variables-%d.json" % self.calls)
        path.write_text(json.dumps({"bootflow_" + k: v for k, v in variables.items()}))
        arguments = ["bootflow.compute." + playbook, "-i", "localhost,", "-e", "@%s" % path, *options]
        return run_plainly(self.folder, *arguments, timeout=300, **(environment or {}))


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


@pytest.fixture(scope="module")
def server() -> t.Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def name(server: PostgresServer) -> t.Iterator[str]:
    name = server.create()
    with server.connect() as conn:
        conn.execute("ALTER DATABASE %s OWNER TO checked" % name)
    yield name
    server.drop(name)


def ok(answer: tuple[int, str]) -> str:
    code, output = answer
    assert code == 0, output
    return output


def refused(answer: tuple[int, str], *words: str) -> str:
    code, output = answer
    assert code != 0, output
    for word in words:
        assert word in output, output
    assert "Traceback" not in output
    return output


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_made_once_and_shown_before(run: Runner, request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    if kind == "sqlite":
        variables: dict[str, t.Any] = {"ledger_url": "sqlite:///%s/l/ledger.db" % tmp_path}
    else:
        server, name = request.getfixturevalue("server"), request.getfixturevalue("name")
        variables = {"ledger_url": server.url(name, "checked"), "ledger_password": PASSWORD}
    output = ok(run("ledger", "--check", "--diff", **variables))
    assert "Would create the ledger" in output and "changed=1" in output
    assert kind != "sqlite" or not (tmp_path / "l").exists()
    assert "changed=1" in ok(run("ledger", **variables))
    assert "changed=0" in ok(run("ledger", **variables))
    assert "changed=0" in ok(run("ledger", "--check", **variables))
    assert "changed=0" in ok(run("purge", **variables))
    assert "nothing" in ok(run("purge", history_retention_days=30, **variables))


def test_a_purge_is_shown_and_done(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    variables = {"ledger_url": str(path), "history_retention_days": 30}
    ok(run("ledger", **variables))
    now = time.time()
    connection = sqlite3.connect(path)
    for id, until in (("old", now - 31 * DAY), ("young", now - 29 * DAY)):
        connection.execute(
            "INSERT INTO runs (id, controller, boot_id, pid_namespace, pid, pid_started, actor, started_at, lease_until)"
            " VALUES (?, 'c', '', '', 1, 1, 'a', ?, ?)", (id, until, until),
        )  # fmt: skip
    connection.commit()
    output = ok(run("purge", "--check", **variables))
    assert (
        "Would purge from the ledger" in output
        and "what is older than" in output
        and "1 runs" in output
        and "changed=1" in output
    )
    assert connection.execute("SELECT count(*) FROM runs").fetchone() == (2,)
    output = ok(run("purge", **variables))
    assert "Purged from the ledger" in output and "what is older than" in output and "1 runs" in output
    assert connection.execute("SELECT id FROM runs").fetchall() == [("young",)]
    assert "changed=0" in ok(run("purge", **variables))
    connection.close()
    refused(run("purge", ledger_url=str(path), history_retention_days=-1), "InvalidInput", "Remedy")
    refused(run("purge", ledger_url=str(path), history_retention_days="long"), "bootflow_history_retention_days")


def test_a_backup(run: Runner, tmp_path: Path, server: PostgresServer) -> None:
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    ok(run("ledger", ledger_url=str(path)))
    variables = {"ledger_url": str(path), "ledger_backup": str(copy)}
    assert "changed=1" in ok(run("backup", "--check", **variables)) and not copy.exists()
    ok(run("backup", **variables))
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert "changed=0" in ok(run("ledger", ledger_url=str(copy)))
    refused(run("backup", **variables), "already exists", "Remedy")
    refused(run("backup", ledger_url=str(path)), "a backup needs dest")
    refused(run("backup", ledger_url=str(tmp_path / "none.db"), ledger_backup=str(tmp_path / "x")), "LedgerMissing")
    refused(run("backup", ledger_url=server.url("postgres"), ledger_backup=str(tmp_path / "x")), "pg_dump")


def test_a_password_is_never_shown(run: Runner, server: PostgresServer, name: str, tmp_path: Path) -> None:
    url = server.url(name, "checked")
    inline = url.replace("checked@", "checked:%s@" % PASSWORD)
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    file.chmod(0o600)
    outputs = [
        ok(run("ledger", "-vvv", "--diff", ledger_url=url, ledger_password=PASSWORD)),
        ok(run("ledger", "-vvv", ledger_url=url, ledger_password_file=str(file))),
        ok(run("ledger", "-vvv", ledger_url=url, environment={"BOOTFLOW_LEDGER_PASSWORD": PASSWORD})),
        ok(run("ledger", "-vvv", ledger_url=url, environment={"PGPASSWORD": PASSWORD})),
    ]
    assert not any("[WARNING]" in o and "password" in o for o in outputs)
    outputs.append(ok(run("ledger", "-vvv", ledger_url=inline, environment={"ANSIBLE_DISPLAY_ARGS_TO_STDOUT": "true"})))
    flat = " ".join(outputs[-1].split())
    assert "bootflow_ledger_url contains a password" in flat and "bootflow_ledger_password_file" in flat
    wrong = "wr0ng-Secret"
    for answer in (
        run("ledger", "-vvvv", ledger_url=url, ledger_password=wrong),
        run("ledger", "-vvvv", ledger_url=inline.replace(PASSWORD, wrong)),
        run("ledger", "-vvvv", ledger_url=url + "&password=" + wrong),
        run("ledger", "-vvvv", ledger_url="postgresql://checked:%s@[::1/x" % wrong),
        run("ledger", "-vvvv", ledger_url="mysql://checked:%s@h/x" % wrong),
    ):
        outputs.append(refused(answer, "Remedy"))
        assert wrong not in outputs[-1]
    assert not any(PASSWORD in o for o in outputs)
    file.chmod(0o644)
    refused(run("ledger", ledger_url=url, ledger_password_file=str(file)), "mode 0644", "chmod 600")
    refused(run("ledger", ledger_url=url, ledger_password_file=str(file), ledger_password="x"), "both set")
    refused(run("ledger", ledger_url=url, ledger_lock_timeout=-5), "bootflow_ledger_lock_timeout")


def test_nobody_there_is_told_at_once_and_a_restart_is_waited_for(
    run: Runner, server: PostgresServer, name: str
) -> None:
    variables = {"ledger_url": server.url(name)}
    ok(run("ledger", **variables))
    server.halt()
    begun = time.monotonic()
    refused(run("ledger", **variables), "Check that the server runs")
    assert time.monotonic() - begun < 30
    starter = threading.Timer(5.0, server.resume)
    starter.start()
    try:
        ok(run("list", **variables))  # in the middle of a run its tasks wait
    finally:
        starter.join()


def test_a_run_is_seen_by_its_name(run: Runner, server: PostgresServer, name: str) -> None:
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        with psycopg.connect(host=server.folder, user="postgres", dbname="postgres", autocommit=True) as conn:
            while not over.wait(0.002):
                query = "SELECT application_name FROM pg_stat_activity WHERE datname = %s"
                seen.update(r[0] for r in conn.execute(query, (name,)).fetchall())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        ok(run("ledger", ledger_url=server.url(name)))
    finally:
        over.set()
        thread.join()
    assert [s for s in seen if s.startswith("bootflow ")]
