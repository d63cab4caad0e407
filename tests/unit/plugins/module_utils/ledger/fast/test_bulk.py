# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Many rows in one statement say the same as one row after the other, on both databases."""

from __future__ import annotations

import typing as t

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.fast import bulk
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples
from ansible_collections.bootflow.compute.tests.unit.worlds.statements import counted
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import node, waiting
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

ODD_TEXTS = [
    "", "plain", "ünïcödé ✓ 日本", "{curly,\"quoted\"}", "back\\slash", "NULL", "null", "a,b", "'; DROP TABLE x; --", "%s :x",
    "tab\tand\nnewline", "\U0001f600",
]  # fmt: skip
ODD_JSON: list[t.Any] = [
    {}, [], {"a": None}, {"ü": ["✓", 1, 1.5, True, None]}, {"deep": {"er": {"x": [[], {}]}}}, "text", 7, False,
    {"quote": "\"'\\{}"},
]  # fmt: skip


def claim_rows(uuids: t.Sequence[str], node_id: int, numas: t.Sequence[t.Any]) -> list[dict[str, t.Any]]:
    return [
        {
            "instance_uuid": uuid,
            "compute_node_id": node_id,
            "memory_mb": number,
            "disk_gb": 0,
            "vcpus": -number,
            "created_at": number + 0.25,
            "kind": "build",
            "numa": numa,
            "server_group_id": None if number % 2 else "g",
            "group_slot": None if number % 3 else number,
        }
        for number, (uuid, numa) in enumerate(zip(uuids, numas))
    ]


def rolled_back(world: World, work: t.Callable[[t.Any], None]) -> None:
    """What bulk writes here is not as the laws want it."""
    with world.ledger.rehearse() as tx:
        work(tx)


def test_insert_with_json_none_and_numbers(world: World) -> None:
    where = node(world)
    numas = [None, *ODD_JSON]
    rows = claim_rows(waiting(world, len(numas)), where, numas)

    def work(tx: Transaction) -> None:
        bulk.insert(tx, tables.claims, rows)
        found = [dict(r._mapping) for r in tx.execute(sa.select(tables.claims).order_by(tables.claims.c.id))]
        by_uuid = {r.pop("instance_uuid"): r for r in found}
        assert len({r.pop("id") for r in found}) == len(rows)
        for row in rows:
            assert by_uuid[row["instance_uuid"]] == {k: v for k, v in row.items() if k != "instance_uuid"}
        nothing = tx.execute(sa.select(sa.func.count()).where(tables.claims.c.numa.is_(sa.null()))).scalar_one()
        assert nothing == 1, "None is the database's NULL, and of JSON values only that"

    rolled_back(world, work)


def test_insert_texts_as_they_are(world: World) -> None:
    uuids = waiting(world, len(ODD_TEXTS))
    rows = [
        {"instance_uuid": u, "event": text, "host": None if n % 2 else text, "start_time": n / 3, "details": text}
        for n, (u, text) in enumerate(zip(uuids, ODD_TEXTS))
    ]
    table = tables.instance_action_events

    def work(tx: Transaction) -> None:
        bulk.insert(tx, table, rows)
        for row in rows:
            query = sa.select(*(table.c[n] for n in row)).where(table.c.instance_uuid == row["instance_uuid"])
            assert row in [dict(r._mapping) for r in tx.execute(query)]

    rolled_back(world, work)


def test_an_omitted_column_gets_the_databases_default(world: World) -> None:
    where = node(world)
    (row,) = claim_rows(waiting(world), where, [None])
    del row["kind"], row["numa"]

    def work(tx: Transaction) -> None:
        bulk.insert(tx, tables.claims, [row])
        found = tx.execute(sa.select(tables.claims)).one()
        assert (found.kind, found.numa) == ("build", None)

    rolled_back(world, work)


