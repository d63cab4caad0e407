# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import importlib
import inspect
import multiprocessing
import os
import re
import signal
import typing as t
import uuid

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.migrations import runner
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import packed, tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

from . import made_up

REVISIONS = runner.REVISIONS
STARTS = [None, *REVISIONS[:-1]]  # what people have before they upgrade to this version
LATER_STARTS = [None, *REVISIONS, *made_up.NUMBERS[:-1]]  # and to one that has the made-up revisions
BEFORE_RELEASE = ["%04d" % number for number in range(1, int(runner.FIRST))]
BOOKKEEPING = re.compile(r"\bledger_(revision|commits)")  # the database layer's own
FORK = multiprocessing.get_context("fork")


def fresh(url: str) -> database.Ledger:
    return database.open_ledger(url, create=True, check_revision=False)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """This version has the made-up revisions."""
    made_up.add(monkeypatch)


@pytest.fixture(
    params=[*((start, False) for start in STARTS), *((start, True) for start in LATER_STARTS)],
    ids=lambda param: "%s-%s" % (param[0] or "nothing", "later" if param[1] else "newest"),
)
def start(request: pytest.FixtureRequest) -> str | None:
    """The revision of a ledger before its upgrade; None: there is no ledger yet. Half of them need the made-up revisions."""
    revision, is_later = request.param
    if is_later:
        request.getfixturevalue("later")
    return t.cast("str | None", revision)


def at(url: str, revision: str | None) -> database.Ledger:
    """A ledger as the release of ``revision`` made it, from the frozen modules; None: nothing yet.

    An older release generated other columns for the scheduler.
    """
    ledger = fresh(url)
    if revision is not None:
        with pytest.MonkeyPatch.context() as release:
            release.setattr(runner, "REVISIONS", tuple(r for r in runner.REVISIONS if r <= revision))
            release.setattr(runner, "HEAD", revision)
            ledger.migrate()
        if revision != runner.HEAD:
            replace_revision(ledger, packed.VERSION, "packed-00000000")
    return ledger


def replace_revision(ledger: database.Ledger, old: str, *new: str) -> None:
    with ledger.write() as tx:
        tx.execute(sa.text("DELETE FROM ledger_revision WHERE revision = :old"), {"old": old})
        for revision in new:
            tx.execute(sa.text("INSERT INTO ledger_revision (revision) VALUES (:new)"), {"new": revision})


def applied(ledger: database.Ledger) -> set[str]:
    with ledger.read() as tx:
        return set(tx.execute(sa.text("SELECT revision FROM ledger_revision")).scalars())


def steps_after(start: str | None) -> list[str]:
    return [*(r for r in runner.REVISIONS if start is None or r > start), packed.VERSION]


def create_tables(tx: Transaction) -> None:
    """As the tables of the newest version say, without revisions."""
    tables.metadata.create_all(tx.connection)
    packed.generate(Operations(MigrationContext.configure(tx.connection)))


def shape(ledger: database.Ledger) -> set[str]:
    """Every table, column, index and constraint, in the database's own words."""
    with ledger.read() as tx:
        if tx.dialect.name == "sqlite":
            found = tx.execute(
                sa.text("SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_master")
            ).scalars()
            # the order of the constraints of a table says nothing
            return {
                " ".join(sorted(re.split(r",\s*\n?\s*", re.sub(r"[\s()\"]+", " ", f))))
                for f in found
                if not BOOKKEEPING.search(f)
            }
        queries = (
            (
                "SELECT table_name || ' ' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' ||"
                " coalesce(character_maximum_length, 0) || ' ' || coalesce(column_default, '') || coalesce(generation_expression, '')"
                " FROM information_schema.columns WHERE table_schema = 'public'"
            ),
            "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
            (
                "SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid)"
                " FROM pg_constraint WHERE connamespace = 'public'::regnamespace"
            ),
            "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
            "SELECT relkind::text || ' ' || relname FROM pg_class WHERE relnamespace = 'public'::regnamespace",
        )
        found = {f for q in queries for f in tx.execute(sa.text(q)).scalars()}
        return {f for f in found if not BOOKKEEPING.search(f)}


