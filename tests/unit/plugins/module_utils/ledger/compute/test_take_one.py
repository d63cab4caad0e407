# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The claim of a single instance, by one statement where that is enough."""

from __future__ import annotations

import threading
import typing as t

import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.claims import ResourceRequest
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import claims
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.taking import waiting
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

SMALL = ResourceRequest(memory_mb=1024, disk_gb=1, vcpus=1)


def node_ids(world: World) -> dict[str, int]:
    return {r.host: r.id for r in world.rows(tables.compute_nodes)}


def wish(world: World, uuid: str, *hosts: str, limits: t.Mapping[str, t.Any] | None = None) -> claims.Wish:
    ids = node_ids(world)
    limits = {"memory_mb": 2048.0, "disk_gb": 4000.0, "vcpu": 100.0} if limits is None else limits
    return claims.Wish(uuid, SMALL, [claims.Candidate(h, h, limits, ids[h]) for h in hosts])


@pytest.fixture(autouse=True)
def given_back(world: World) -> t.Iterator[None]:
    """The claims are made without the scheduler, which would have written where the instances are."""
    yield
    with world.ledger.write() as conn:
        claims.release(conn, [r.uuid for r in world.rows(tables.instances)])


def test_until_it_is_full_then_the_alternate_then_nothing(world: World) -> None:
    world.report("h1", memory=2)
    world.report("h2", memory=2)
    uuids = waiting(world, 5)
    found = [claims.take_one(world.ledger, wish(world, u, "h1", "h2"), world.time) for u in uuids]
    assert [f.host for f in found[:4] if isinstance(f, claims.Candidate)] == ["h1", "h1", "h2", "h2"]
    assert isinstance(found[4], errors.ComputeResourcesUnavailable)
    assert "Free memory 0.00 MB < requested 1024 MB" in found[4].message
    assert world.used("h1") == (2048, 2, 2, 2)
    assert world.claims() == {(u, f.host) for u, f in zip(uuids, found) if isinstance(f, claims.Candidate)}


@pytest.mark.parametrize(
    ("limits", "fits"),
    [
        ({}, True),  # no limit is no limit
        ({"memory_mb": None}, True),
        ({"memory_mb": 0}, False),
        ({"memory_mb": 1024.0}, True),  # equality fits
        ({"memory_mb": 1023.9}, False),
        ({"disk_gb": 0.5}, False),
        ({"vcpu": 1}, True),
    ],
)
def test_limits_are_those_of_the_claim(world: World, limits: dict[str, t.Any], fits: bool) -> None:
    world.report("h1", memory=1)
    (uuid,) = waiting(world, 1)
    found = claims.take_one(world.ledger, wish(world, uuid, "h1", limits=limits), world.time)
    assert isinstance(found, claims.Candidate) is fits
    assert world.claims() == ({(uuid, "h1")} if fits else set())


def test_a_claim_whose_answer_was_lost_is_found_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.report("h1", memory=4)
    (uuid,) = waiting(world, 1)
    asked = wish(world, uuid, "h1")
    real = claims._take_at_once
    lost = []

    def take(conn: t.Any, *arguments: t.Any) -> bool:
        took = real(conn, *arguments)
        if conn.dialect.name == "postgresql":
            lost.append(took)
            raise errors.LedgerError(url="x", reason="server closed the connection", remedy="")
        return took

    monkeypatch.setattr(claims, "_take_at_once", take)
    found = claims.take_one(world.ledger, asked, world.time)
    assert isinstance(found, claims.Candidate) and found.host == "h1"
    assert world.used("h1") == (1024, 1, 1, 1)
    assert lost == [True] * world.ledger.is_server


def test_many_at_once_take_exactly_what_there_is(world: World) -> None:
    world.report("h1", memory=3)
    world.report("h2", memory=4)
    uuids = waiting(world, 12)
    ids = node_ids(world)
    limits = {"h1": {"memory_mb": 3072.0}, "h2": {"memory_mb": 4096.0}}
    found: dict[str, t.Any] = {}

    def race(mine: t.Sequence[str], order: t.Sequence[str]) -> None:
        ledger = database.open_ledger(world.ledger.address)
        try:
            for uuid in mine:
                places = [claims.Candidate(h, h, limits[h], ids[h]) for h in order]
                found[uuid] = claims.take_one(ledger, claims.Wish(uuid, SMALL, places), world.time)
        finally:
            ledger.close()

    orders = (("h1", "h2"), ("h2", "h1"))
    racers = [threading.Thread(target=race, args=(uuids[i::4], orders[i % 2])) for i in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    placed = [f.host for f in found.values() if isinstance(f, claims.Candidate)]
    assert sorted(placed) == ["h1"] * 3 + ["h2"] * 4
    assert (world.used("h1")[0], world.used("h2")[0]) == (3072, 4096)
    with world.ledger.read() as conn:
        assert conn.execute(sa.select(sa.func.count()).select_from(tables.claims)).scalar() == 7
