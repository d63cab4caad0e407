# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import multiprocessing
import os
import pathlib
import random
import stat
import subprocess
import time
import typing as t

import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import backup
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.ledgers import migrate
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

FORK = multiprocessing.get_context("fork")


def again(url: str) -> World:
    """The ledger seen by somebody who draws other ids."""
    world = World(url)
    world.rng = random.SystemRandom()
    return world


@pytest.fixture
def small(tmp_path: pathlib.Path) -> t.Iterator[World]:
    migrate(str(tmp_path / "ledger.db"))
    world = World(str(tmp_path / "ledger.db"))
    world.report("h1", memory=50)
    yield world
    world.ledger.close()


def test_a_backup_is_the_ledger(small: World, tmp_path: pathlib.Path) -> None:
    small.boot("web")
    before = small.everything()
    copy = tmp_path / "copy.db"
    old = os.umask(0)
    try:
        assert backup.backup(small.ledger, str(copy)) == copy.stat().st_size > 0
    finally:
        os.umask(old)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    small.boot("later")
    other = again(str(copy))
    assert other.everything() == before
    other.boot("goes-on")
    assert {r.display_name for r in other.rows(tables.instances)} == {"web", "goes-on"}
    other.ledger.close()
    assert sorted(p.name for p in tmp_path.iterdir() if "backup" in p.name) == []


def test_restoring_a_backup(small: World, tmp_path: pathlib.Path) -> None:
    """As docs/backup.md says it."""
    uuid = small.boot("web")
    backup.backup(small.ledger, str(tmp_path / "copy.db"))
    small.delete(uuids=[uuid])
    small.removed("h1", [uuid])
    small.finish()
    small.ledger.close()
    path = tmp_path / "ledger.db"
    for suffix in ("-wal", "-shm"):
        pathlib.Path(str(path) + suffix).unlink(missing_ok=True)
    subprocess.run(["install", "-m", "600", str(tmp_path / "copy.db"), str(path)], check=True)
    restored = World(str(path))
    assert restored.state(uuid)[0] == "active"
    with restored.ledger.read() as tx:
        restored.check(tx)
    restored.ledger.close()


def _write(path: str, name: str, count: t.Any, stop: t.Any) -> None:
    world = again(path)
    while not stop.is_set():
        world.accept(request("%s-%d" % (name, count.value), networks=()), run=name)
        count.value += 1


@pytest.mark.slow
def test_backups_while_runs_write(small: World, tmp_path: pathlib.Path) -> None:
    stop, counts = FORK.Event(), [FORK.Value("i", 0) for _w in range(2)]
    workers = [FORK.Process(target=_write, args=(small.url, "w%d" % w, counts[w], stop)) for w in range(2)]
    for worker in workers:
        worker.start()
    copies: list[pathlib.Path] = []
    end = time.monotonic() + 60
    try:
        while min(c.value for c in counts) <= 3 or len(copies) <= 3:
            assert time.monotonic() < end, "both write: %s" % [c.value for c in counts]
            copies.append(tmp_path / ("copy-%d.db" % len(copies)))
            backup.backup(small.ledger, str(copies[-1]))
            time.sleep(0.1)
    finally:
        stop.set()
        for worker in workers:
            worker.join(60)
    copies.append(tmp_path / "last.db")
    backup.backup(small.ledger, str(copies[-1]))
    last = -1
    for copy in copies:
        world = World(str(copy))
        accepted = world.count(tables.instances)
        assert accepted >= last  # each one is a moment, and no part of a transaction is in it
        assert world.count(tables.instance_actions) == accepted == world.count(tables.request_specs)
        last = accepted
        world.ledger.close()
    assert last > 0


@pytest.mark.parametrize("there", ["file", "folder", "link", "dangling"])
def test_what_is_there_is_never_replaced(small: World, tmp_path: pathlib.Path, there: str) -> None:
    dest = tmp_path / "dest.db"
    if there == "file":
        dest.write_text("precious")
    elif there == "folder":
        dest.mkdir()
    else:
        dest.symlink_to(tmp_path / ("ledger.db" if there == "link" else "nowhere"))
    with pytest.raises(errors.InvalidInput) as caught:
        backup.backup(small.ledger, str(dest))
    assert "already exists" in caught.value.message and caught.value.status == 400
    assert there != "file" or dest.read_text() == "precious"


def test_what_came_meanwhile_is_not_replaced(
    small: World, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dest = tmp_path / "dest.db"
    monkeypatch.setattr(backup, "_sync", lambda _path: dest.write_text("precious"))
    with pytest.raises(errors.InvalidInput):
        backup.backup(small.ledger, str(dest))
    assert dest.read_text() == "precious"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("dest", "words"), [("copy.db", "absolute"), ("/nowhere/at/all/copy.db", "Create the directory")]
)
def test_no_place_for_it(small: World, dest: str, words: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        backup.backup(small.ledger, dest)
    assert words in caught.value.remedy


def test_a_full_disk_leaves_nothing(small: World, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "ledger-test", str(folder)], check=True)
    try:
        with pytest.raises(errors.LedgerError) as caught:
            backup.backup(small.ledger, str(folder / "copy.db"))
        assert "full" in caught.value.message and "Free space" in caught.value.remedy
        assert list(folder.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_postgresql_has_its_own_tool(postgres: t.Any, tmp_path: pathlib.Path) -> None:
    ledger = database.open_ledger(postgres.emptied())
    with pytest.raises(errors.InvalidInput) as caught:
        backup.backup(ledger, str(tmp_path / "copy"))
    assert "pg_dump" in caught.value.remedy
    ledger.close()


def test_dump_and_restore_of_postgresql(postgres: t.Any, tmp_path: pathlib.Path) -> None:
    """As docs/backup.md says it."""
    world = World(postgres.emptied())
    world.report("h1", memory=50)
    world.boot("web")
    before = world.everything()
    name = postgres.migrated.rpartition("?")[0].rpartition("/")[2]
    dump = "%s/ledger.dump" % postgres.folder
    where = ("-h", postgres.folder, "-U", "postgres")
    postgres.run("pg_dump", *where, "--format=custom", "--file=" + dump, name)
    restored = postgres.create()
    try:
        how = ("--no-owner", "--exit-on-error", "--single-transaction")
        postgres.run("pg_restore", *where, *how, "--dbname=" + restored, dump)
        world.delete(names=["web"])
        other = again(postgres.url(restored))
        assert other.everything() == before
        other.boot("goes-on")  # the counters of ids came along
        with other.ledger.read() as tx:
            other.check(tx)
            assert tx.execute(sa.select(sa.func.count()).select_from(tables.instances)).scalar() == 2
        other.ledger.close()
    finally:
        world.ledger.close()
        postgres.drop(restored)
        os.unlink(dump)
