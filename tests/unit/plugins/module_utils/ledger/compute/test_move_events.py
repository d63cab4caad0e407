# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Events written to rows of moves: as the table says, in one statement for each type, and by one file alone."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import pathlib
import typing as t

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import MigrationConflict
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import move_life, moves
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.move_life import AT_HOME, EVENTS, LAWS
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.progress import Progress
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import moves as ledger_moves
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute.moves import MoveRow
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema.tables import migrations
from ansible_collections.bootflow.compute.tests.unit.worlds.statements import counted
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

PLUGINS = pathlib.Path(__file__).resolve().parents[6] / "plugins"
LATER = [event for event in EVENTS if event is not move_life.BEGUN]


class _Undo(Exception):
    """Ends a transaction that leaves nothing."""


def row_of(migration_type: str) -> dict[str, t.Any]:
    """A row for add(); the uuid of its instance is the type."""
    return {
        "instance_uuid": migration_type,
        "migration_type": migration_type,
        "source_compute": "h1",
        "source_node": "h1",
        "dest_compute": "h2",
        "dest_node": "h2",
        "old_request_spec_id": 1,
        "new_request_spec_id": 1,
        "old_vm_state": "active",
    }


@contextlib.contextmanager
def begun(world: World, *types: str) -> t.Iterator[t.Any]:
    """A transaction with a new move of each type; what is done in it is undone."""
    with contextlib.suppress(_Undo), world.ledger.write() as tx:
        tx = tx.for_run(world.context())
        ledger_moves.add(tx, [row_of(migration_type) for migration_type in types])
        yield tx
        raise _Undo


def rows_of(tx: t.Any) -> dict[str, MoveRow]:
    """type -> its row"""
    return {r.migration_type: r for r in tx.rows(sa.select(migrations).order_by(migrations.c.id), MoveRow)}


def statuses(tx: t.Any) -> dict[str, str]:
    return {migration_type: row.status for migration_type, row in rows_of(tx).items()}


def test_a_move_begins_as_the_table_says(world: World) -> None:
    with begun(world, *moves.TYPES) as tx:
        assert statuses(tx) == {
            "resize": "migrating", "migration": "migrating", "evacuation": "accepted", "live-migration": "preparing",
        }  # fmt: skip


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_sequence_of_events_on_rows(world: World, data: t.Any) -> None:
    """Moves of all types: each follows the table and keeps its laws, and what the table refuses is not written."""
    steps = st.tuples(st.sampled_from(LATER), st.sampled_from(moves.TYPES), st.booleans())
    life = {kind: move_life.BEGUN.after(AT_HOME, kind) for kind in moves.TYPES}
    with begun(world, *moves.TYPES) as tx:
        for event, kind, clean in data.draw(st.lists(steps, max_size=25)):
            rows = rows_of(tx)
            if life[kind].status not in event.statuses(kind):
                with pytest.raises(
                    MigrationConflict, match="is %s, which .* the event %s" % (life[kind].status, event.name)
                ):
                    ledger_moves.apply(tx, [rows[kind]], event)
            elif (
                event.rule_for(life[kind], kind) is not None
            ):  # else no flow does it: the instance is on the other host
                with counted(world.ledger) as sent:
                    ledger_moves.apply(tx, [rows[kind]], event)
                assert len(sent) == 1
                life[kind] = event.after(life[kind], kind, clean)
            assert statuses(tx) == {kind: state.status for kind, state in life.items()}
            for state in life.values():
                assert [law for law, holds in LAWS.items() if not holds(state)] == []


def test_one_statement_for_each_type(world: World) -> None:
    with begun(world, *moves.TYPES) as tx:
        with counted(world.ledger) as sent:
            ledger_moves.apply(tx, list(rows_of(tx).values()), move_life.DELETED)
        assert len(sent) == 1 + len(moves.TYPES)  # the first reads the rows
        assert set(statuses(tx).values()) == {moves.ERROR}
        ledger_moves.apply(tx, [], move_life.DELETED)


def test_a_row_that_another_run_changed_is_refused(world: World) -> None:
    """What this run has read does not count: the statement asks for the status."""
    with begun(world, moves.MIGRATION) as tx:
        (row,) = rows_of(tx).values()
        ledger_moves.apply(tx, [row], move_life.SWITCHED)
        assert row.status == moves.MIGRATING
        with pytest.raises(MigrationConflict, match="of instance migration is post-migrating, .* the event switched"):
            ledger_moves.apply(tx, [row], move_life.SWITCHED)
        tx.execute(migrations.delete())
        with pytest.raises(MigrationConflict, match="is deleted"):
            ledger_moves.apply(tx, [row], move_life.ARRIVED)