def snapshot(ledger: database.Ledger) -> dict[str, list[dict[str, t.Any]]]:
    """Every row of every table, as the database itself says its columns are."""
    found: dict[str, list[dict[str, t.Any]]] = {}
    with ledger.read() as tx:
        metadata = sa.MetaData()
        metadata.reflect(tx.connection)
        for table in metadata.sorted_tables:
            if not BOOKKEEPING.search(table.name):
                order = list(table.primary_key.columns)
                found[table.name] = [dict(r._mapping) for r in tx.execute(sa.select(table).order_by(*order))]
    return found


def fill(ledger: database.Ledger, count: int = 7) -> None:
    """Rows in every table of whatever revision this is: full ones, and ones with all that may be empty empty."""
    chosen = {
        "vm_state": ("active", "building", "deleted"),
        "task_state": ("spawning", None, "deleting"),
        "status": ("available", "error", "deleting"),
        "attach_status": ("attached", "detached", "attached"),
        "export": ("none", "done", "ending"),
        "connection": ("none", "done", "none"),
        "migration_type": ("resize", "migration", "evacuation"),
        "migrations.status": ("migrating", "finished", "error"),
        "images.status": ("queued", "active", "deleted"),
        "visibility": ("private", "public", "community"),
        "image_places.progress": ("begun", "done", "ending"),
        "direction": ("ingress", "egress", "ingress"),
        "ethertype": ("IPv4", "IPv6", "IPv4"),
        "instance_backups.kind": ("full", "incremental", "full"),
        "instance_backups.state": ("running", "complete", "deleting"),
        "service_hosts.state": ("pending", "drain", "done"),
        "plans.kind": ("boot", "apply", "drain"),
        "plans.state": ("held", "used", "expired"),
    }
    with ledger.write() as tx:
        metadata = sa.MetaData()
        metadata.reflect(tx.connection)
        for table in metadata.sorted_tables:
            if BOOKKEEPING.search(table.name):
                continue
            rows = []
            for i in range(count):
                row: dict[str, t.Any] = {}
                for column in (c for c in table.columns if c.computed is None):
                    among = chosen.get("%s.%s" % (table.name, column.name), chosen.get(column.name))
                    if among:
                        row[column.name] = among[i % 3]
                    elif column.nullable and i % 2:
                        row[column.name] = None
                    else:
                        row[column.name] = value(column, i)
                rows.append(row)
            tx.execute(table.insert(), rows)


def value(column: t.Any, i: int) -> t.Any:
    for key in column.foreign_keys:
        return value(key.column, i)
    if isinstance(column.type, sa.JSON):
        return {"of": column.name, "n": i, "text": "\u00e4'\"", "list": [None, 1.5, True]}
    if isinstance(column.type, sa.Boolean):
        return i % 2 == 0
    if isinstance(column.type, sa.Float):
        return 1_700_000_000.25 + i
    if isinstance(column.type, sa.Integer):
        return i + 1
    return ("%s\u00fc-%d" % (column.name, i))[-(getattr(column.type, "length", None) or 100) :]


# --- from every release ----------------------------------------------------------------------------------------------


def test_an_upgrade_loses_nothing(empty_url: str, start: str | None) -> None:
    ledger = at(empty_url, start)
    if start is not None:
        fill(ledger)
    before = snapshot(ledger)
    assert ledger.migrate() == steps_after(start)
    after = snapshot(ledger)
    for name, rows in before.items():
        assert len(rows) >= 7
        kept = {k for k in set(rows[0]) & set(after[name][0]) if not k.startswith("packed_")}  # the newest form
        assert [{k: r[k] for k in kept} for r in after[name]] == [{k: r[k] for k in kept} for r in rows]
        if name == "compute_nodes" and "color" in rows[0]:  # they moved
            moved = {r["compute_node_id"]: r["color"] for r in after["node_colors"]}
            assert moved == {r["id"]: {"name": r["color"]} for r in rows}
    assert ledger.migrate() == []
    assert snapshot(ledger) == after
    ledger.inspect(runner.check_complete)
    ledger.close()
    database.open_ledger(empty_url).close()


def test_every_way_to_the_newest_gives_the_same_ledger(empty_url: str, start: str | None) -> None:
    ledger = at(empty_url, start)
    ledger.migrate()
    upgraded = shape(ledger)
    with ledger.write() as tx:
        if runner.REVISIONS == REVISIONS:
            tables.metadata.drop_all(tx.connection)
            create_tables(tx)
        else:
            whole = sa.MetaData()
            whole.reflect(tx.connection)
            whole.drop_all(tx.connection)
    if runner.REVISIONS != REVISIONS:  # the tables of this version lack what made-up revisions add
        assert ledger.migrate() == steps_after(None)
    assert upgraded == shape(ledger)
    ledger.close()


