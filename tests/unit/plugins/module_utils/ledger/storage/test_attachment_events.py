# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Events written to rows of attachments: as the table says, in one statement, and by one function alone."""

from __future__ import annotations

import ast
import contextlib
import pathlib
import typing as t

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes import attachment, states
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.attachment import EVENTS, LAWS, Event, State
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import attachments
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage.attachments import Attachment, Reservation
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld
from ansible_collections.bootflow.compute.tests.unit.worlds.statements import counted

PLUGINS = pathlib.Path(__file__).resolve().parents[6] / "plugins"
FIELDS: dict[str, t.Any] = {
    "run_id": "run-z",
    "attached_host": "h1",
    "initiator": "iqn.test:h1",
    "connector": "kernel",
    "storage_host": "s1",
    "iqn": "iqn.test:target",
    "lun": 1,
    "portals": ["192.0.2.1:3260"],
    "connection_info": None,
    "device_path": "/dev/disk/by-path/x",
    "attached_at": 5.0,
}
HAPPENINGS = [e for e in EVENTS if e.first is None]


class _Undo(Exception):
    """Ends a transaction that leaves nothing."""


@contextlib.contextmanager
def reserved(world: BootWorld, count: int = 2) -> t.Iterator[tuple[t.Any, list[str]]]:
    """(connection, ids of attachments just reserved); what is done with them is undone."""
    (volume,) = world.rows(volume_tables.volumes)
    with contextlib.suppress(_Undo), world.ledger.write() as tx:
        wanted = [Reservation(volume.id, "guest-%d" % i, "/dev/vdb") for i in range(count)]
        yield tx, attachments.reserve(tx.for_run(world.context()), wanted)
        raise _Undo


@pytest.fixture
def one(bworld: BootWorld) -> BootWorld:
    """With a volume."""
    bworld.store("s1", lvm=10_000)
    bworld.make("v")
    return bworld


def rows_of(tx: Transaction, ids: t.Sequence[str]) -> list[Attachment]:
    return attachments.select(tx, ids=ids, ended=True)


def fields_of(event: Event) -> dict[str, t.Any]:
    return {name: FIELDS[name] for name in event.needs}


def test_a_row_has_the_columns_of_the_table() -> None:
    assert Attachment._fields == tuple(c.name for c in volume_tables.volume_attachments.columns)


@pytest.mark.parametrize("event", HAPPENINGS, ids=lambda e: e.name)
def test_the_columns_of_an_event_exist(event: Event) -> None:
    columns = {c.name for c in volume_tables.volume_attachments.columns}
    assert {*event.needs, *event.clears} <= columns - {"id", "attach_status", "export", "connection", "deleted"}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_sequence_of_events_on_rows(one: BootWorld, data: t.Any) -> None:
    """Rows in different states at once: each follows the table, or none is written."""
    steps = st.tuples(st.sampled_from(HAPPENINGS), st.sampled_from(((0,), (1,), (0, 1))))
    sequence = data.draw(st.lists(steps, max_size=25))
    with reserved(one) as (tx, ids):
        for event, which in sequence:
            before = rows_of(tx, ids)
            chosen = [r for r in before if ids.index(r.id) in which]
            if not all(event.admits(r.state) for r in chosen):
                with pytest.raises(errors.VolumeAttachmentConflict):
                    attachments.apply(tx, chosen, event, **fields_of(event))
                assert rows_of(tx, ids) == before
                continue
            with counted(one.ledger) as statements:
                answer = attachments.apply(tx, chosen, event, **fields_of(event))
            assert len(statements) == 1
            now = {r.id: r for r in rows_of(tx, ids)}
            assert answer == [now[r.id] for r in chosen]
            for row in before:
                if row not in chosen:
                    assert now[row.id] == row
                    continue
                follows = event.after(row.state)
                found = now[row.id]
                assert State(found.attach_status, found.export, found.connection) == follows
                assert (found.deleted != "") == event.last
                values = {**fields_of(event), **event.clears}
                assert {name: getattr(found, name) for name in values} == values
                same = set(Attachment._fields) - {*State._fields, *values, "deleted"}
                assert [n for n in same if getattr(found, n) != getattr(row, n)] == []
                assert found.state is None or [law for law, holds in LAWS.items() if not holds(found.state)] == []


def test_fields_of_a_state_are_not_given_by_hand(one: BootWorld) -> None:
    with reserved(one, 1) as (tx, ids):
        rows = rows_of(tx, ids)
        for fields in ({"attach_status": states.ATTACHED}, {"export": "done"}, {"connection": "done"}):
            with pytest.raises(ValueError, match="volume_ready"):
                attachments.apply(tx, rows, attachment.VOLUME_READY, **fields)
        with pytest.raises(ValueError, match="attached_host"):
            attachments.apply(tx, rows, attachment.BIND_HOST)
        assert attachments.apply(tx, [], attachment.BIND_HOST) == []
        assert rows_of(tx, ids) == rows


# --- who writes --------------------------------------------------------------------------------------------------------


def written(call: ast.Call) -> set[str]:
    """Columns that a call of values() names."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "values":
        return {k.arg for k in call.keywords if k.arg is not None}
    return set()


def is_about_attachments(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Name) and n.id == "volume_attachments" for n in ast.walk(node))


def writes(path: pathlib.Path) -> list[tuple[str, set[str]]]:
    """(function, columns) of the statements that write rows of attachments; columns unknown: {"*"}."""
    found = []
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        for call in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
            name = ast.unparse(call.func)
            if (
                name.endswith(".values")
                and is_about_attachments(call.func)
                and ("update()" in name or "insert()" in name)
            ):
                found.append((function.name, written(call) or {"*"}))
            elif name in ("bulk.update", "bulk.insert") and is_about_attachments(ast.Tuple(call.args)):
                found.append((function.name, {"*"}))
            elif name == "tx.execute" and "volume_attachments.insert()" in ast.unparse(call):
                found.append((function.name, {"*"}))
    return found


def test_the_state_is_written_by_one_function() -> None:
    found = {
        (str(path.relative_to(PLUGINS)), function, frozenset(columns))
        for path in PLUGINS.rglob("*.py")
        for function, columns in writes(path)
    }
    home = "module_utils/ledger/storage/attachments.py"
    assert {f for f in found if f[2] & {"*", *State._fields}} == {
        (home, "apply", frozenset({"*"})),
        (home, "reserve", frozenset({"*"})),
    }
    # Owners and rescans are no part of the state; no other file writes a row at all.
    assert {(f[0], *f[2]) for f in found} <= {(home, "*"), (home, "run_id"), (home, "rescan")}


def test_the_search_for_writers_finds_them(tmp_path: pathlib.Path) -> None:
    text = """
def a(tx): tx.execute(volume_attachments.update().where(x).values(export="done"))
def b(tx): bulk.update(tx, volume_attachments, "id", rows)
def c(tx): tx.execute(volume_attachments.insert(), rows)
def d(tx): tx.execute(volume_tables.volumes.update().values(attach_status="attached"))
def e(tx): tx.execute(volume_attachments.delete().where(x))
def f(tx): tx.execute(volume_attachments.update().values(**values))
"""
    path = tmp_path / "x.py"
    path.write_text(text)
    assert writes(path) == [("a", {"export"}), ("b", {"*"}), ("c", {"*"}), ("f", {"*"})]
