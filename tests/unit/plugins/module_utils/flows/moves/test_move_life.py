# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every step of the table of a move's life, walked by the flows with a guest that has a volume: the ledger is as the table says."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import move_life, moves, states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.move_life import (
    DESTINATION,
    OTHER,
    OWES,
    SOURCE,
    State,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.attachment import ON_THE_WAY
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import moving
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import (
    cold,
    cold_life,
    confirm,
    evacuate,
    evacuate_life,
    live_life,
    revert,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves.moving_instance import MovingInstance
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import (
    claims,
    cleanups,
    fleet,
    instances,
    service_state,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import moves as ledger_moves
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld

from ...core.instances.test_move_life import STEPS, Step
from .test_cold import LARGE
from .test_live_volumes import BACKENDS, LiveMovers
from .test_volume_moves import BROKEN, HOSTS, attachments_of

ON_ITS_HOST = "resize on its own host"
JOURNEYS = {ON_ITS_HOST: moves.RESIZE, **{kind: kind for kind in moves.TYPES}}
RUNS = states.RUNNING


class Walker(LiveMovers):
    """One instance, and one move of it. Each event is a generator: first what the flow writes, then what hosts do about it."""

    journey = ""

    def set_out(self, journey: str) -> None:
        self.journey, self.uuid = journey, self.prepare()
        self.source = self.row(self.uuid).host
        (elsewhere,) = set(HOSTS) - {self.source}
        self.destination = self.source if journey == ON_ITS_HOST else elsewhere
        self.clean = False

    @property
    def its(self) -> t.Any:
        return cold_life.MIGRATE if self.journey == moves.MIGRATION else cold_life.RESIZE

    def next_run(self, dead: bool = False) -> None:
        self.age += 1
        self.time += 100_000 if dead else 0

    def lose(self, host: str) -> None:
        self.down = [host]
        self.ask(service_state.set_state, [host], service_state.FORCED_DOWN)

    def connect_there(self, host: str) -> None:
        """Volumes follow the instance to this host."""
        hosts, _lacking = self.ask(moving.rebind_to_current_host, [self.uuid], self.end)
        self.ask_storage(hosts)
        with self.ledger.read() as tx:
            rows = moving.attachments_to_connect(tx.for_run(self.context(self.run)), host, [self.uuid])
        self.connect_rows(host, rows, self.run)

    # --- the events ---------------------------------------------------------------------------------------------------

    def begun(self) -> t.Iterator[None]:
        if self.journey == moves.LIVE_MIGRATION:
            assert not self.begin_live(self.uuid).failed
            yield
            self.ask_storage(self.ask(moving.storage_hosts))
            assert self.come(self.destination, [self.uuid])
        elif self.journey == moves.EVACUATION:
            self.lose(self.source)
            wanted = evacuate.Wanted(Selection(uuids=[self.uuid]))
            assert not self.ask(evacuate.begin, wanted, self.fleet, self.options()).failed
            yield
            self.connect_there(self.destination)
        else:
            flavor = None if self.journey == moves.MIGRATION else LARGE
            mine = self.journey == ON_ITS_HOST
            wanted = cold.Wanted(Selection(uuids=[self.uuid]), HOSTS, BACKENDS, flavor, same_host=mine)

            def read(tx: t.Any, needs: t.Any) -> t.Any:
                return fleet.read(tx, {self.destination}, needs=needs)

            assert not self.ask(cold.begin, wanted, read, self.options()).failed
            yield
            self.leave(self.source, [self.uuid], self.run)

    def leaving(self) -> t.Iterator[None]:
        assert self.ask(live_life.mark_running, [self.uuid])
        yield

    def switched(self) -> t.Iterator[None]:
        if self.journey != moves.LIVE_MIGRATION:
            assert self.ask(cold_life.switch, [self.uuid])
            yield
            self.connect_there(self.destination)
        else:
            assert self.ask(live_life.switch, [self.uuid])
            yield

    def arrived(self) -> t.Iterator[None]:
        if self.journey == moves.EVACUATION:
            self.ask(evacuate_life.finish, {self.uuid: evacuate_life.Result(RUNS)})
        else:
            self.end_with(None, cleaned=True)
        yield
        self.next_run()

    def failed(self) -> t.Iterator[None]:
        if self.journey == moves.EVACUATION:
            self.ask(evacuate_life.finish, {self.uuid: evacuate_life.Result(error=BROKEN, cleaned=False, may_run=True)})
        else:
            self.end_with(BROKEN, cleaned=self.clean)
        yield

    def aborted(self) -> t.Iterator[None]:
        self.end_with(errors.LiveMigrationAborted(instance_uuid=self.uuid, reason="x"), cleaned=self.clean)
        yield

    def end_with(self, error: errors.BootflowError | None, cleaned: bool, its: t.Any = None) -> None:
        if self.journey == moves.LIVE_MIGRATION:
            self.ask(live_life.finish, {self.uuid: live_life.Result(RUNS, error, cleaned)})
            return
        if self.journey == ON_ITS_HOST and self.status_now() == moves.REVERTING:
            cleaned = True  # else the host is to define the guest again, too
        self.ask(cold_life.finish, its or self.its, {self.uuid: cold_life.Result(RUNS, error, cleaned)})

    def brought_back(self) -> t.Iterator[None]:
        if self.journey == moves.EVACUATION:
            if self.clean:
                self.leave(self.destination, [self.uuid], self.run)
            self.ask(evacuate_life.finish, {self.uuid: evacuate_life.Result(error=BROKEN, cleaned=self.clean)})
            yield
            return
        if self.clean:
            self.leave(self.destination, [self.uuid], self.run)
        else:
            self.lose(self.destination)
        assert self.ask(cold_life.roll_back, [self.uuid], [] if self.clean else [self.uuid])
        yield
        self.connect_there(self.source)

    def revert_begun(self) -> t.Iterator[None]:
        self.next_run(dead=self.status_now() == moves.REVERTING)
        assert self.ask(revert.begin_revert, Selection(uuids=[self.uuid]), HOSTS).moving
        yield

    def revert_failed(self) -> t.Iterator[None]:
        self.end_with(BROKEN, cleaned=False, its=cold_life.REVERT)
        yield

    def reverted(self) -> t.Iterator[None]:
        self.end_with(None, cleaned=True, its=cold_life.REVERT)
        yield

    def confirmed(self) -> t.Iterator[None]:
        self.next_run()
        assert self.ask(confirm.confirm, Selection(uuids=[self.uuid])).rows
        yield

    def deleted(self) -> t.Iterator[None]:
        self.next_run(dead=True)
        assert self.delete(run=self.run, uuids=[self.uuid]).rows
        yield

    # --- what the ledger says ------------------------------------------------------------------------------------------

    def move(self) -> ledger_moves.MoveRow:
        with self.ledger.read() as tx:
            (move,) = ledger_moves.all_of(tx, [self.uuid])[self.uuid]
        return move

    def status_now(self) -> str:
        return self.move().status

    def observed(self) -> State:
        move = self.move()
        assert (move.source_compute, move.dest_compute) == (self.source, self.destination)
        with self.ledger.read() as tx:
            (row,) = instances.select_live(tx, uuids=[self.uuid])
            due = cleanups.of_instances(tx, [self.uuid])
            kinds = {
                (self.node_host(r.compute_node_id), r.kind) for r in claims.rows(tx) if r.instance_uuid == self.uuid
            }
        where = DESTINATION if ledger_moves.is_at_destination(move, row.host, row.request_spec_id) else SOURCE
        assert row.host == {SOURCE: self.source, DESTINATION: self.destination}[where]
        if self.journey == ON_ITS_HOST:
            claimed = {where if kind == claims.BUILD else OTHER[where] for _host, kind in kinds}
            owing = {{cleanups.OLD: SOURCE, cleanups.NEW: DESTINATION}[r.part] for r in due}
        else:
            sides = {self.source: SOURCE, self.destination: DESTINATION}
            claimed, owing = {sides[host] for host, _kind in kinds}, {sides[r.host] for r in due}
            assert {r.part for r in due} <= {cleanups.ALL}
            if self.journey != moves.EVACUATION:
                assert {sides[host] for host, kind in kinds if kind == claims.BUILD} == {where}
        return State(move.status, where, frozenset(claimed), frozenset(owing))

    def is_consistent(self) -> bool:
        """Whether the states of instance and move fit each other, as the audit wants it."""
        with self.ledger.read() as tx:
            (row,) = instances.select_live(tx, uuids=[self.uuid])
        return self.move().status in moves.ENDED or MovingInstance(row, self.move()).is_consistent

    def node_host(self, node_id: int) -> str:
        return str(self.rows(tables.compute_nodes, tables.compute_nodes.c.id == node_id)[0].host)

    def marked(self) -> set[bool]:
        """Whether what a cleanup removes is only what was made for the move, of each."""
        return {r.made_for != "" for r in self.rows(tables.cleanups)}

    def volumes_are(self, what: str, before: t.Sequence[t.Any]) -> bool:
        """Whether the volumes are as the words of the table say."""
        rows = attachments_of(self)
        own, others = [r for r in rows if not r.beside], [r for r in rows if r.beside]
        owners, mine = {r.run_id for r in rows}, {"run-" + self.run}
        coming = [r for r in others if r.attach_status in ON_THE_WAY]
        return {
            move_life.KEPT: lambda: rows == before,
            move_life.TAKEN: lambda: owners == mine and not others,
            move_life.DOUBLED: lambda: owners == mine and {r.attached_host for r in coming} == {self.destination},
            move_life.CUT_OFF: lambda: owners == mine and {r.export for r in own} == {"ending"},
            move_life.CUT_OFF_WHERE_LOST: lambda: self.clean or {r.export for r in own} == {"ending"},
            move_life.TAKEN_OVER: lambda: (
                {r.attached_host for r in own} == {self.destination}
                and {r.attach_status for r in others} == {"detached"}
            ),
            move_life.GIVEN_UP: lambda: (
                owners == {None} and not coming and {r.attached_host for r in own} == {self.source}
            ),
            move_life.RELEASED: lambda: owners == {None},
            move_life.ENDED: lambda: {r.attach_status for r in rows} == {"detached"},
        }[what]()

    def walk(self, step: Step) -> None:
        """One step, and what the ledger says after it."""
        self.clean = step.clean
        before, rule = attachments_of(self), step.event.rule_for(step.before, step.migration_type)
        assert rule is not None
        event = getattr(self, step.event.name)()
        next(event)
        assert self.observed() == step.after, step
        assert self.is_consistent(), step
        assert self.volumes_are(rule.volumes, before), (step, attachments_of(self))
        if OWES in rule.other and not step.clean and not step.before.cleanups:
            assert self.marked() == {rule.only_made and self.journey != ON_ITS_HOST}, step
        assert next(event, None) is None


def walks(journey: str) -> t.Iterator[list[Step]]:
    """Ways that take every step once or more, each from the beginning."""
    steps = [s for s in STEPS[JOURNEYS[journey]] if not is_impossible(journey, s)]
    ways: dict[State, list[Step]] = {move_life.AT_HOME: []}
    reverting: dict[State, list[Step]] = {}  # where a person has begun to revert
    for step in steps:
        ways.setdefault(step.after, [*ways[step.before], step])
    for step in steps:
        if step.before.status == moves.REVERTING and step.event is move_life.BROUGHT_BACK:
            reverting[step.after] = [*ways[step.before], step]
    taken: set[Step] = set()
    for step in reversed(steps):
        by_revert = step.event in (move_life.REVERT_BEGUN, move_life.REVERTED)
        way = [*(reverting if by_revert and step.before in reverting else ways)[step.before], step]
        if step not in taken:
            taken.update(way)
            yield way
    assert taken == set(steps)


def is_impossible(journey: str, step: Step) -> bool:
    """Where the other host of a move is the instance's own, it is not lost alone."""
    lost = State(moves.REVERTING, SOURCE, move_life.HOSTS, frozenset((DESTINATION,)))
    return journey == ON_ITS_HOST and lost in (step.before, step.after)


WALKS = [(journey, way) for journey in JOURNEYS for way in walks(journey)]


@pytest.mark.parametrize(
    ("journey", "way"), WALKS, ids=["%s: %s" % (j, ", ".join(s.event.name for s in way)) for j, way in WALKS]
)
def test_the_ledger_is_as_the_table_says(bworld: BootWorld, journey: str, way: list[Step]) -> None:
    world = Walker(bworld.url)
    bworld.moves = True  # its check comes last, while volumes may be between two hosts
    bworld.migrates_live = journey == moves.LIVE_MIGRATION
    try:
        world.set_out(journey)
        for step in way:
            world.walk(step)
    finally:
        world.ledger.close()
