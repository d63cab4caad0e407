# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes of shelved instances in the ledger: one run works on them, and one host is connected to them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import moving
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import cleanup, operation, shelve
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import unshelve
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances, service_state
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import (
    BootWorld,
    device,
    from_image,
    volume_request,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.ledgers import MEMORY

HOSTS = ("h1", "h2")
BROKEN = errors.RemoteError(reason="it broke")
UNKNOWN = errors.HostUnreachable(host="h1", reason="it returned no result")


class Shelf(BootWorld):
    """The instance ``web``, whose root is a volume, with the volume ``data``."""

    moves = True

    def prepare(self) -> str:
        for host in HOSTS:
            self.report(host, memory=4)
        self.store()
        self.make("data", size=2)
        (uuid,) = self.boot_of(volume_request("web", from_image(), device("volume", self.volume("data").id)))
        return uuid

    def ask(self, run: str, function: t.Callable[..., t.Any], *arguments: t.Any, **more: t.Any) -> t.Any:
        with self.ledger.write() as tx:
            result = function(tx.for_run(self.context(run)), *arguments, **more)
            self.check(tx)
            return result

    def begin_offload(self, uuid: str, run: str = "s") -> None:
        """It is shelved, and its offload begins."""
        host = self.row(uuid).host

        def shelved(tx: t.Any) -> None:
            shelve.begin(tx, Selection(uuids=[uuid]), HOSTS, pytest.fail)
            failed = operation.finish(tx, shelve.SHELVE, {uuid: Outcome(states.SHUTDOWN)})
            shelve.finish(tx, {uuid: {"host": host}}, failed)
            rows = instances.select_live(tx, uuids=[uuid], lock=True)
            shelve.begin_offload(tx, rows, HOSTS)

        self.ask(run, shelved)

    def end_offload(self, uuid: str, error: t.Any = None, run: str = "s") -> None:
        host = self.row(uuid).host
        if error is None:
            self.leave(host, [uuid], run)
        self.ask(run, shelve.finish_offload, {uuid: Outcome(states.SHUTDOWN, error)}, {uuid: host})
        self.unexport(run=run)
        self.ask(run, moving.release_moved, [uuid])

    def begin_unshelve(self, uuid: str, run: str) -> list[str]:
        """Returns the instances whose volumes are to be connected."""

        with self.ledger.write() as tx:
            tx = tx.for_run(self.context(run))
            unshelve.begin(tx, unshelve.Wanted(Selection(uuids=[uuid]), HOSTS), self.fleet, self.options())
            (row,) = instances.select_live(tx, uuids=[uuid])
            unconnected = moving.adopt_unconnected(tx, {uuid: row.host}, self.end)
        self.unexport(run=run)
        self.export(run=run)
        return unconnected

    def end_unshelve(self, uuid: str, run: str, error: t.Any = None) -> None:
        def finish(tx: t.Any) -> None:
            moving.release_moved(tx, [uuid])
            failed = operation.finish(tx, unshelve.UNSHELVE, {uuid: Outcome(states.RUNNING, error)})
            started = [uuid] if error is None else []
            unshelve.finish(tx, started, started, dict.fromkeys(failed, False))

        self.ask(run, finish)

    def owners(self) -> set[str | None]:
        return {row.run_id for row in self.live_attachments()}

    def ends_of_all(self) -> set[tuple[str | None, str, str]]:
        return {(row.attached_host, row.export, row.connection) for row in self.live_attachments()}


@pytest.fixture
def shelf() -> t.Iterator[Shelf]:
    world = Shelf(MEMORY)
    yield world
    world.ledger.close()


def test_no_other_run_works_on_volumes_while_an_instance_leaves_its_host(shelf: Shelf) -> None:
    uuid = shelf.prepare()
    host = shelf.row(uuid).host
    shelf.begin_offload(uuid)
    assert shelf.owners() == {shelf.context("s").run.id}
    shelf.end_offload(uuid, BROKEN)
    assert shelf.state(uuid) == ("shelved", None, host) and shelf.owners() == {None}
    assert shelf.ends_of_all() == {(host, "done", "done")}
    with shelf.ledger.write() as tx:
        tx = tx.for_run(shelf.context("s"))
        shelve.begin_offload(tx, instances.select_live(tx, uuids=[uuid], lock=True), HOSTS)
    shelf.end_offload(uuid)
    assert shelf.state(uuid) == ("shelved_offloaded", None, None)
    assert shelf.ends_of_all() == {(None, "none", "none")} and shelf.owners() == {None}


@pytest.mark.parametrize("is_back", [False, True])
def test_a_host_that_was_lost_with_a_build_is_cut_off(shelf: Shelf, is_back: bool) -> None:
    """It got the instance, and did not say what became of it. Once it is forced down, or is back and was cleaned, a host gets the volumes."""
    uuid = shelf.prepare()
    shelf.begin_offload(uuid)
    shelf.end_offload(uuid)
    assert shelf.begin_unshelve(uuid, "u1") == [uuid]
    lost = shelf.row(uuid).host
    assert shelf.connect(lost, [uuid], "u1")
    shelf.end_unshelve(uuid, "u1", UNKNOWN)
    assert shelf.state(uuid) == ("shelved_offloaded", None, None) and shelf.cleanups() == {(uuid, lost)}
    with pytest.raises(errors.InvalidVolume, match="still connected to host %s" % lost):
        shelf.begin_unshelve(uuid, "u2")
    if is_back:  # it is cleaned, and the run of its report ends the exports
        shelf.leave(lost, [uuid], "r")
        shelf.ask("r", cleanup.finish, {lost: [uuid]})
        shelf.unexport(run="r")
        assert shelf.ends_of_all() == {(None, "none", "none")} and shelf.claims() == set()
    else:
        shelf.ask("f", service_state.set_state, [lost], service_state.FORCED_DOWN)
    assert shelf.begin_unshelve(uuid, "u3") == [uuid]
    host = shelf.row(uuid).host
    assert (is_back or host != lost) and shelf.ends_of_all() == {(host, "done", "none")}
    assert shelf.connect(host, [uuid], "u3")
    shelf.end_unshelve(uuid, "u3")
    assert shelf.state(uuid) == ("active", None, host)
    assert shelf.ends_of_all() == {(host, "done", "done")} and shelf.owners() == {None}


def test_a_run_that_dies_while_an_instance_leaves_its_host(shelf: Shelf) -> None:
    """The volumes are nobody's then, so that the next run of their storage host ends the exports."""
    uuid = shelf.prepare()
    host = shelf.row(uuid).host
    shelf.begin_offload(uuid)
    shelf.leave(host, [uuid], "s")
    shelf.time += 601
    settled = shelf.ask("z", recovery.settle_operations, host, {}, shelf.time, [])
    assert settled == {uuid: "shelved"} and shelf.owners() == {None}
    assert shelf.ends_of_all() == {(host, "ending", "none")}
    shelf.unexport(run="z")
    shelf.time += 601
    assert shelf.begin_unshelve(uuid, "u") == [uuid]
    assert shelf.ends_of_all() == {(host, "done", "none")}
