# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import inspect
import multiprocessing
import re
import typing as t

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database, migrations_runner, tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.migrations import r0001

from .world import World


def fresh(url: str) -> database.Ledger:
    return database.open_ledger(url, create=True, check_revision=False)


def shape(ledger: database.Ledger) -> set[str]:
    """Every table, column, index and constraint, in the database's own words."""
    with ledger.read() as conn:
        if conn.dialect.name == "sqlite":
            found = conn.execute(
                sa.text("SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_master")
            ).scalars()
            # the order of the constraints of a table says nothing
            return {
                " ".join(sorted(re.split(r",\s*\n?\s*", re.sub(r"[\s()]+", " ", f))))
                for f in found
                if migrations_runner.TABLE not in f
            }
        queries = (
            (
                "SELECT table_name || ' ' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' ||"
                " coalesce(character_maximum_length, 0) || ' ' || coalesce(column_default, '')"
                " FROM information_schema.columns WHERE table_schema = 'public'"
            ),
            "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
            (
                "SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid)"
                " FROM pg_constraint WHERE connamespace = 'public'::regnamespace"
            ),
        )
        found = {f for q in queries for f in conn.execute(sa.text(q)).scalars()}
        return {f for f in found if migrations_runner.TABLE not in f}


def test_from_nothing_to_the_newest_and_once_more(empty_url: str) -> None:
    ledger = fresh(empty_url)
    with ledger.read() as conn:
        assert migrations_runner.current_revision(conn) is None
        assert migrations_runner.pending(conn) == list(migrations_runner.REVISIONS)
        with pytest.raises(errors.LedgerTooOld) as caught:
            migrations_runner.check_revision(conn, "the url")
    assert "is at revision none" in caught.value.message and caught.value.remedy
    with ledger.write() as conn:
        assert migrations_runner.upgrade(conn) == list(migrations_runner.REVISIONS)
    with ledger.write() as conn:
        assert migrations_runner.upgrade(conn) == []
    with ledger.read() as conn:
        assert migrations_runner.current_revision(conn) == migrations_runner.HEAD
        migrations_runner.check_revision(conn, "the url")
    ledger.close()
    database.open_ledger(empty_url).close()


def test_a_migrated_ledger_is_what_the_tables_say(empty_url: str) -> None:
    ledger = fresh(empty_url)
    with ledger.write() as conn:
        migrations_runner.upgrade(conn)
    with ledger.read() as conn:
        context = MigrationContext.configure(
            conn,
            opts={
                "compare_type": True,
                "include_name": lambda name, kind, _parents: kind != "table" or name != migrations_runner.TABLE,
            },
        )
        assert compare_metadata(context, tables.metadata) == []
    migrated = shape(ledger)
    with ledger.write() as conn:
        tables.metadata.drop_all(conn)
    assert not any("instances" in line for line in shape(ledger))
    with ledger.write() as conn:
        tables.metadata.create_all(conn)
    assert migrated == shape(ledger)  # also the CHECK constraints, which compare_metadata does not look at
    assert sum("ck_instances_vm_state" in line for line in migrated) == 1
    ledger.close()


def test_the_first_revision_is_frozen() -> None:
    assert not re.search(r"import .*\b(tables|states)\b", inspect.getsource(r0001))


def test_a_newer_ledger_is_refused(world: World) -> None:
    with world.ledger.write() as conn:
        conn.execute(sa.text("INSERT INTO ledger_revision (revision) VALUES ('9999')"))
    try:
        with pytest.raises(errors.LedgerTooNew) as caught:
            database.open_ledger(world.url)
        assert "9999" in caught.value.message and "Upgrade" in caught.value.remedy
        ledger = database.open_ledger(world.url, check_revision=False)
        with pytest.raises(errors.LedgerTooNew), ledger.write() as conn:
            migrations_runner.upgrade(conn)
        ledger.close()
    finally:
        with world.ledger.write() as conn:
            conn.execute(sa.text("DELETE FROM ledger_revision WHERE revision = '9999'"))


def test_an_older_ledger_is_refused_until_it_is_upgraded(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = fresh(empty_url)
    with ledger.write() as conn:
        migrations_runner.upgrade(conn)
    ledger.close()
    monkeypatch.setattr(migrations_runner, "REVISIONS", (*migrations_runner.REVISIONS, "0002"))
    monkeypatch.setattr(migrations_runner, "HEAD", "0002")
    with pytest.raises(errors.LedgerTooOld) as caught:
        database.open_ledger(empty_url)
    assert "is at revision 0001, this version needs 0002" in caught.value.message
    assert "bootflow.compute.ledger" in caught.value.remedy
    ledger = database.open_ledger(empty_url, check_revision=False)
    with ledger.read() as conn:
        assert migrations_runner.pending(conn) == ["0002"]
    ledger.close()


def test_an_upgrade_that_fails_leaves_nothing(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(op: t.Any, real: t.Any = r0001.upgrade) -> None:
        real(op)
        raise errors.LedgerError(url="x", reason="half-way")

    monkeypatch.setattr(r0001, "upgrade", broken)
    ledger = fresh(empty_url)
    with pytest.raises(errors.LedgerError), ledger.write() as conn:
        migrations_runner.upgrade(conn)
    assert shape(ledger) == set()
    monkeypatch.undo()
    with ledger.write() as conn:
        assert migrations_runner.upgrade(conn) == ["0001"]
    ledger.close()


def _upgrade(url: str, barrier: t.Any, answers: t.Any) -> None:
    ledger = fresh(url)
    barrier.wait(60)
    try:
        with ledger.write() as conn:
            answers.put(migrations_runner.upgrade(conn))
    except Exception as e:
        answers.put(repr(e))


def test_two_upgrades_at_once(empty_url: str) -> None:
    fork = multiprocessing.get_context("fork")
    barrier, answers = fork.Barrier(4), fork.Queue()
    workers = [fork.Process(target=_upgrade, args=(empty_url, barrier, answers)) for _each in range(4)]
    for worker in workers:
        worker.start()
    found = [answers.get(timeout=60) for _each in workers]
    for worker in workers:
        worker.join(60)
    assert sorted(map(str, found)) == ["['0001']", "[]", "[]", "[]"]


def test_in_memory() -> None:
    ledger = database.memory_ledger()
    with ledger.rehearse() as conn:
        migrations_runner.check_revision(conn, "memory")
    ledger.close()