def _upgrade_and_die(url: str, after: int, answers: t.Any) -> None:
    """The process is gone just before its statement number ``after``."""
    ledger = fresh(url)
    count = [0]

    @sa.event.listens_for(ledger.engine, "before_cursor_execute")
    def die(_conn: t.Any, _cursor: t.Any, statement: str, *_rest: t.Any) -> None:
        if re.match(r"\s*(CREATE|ALTER|DROP|INSERT|UPDATE|DELETE)", statement):
            count[0] += 1
            if count[0] == after:
                os.kill(os.getpid(), signal.SIGKILL)

    ledger.migrate()
    answers.put(count[0])


@pytest.mark.slow
def test_killed_in_the_middle_of_an_upgrade(empty_url: str, start: str | None) -> None:
    ledger = at(empty_url, start)
    if start is not None:
        fill(ledger, 3)
    before, before_shape = snapshot(ledger), shape(ledger)
    ledger.close()
    point, died = 1, 0
    while True:
        answers = FORK.Queue()
        child = FORK.Process(target=_upgrade_and_die, args=(empty_url, point, answers))
        child.start()
        child.join(60)
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
        died += 1
        ledger = fresh(empty_url)
        assert snapshot(ledger) == before and shape(ledger) == before_shape
        with pytest.raises(errors.LedgerTooOld):
            ledger.inspect(runner.check_revision, "the url")
        ledger.close()
        point += 1 + point // 2
    statements = answers.get(timeout=10)
    assert statements >= 1 and died >= max(1, min(3, statements - 1))
    database.open_ledger(empty_url).close()


def _upgrade(url: str, barrier: t.Any, answers: t.Any) -> None:
    ledger = fresh(url)
    barrier.wait(60)
    try:
        answers.put(ledger.migrate())
    except Exception as e:
        answers.put(repr(e))


@pytest.mark.slow
def test_upgrades_at_once(empty_url: str, start: str | None) -> None:
    at(empty_url, start).close()
    barrier, answers = FORK.Barrier(4), FORK.Queue()
    workers = [FORK.Process(target=_upgrade, args=(empty_url, barrier, answers)) for _each in range(4)]
    for worker in workers:
        worker.start()
    found = [answers.get(timeout=60) for _each in workers]
    for worker in workers:
        worker.join(60)
    assert sorted(found, key=len) == [[], [], [], steps_after(start)]


def test_a_plan_says_what_and_writes_nothing(empty_url: str, start: str | None) -> None:
    ledger = at(empty_url, start)
    before = shape(ledger)
    plan = ledger.inspect(runner.plan)
    assert [p["revision"] for p in plan] == steps_after(start)
    assert all(len(p["description"]) > 10 and not p["description"].endswith(".") for p in plan)
    assert shape(ledger) == before
    ledger.migrate()
    assert ledger.inspect(runner.plan) == []
    ledger.close()


def test_revisions_are_frozen_and_in_order() -> None:
    assert list(REVISIONS) == sorted(set(REVISIONS))
    for revision in REVISIONS:
        module = importlib.import_module(runner.__package__ + ".revisions.r" + revision)
        assert module.revision == revision
        assert not re.search(r"import .*\b(tables|states|core)\b", inspect.getsource(module))


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (
            "DELETE FROM ledger_revision WHERE revision = '%s'" % runner.FIRST,
            "migration is incomplete: revision %s is missing" % runner.FIRST,
        ),
        (
            "DELETE FROM ledger_revision WHERE revision IN ('0991', '0992')",
            "migration is incomplete: revision 0991, 0992 is missing",
        ),
        ("DROP TABLE ip_allocations", "migration is incomplete: table ip_allocations is missing"),
        ("DELETE FROM ledger_revision", "not a ledger, but has tables"),
        ("DROP TABLE ledger_revision", "not a ledger, but has tables"),
    ],
)
def test_half_a_ledger_is_refused(empty_url: str, later: None, statement: str, words: str) -> None:
    ledger = at(empty_url, runner.HEAD)
    with ledger.write() as tx:
        tx.execute(sa.text(statement))
    before = snapshot(ledger)
    with pytest.raises(errors.LedgerError) as caught:
        ledger.migrate()
        ledger.inspect(runner.check_complete)
    assert words in caught.value.message and caught.value.remedy
    assert snapshot(ledger) == before
    ledger.close()