def test_several_tables_together(world: World) -> None:
    """Rows that refer to each other, and rows that exist, in one statement where the database can do that."""
    where = node(world)
    uuids = waiting(world, 3)
    c = tables.compute_nodes.c

    def work(tx: Transaction) -> None:
        with counted(world.ledger) as statements, bulk.together(tx):
            bulk.insert(tx, tables.claims, claim_rows(uuids, where, [None, {"a": "%(b)s :c"}, []]))
            with bulk.together(tx):
                bulk.update(tx, tables.compute_nodes, "id", [{"id": where, "vcpus_used": 7}], add=("vcpus_used",))
            events = [{"instance_uuid": u, "event": "100 % (x)", "start_time": 1.5} for u in uuids[:1]]
            bulk.insert(tx, tables.instance_action_events, events)
        assert len(statements) == (1 if tx.dialect.name == "postgresql" else 3)
        assert tx.parts is None
        claimed = sa.select(tables.claims.c.instance_uuid, tables.claims.c.numa).order_by(tables.claims.c.id)
        assert dict(tx.execute(claimed).all()) == dict(zip(uuids, (None, {"a": "%(b)s :c"}, [])))
        assert tx.execute(sa.select(c.vcpus_used).where(c.id == where)).scalar() == 7
        assert tx.execute(sa.select(tables.instance_action_events.c.event)).scalars().all() == ["100 % (x)"]

    rolled_back(world, work)


def test_nothing_is_written_where_what_is_together_fails(world: World) -> None:
    where = node(world)
    uuids = waiting(world, 2)

    def work(tx: Transaction) -> None:
        with pytest.raises(ZeroDivisionError), bulk.together(tx):
            bulk.insert(tx, tables.instance_action_events, [{"instance_uuid": uuids[0], "event": "x", "start_time": 1}])
            raise ZeroDivisionError
        bulk.insert(tx, tables.claims, claim_rows(uuids[:1], where, [None]))
        assert tx.parts is None and len(tx.execute(sa.select(tables.claims)).all()) == 1

    rolled_back(world, work)


def test_rows_that_exist_are_left_out(world: World) -> None:
    row = {"subnet_id": "s", "highest": "f"}

    def work(tx: Transaction) -> None:
        for keys in ("a", "ab", "abc", "c"):
            bulk.insert(tx, tables.free_addresses, [{**row, "lowest": k, "highest": keys} for k in keys], if_new=True)
        found = tx.execute(sa.select(tables.free_addresses.c.lowest, tables.free_addresses.c.highest))
        assert dict(found.all()) == {"a": "a", "b": "ab", "c": "abc"}

    rolled_back(world, work)


def test_a_list_of_values_is_made_an_array_once(world: World) -> None:
    """A text that is cast to an array would be read again for every row: 1,000 values in 1,000 rows took minutes."""
    c = tables.instances.c
    with world.ledger.read() as tx:
        conditions = (bulk.among(tx, c.uuid, ["a"]), bulk.among_named(tx.database_kind, c.request_spec_id, "its"))
        for condition in conditions if tx.dialect.name == "postgresql" else ():
            text = str(sa.select(c.uuid).where(condition).compile(dialect=tx.dialect))
            parameter, _as, kind = text[text.index("CAST(") :].partition(" AS ")
            assert parameter.endswith(")s"), "the parameter itself has the array's type: %s" % text
            assert kind in ("VARCHAR[]))", "INTEGER[]))", "BIGINT[]))"), text
        assert not tx.execute(sa.select(c.uuid).where(conditions[0])).all()


def test_nothing_to_write(world: World) -> None:
    def work(tx: Transaction) -> None:
        bulk.insert(tx, tables.claims, [])
        assert bulk.update(tx, tables.claims, "id", []) == 0

    rolled_back(world, work)