# --- who writes --------------------------------------------------------------------------------------------------------

HOME = "module_utils/ledger/compute/moves.py"
_STATEMENTS = ("update", "insert")


def names_migrations(node: ast.AST) -> bool:
    """Whether the table is named, under its own name or as ``tables.migrations``."""
    named = (
        n.id if isinstance(n, ast.Name) else n.attr for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))
    )
    return "migrations" in named


def writes(path: pathlib.Path) -> list[tuple[str, frozenset[str]]]:
    """(function, columns) of the statements that write rows of migrations; columns unknown: {"*"}."""
    found = []
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        calls = [n for n in ast.walk(function) if isinstance(n, ast.Call)]
        valued = {id(n) for c in calls if is_values(c) for n in ast.walk(c.func)}
        for call in calls:
            name = ast.unparse(call.func)
            if is_values(call) and is_statement(call.func):
                named = frozenset("*" if k.arg is None else k.arg for k in call.keywords)
                found.append((function.name, frozenset({"*"}) if call.args or "*" in named else named))
            elif name in ("bulk.update", "bulk.insert") and names_migrations(ast.Tuple(call.args)):
                found.append((function.name, frozenset({"*"})))
            elif id(call) not in valued and makes_statement(call):
                found.append((function.name, frozenset({"*"})))
    return found


def is_values(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "values"


def makes_statement(node: ast.AST) -> bool:
    """Whether this is ``migrations.update()``, ``sa.update(migrations)``, or an insert."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in _STATEMENTS:
        return False
    return names_migrations(node.func.value) or any(names_migrations(argument) for argument in node.args)


def is_statement(node: ast.AST) -> bool:
    return any(makes_statement(n) for n in ast.walk(node))


def test_the_status_is_written_by_one_function() -> None:
    found = {
        (path.relative_to(PLUGINS).as_posix(), function, columns)
        for path in PLUGINS.rglob("*.py")
        for function, columns in writes(path)
    }
    assert found == {
        (HOME, "add", frozenset({"*"})),  # the event begun
        (HOME, "apply", frozenset({"status", "updated_at"})),
        (HOME, "set_requests", frozenset({"old_request_spec_id", "new_request_spec_id"})),
        (HOME, "set_progress", frozenset({"*"})),
    }


def test_progress_has_no_status() -> None:
    """Its columns are those of Progress, which the search for writers cannot name."""
    names = {f.name for f in dataclasses.fields(Progress)}
    assert "status" not in names and names <= {c.name for c in migrations.columns}


def test_no_row_for_add_names_a_status() -> None:
    """add() writes that of the event: no flow gives it another."""
    named = []
    for path in sorted((PLUGINS / "module_utils" / "flows").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            keys = {k.value for k in node.keys if isinstance(k, ast.Constant)} if isinstance(node, ast.Dict) else set()
            if "migration_type" in keys:
                named.append((path.stem, "status" in keys))
    assert named == [("cold", False), ("evacuate", False), ("live", False)]


def test_the_search_for_writers_finds_them(tmp_path: pathlib.Path) -> None:
    text = """
def a(tx): tx.execute(migrations.update().where(x).values(status="done"))
def b(tx): bulk.update(tx, tables.migrations, "id", rows)
def c(tx): tx.execute(migrations.insert(), rows)
def d(tx): tx.execute(tables.instances.update().values(status="done"))
def e(tx): tx.execute(tables.migrations.delete().where(x))
def f(tx): tx.execute(migrations.update().values(**values))
def g(tx): tx.execute(sa.update(tables.migrations).values(progress=1))
def h(tx): tx.execute(migrations.update().where(x), {"status": "done"})
def i(tx): tx.execute(migrations.update().values({"status": "done"}))
"""
    path = tmp_path / "x.py"
    path.write_text(text)
    every = frozenset({"*"})
    assert writes(path) == [
        ("a", frozenset({"status"})), ("b", every), ("c", every), ("f", every), ("g", frozenset({"progress"})), ("h", every), ("i", every),
    ]  # fmt: skip