def test_rows_that_lost_what_they_refer_to_stop_an_upgrade(tmp_path: t.Any, later: None) -> None:
    ledger = at(str(tmp_path / "ledger.db"), REVISIONS[0])
    fill(ledger, 2)
    with ledger.engine.connect() as plain:
        conn = plain.execution_options(bootflow_migration=True)
        with conn.begin():
            conn.execute(sa.text("DELETE FROM ports"))
    before = snapshot(ledger)
    with pytest.raises(errors.LedgerError) as caught:
        ledger.migrate()
    assert "refers to a missing row" in caught.value.message
    assert snapshot(ledger) == before
    with ledger.read() as tx:
        assert tx.connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1  # they are on again afterwards
    ledger.close()


def test_from_nothing_to_the_newest_and_once_more(empty_url: str) -> None:
    ledger = fresh(empty_url)
    with ledger.read() as tx:
        assert runner.current_revision(tx) is None
        assert runner.pending(tx) == steps_after(None)
        with pytest.raises(errors.LedgerTooOld) as caught:
            runner.check_revision(tx, "the url")
    assert "is at revision none" in caught.value.message and caught.value.remedy
    with ledger.write() as tx:
        assert runner.upgrade(tx) == steps_after(None)
    with ledger.write() as tx:
        assert runner.upgrade(tx) == []
    with ledger.read() as tx:
        assert runner.current_revision(tx) == runner.HEAD
        runner.check_revision(tx, "the url")
    ledger.close()
    database.open_ledger(empty_url).close()


def test_a_migrated_ledger_is_what_the_tables_say(empty_url: str) -> None:
    ledger = fresh(empty_url)
    with ledger.write() as tx:
        runner.upgrade(tx)
    with ledger.read() as tx:
        context = MigrationContext.configure(
            tx.connection,
            opts={
                "compare_type": True,
                "include_name": lambda name, kind, _parents: (
                    not BOOKKEEPING.search(name) if kind == "table" else not str(name).startswith("packed_")
                ),
            },
        )
        assert compare_metadata(context, tables.metadata) == []
    migrated = shape(ledger)
    with ledger.write() as tx:
        tables.metadata.drop_all(tx.connection)
    assert not any("instances" in line for line in shape(ledger))
    with ledger.write() as tx:
        create_tables(tx)
    assert migrated == shape(ledger)  # also the CHECK constraints, which compare_metadata does not look at
    assert sum("ck_instances_vm_state" in line for line in migrated) == 1
    ledger.close()


def test_a_newer_ledger_is_refused(world: World) -> None:
    with world.ledger.write() as tx:
        tx.execute(sa.text("INSERT INTO ledger_revision (revision) VALUES ('9999')"))
    try:
        with pytest.raises(errors.LedgerTooNew) as caught:
            database.open_ledger(world.url)
        assert "9999" in caught.value.message and "Upgrade" in caught.value.remedy
        ledger = database.open_ledger(world.url, check_revision=False)
        with pytest.raises(errors.LedgerTooNew), ledger.write() as tx:
            runner.upgrade(tx)
        ledger.close()
    finally:
        with world.ledger.write() as tx:
            tx.execute(sa.text("DELETE FROM ledger_revision WHERE revision = '9999'"))


@pytest.mark.parametrize("newest", ["0001", "0009", "0019"])
def test_a_ledger_from_before_the_release_is_refused(empty_url: str, later: None, newest: str) -> None:
    """No revision here upgrades it: it stays as it is, for the version that can."""
    ledger = at(empty_url, runner.FIRST)
    fill(ledger)
    replace_revision(ledger, runner.FIRST, *(r for r in BEFORE_RELEASE if r <= newest))
    before, before_shape, before_applied = snapshot(ledger), shape(ledger), applied(ledger)
    attempts: list[t.Callable[[], object]] = [
        ledger.migrate,
        lambda: ledger.inspect(runner.plan),
        lambda: ledger.inspect(runner.check_revision, "the url"),
        lambda: database.open_ledger(empty_url),
    ]
    for attempt in attempts:
        with pytest.raises(errors.LedgerBeforeRelease) as caught:
            attempt()
        words = "is at revision %s, from before the first release; this version upgrades ledgers from revision %s on"
        assert words % (newest, runner.FIRST) in caught.value.message
        assert "51acb29f" in caught.value.remedy and "bootflow_ledger_url" in caught.value.remedy
    assert (snapshot(ledger), shape(ledger), applied(ledger)) == (before, before_shape, before_applied)
    ledger.close()