def test_update_puts_and_adds(world: World) -> None:
    ids = [node(world, "h%d" % n, configuration={"reserved_memory_mb": n}) for n in range(4)]
    rows: list[dict[str, t.Any]] = [
        {
            "id": ids[0],
            "memory_mb_used": 100,
            "disabled_reason": "ü '",
            "metrics": {"a": 1.5},
            "disk_available_least": None,
        },
        {"id": ids[2], "memory_mb_used": -1, "disabled_reason": "", "metrics": None, "disk_available_least": -7},
        {"id": 10**9, "memory_mb_used": 1, "disabled_reason": "x", "metrics": {}, "disk_available_least": 0},
    ]

    def work(tx: Transaction) -> None:
        c = tables.compute_nodes.c
        assert bulk.update(tx, tables.compute_nodes, "id", rows, add=("memory_mb_used",)) == 2
        names = ("memory_mb_used", "disabled_reason", "metrics", "disk_available_least")
        found = tx.execute(sa.select(*(c[n] for n in names)).order_by(c.host)).all()
        assert [tuple(r) for r in found] == [
            (100, "ü '", {"a": 1.5}, None),
            (1, "", None, None),
            (1, "", None, -7),
            (3, "", None, None),
        ]

    rolled_back(world, work)


def test_update_by_a_text_key(world: World) -> None:
    uuids = waiting(world, 3)
    rows = [
        {"uuid": u, "retry": {"num_attempts": n, "hosts": [["h", u]]}, "host": "h%d" % n} for n, u in enumerate(uuids)
    ]
    rows[1]["retry"] = None

    def work(tx: Transaction) -> None:
        assert bulk.update(tx, tables.instances, "uuid", rows) == 3
        c = tables.instances.c
        found = {
            r.uuid: {"uuid": r.uuid, "retry": r.retry, "host": r.host}
            for r in tx.execute(sa.select(c.uuid, c.retry, c.host))
        }
        assert [found[u] for u in uuids] == rows

    rolled_back(world, work)


def test_more_rows_than_a_statement_has_parameters(world: World) -> None:
    (uuid,) = waiting(world)
    rows = [{"instance_uuid": uuid, "event": str(n), "start_time": float(n)} for n in range(40_000)]
    table = tables.instance_action_events

    def work(tx: Transaction) -> None:
        bulk.insert(tx, table, rows)
        ids = tx.execute(sa.select(table.c.id)).scalars().all()
        assert len(ids) >= len(rows)
        updates = [{"id": i, "details": "x%d" % i} for i in ids]
        assert bulk.update(tx, table, "id", updates) == len(ids)
        assert tx.execute(sa.select(sa.func.count(table.c.details.distinct()))).scalar_one() == len(ids)

    rolled_back(world, work)


@pytest.mark.parametrize("names", [("memory_mb_used", "vcpus_used"), ("vcpus_used", "memory_mb_used")])
def test_the_order_of_columns_does_not_matter(world: World, names: tuple[str, str]) -> None:
    """A statement is kept and used again: with other columns, another order, another way of adding it is another one."""
    where = node(world)

    def work(tx: Transaction) -> None:
        c = tables.compute_nodes.c
        bulk.update(tx, tables.compute_nodes, "id", [{names[0]: 5, "id": where, names[1]: 7}])
        bulk.update(tx, tables.compute_nodes, "id", [{names[0]: 1, "id": where, names[1]: 1}], add=(names[1],))
        assert tuple(tx.execute(sa.select(c[names[0]], c[names[1]])).one()) == (1, 8)
        bulk.update(tx, tables.compute_nodes, "id", [{"id": where, names[1]: 3}], add=names)
        assert tuple(tx.execute(sa.select(c[names[0]], c[names[1]])).one()) == (1, 11)

    rolled_back(world, work)


@settings(
    max_examples=examples(25), deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    contents=st.lists(
        st.tuples(
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers(-(2**53), 2**53)
                | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(
                        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), inner, max_size=3
                    )
                ),
                max_leaves=6,
            ),
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_any_content_comes_back(world: World, contents: list[tuple[t.Any, str]]) -> None:
    rows = [
        {"instance_uuid": "u%d" % n, "event_type": text, "payload": content, "created_at": float(n)}
        for n, (content, text) in enumerate(contents)
    ]
    c = tables.notifications.c

    def work(tx: Transaction) -> None:
        bulk.insert(tx, tables.notifications, rows)
        query = sa.select(c.instance_uuid, c.event_type, c.payload, c.created_at).where(c.instance_uuid.like("u%"))
        assert [dict(r._mapping) for r in tx.execute(query.order_by(c.created_at))] == rows

    rolled_back(world, work)