def test_a_ledger_that_the_revisions_before_the_release_made_is_up_to_date(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names all twenty, and later revisions upgrade it as a ledger that began with the first release."""
    ledger = at(empty_url, runner.HEAD)
    fill(ledger)
    replace_revision(ledger, runner.FIRST, *BEFORE_RELEASE, runner.FIRST)
    before = snapshot(ledger)
    ledger.inspect(runner.check_revision, "the url")
    assert ledger.inspect(runner.current_revision) == runner.HEAD
    assert ledger.migrate() == [] and snapshot(ledger) == before
    database.open_ledger(empty_url).close()
    made_up.add(monkeypatch)
    assert ledger.migrate() == list(made_up.NUMBERS)
    assert applied(ledger) == {*BEFORE_RELEASE, *runner.REVISIONS, packed.VERSION}
    replace_revision(ledger, runner.FIRST)
    with pytest.raises(errors.LedgerError, match="revision %s is missing" % runner.FIRST):
        ledger.migrate()
    ledger.close()


def test_an_older_ledger_is_refused_until_it_is_upgraded(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at(empty_url, REVISIONS[-1]).close()
    monkeypatch.setattr(runner, "REVISIONS", (*REVISIONS, "0999"))
    monkeypatch.setattr(runner, "HEAD", "0999")
    with pytest.raises(errors.LedgerTooOld) as caught:
        database.open_ledger(empty_url)
    assert "is at revision %s, this version needs 0999" % REVISIONS[-1] in caught.value.message
    assert "bootflow.compute.ledger" in caught.value.remedy
    ledger = fresh(empty_url)
    assert ledger.inspect(runner.pending) == ["0999"]
    ledger.close()


def test_columns_that_another_version_generated_are_generated_anew(empty_url: str) -> None:
    ledger = at(empty_url, runner.HEAD)
    fill(ledger)
    newest = shape(ledger)
    replace_revision(ledger, packed.VERSION, "packed-00000000")
    with pytest.raises(errors.LedgerTooOld) as caught:
        ledger.inspect(runner.check_revision, "the url")
    assert "is at revision %s, this version needs %s" % (runner.HEAD, packed.VERSION) in caught.value.message
    with ledger.write() as tx:
        table = tables.compute_nodes.name
        gone = "packed_names" if tx.dialect.name == "postgresql" else "packed_integers"
        tx.execute(sa.text("ALTER TABLE %s DROP COLUMN %s" % (table, gone)))
    rows = snapshot(ledger)["compute_nodes"]
    assert ledger.migrate() == [packed.VERSION]
    assert shape(ledger) == newest
    assert [{k: r[k] for k in rows[0]} for r in snapshot(ledger)["compute_nodes"]] == rows
    assert ledger.migrate() == []
    ledger.close()


def test_an_upgrade_that_fails_leaves_nothing(
    empty_url: str, start: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(runner.__package__ + ".revisions.r" + runner.HEAD)

    whole = module.upgrade

    def broken(op: t.Any) -> None:
        whole(op)
        raise errors.LedgerError(url="x", reason="half-way")

    monkeypatch.setattr(module, "upgrade", broken)
    ledger = at(empty_url, start)
    before = shape(ledger)
    with pytest.raises(errors.LedgerError):
        ledger.migrate()
    assert shape(ledger) == before
    monkeypatch.setattr(module, "upgrade", whole)
    assert ledger.migrate()[-2:] == [runner.HEAD, packed.VERSION]
    ledger.close()


def test_a_ledger_keeps_its_own_id(empty_url: str) -> None:
    """Hosts tell its guests by it: each ledger has another one, and neither an upgrade nor a copy changes it."""
    ledger = fresh(empty_url)
    ledger.migrate()
    known = ledger.id
    ledger.migrate()
    assert str(uuid.UUID(known)) == known != database.memory_ledger().id
    ledger.close()
    again = database.open_ledger(empty_url)
    assert again.id == known
    again.close()


def test_in_memory() -> None:
    ledger = database.memory_ledger()
    with ledger.rehearse() as tx:
        runner.check_revision(tx, "memory")
    ledger.close()
