# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that is gone for good is deleted, and what waited for it is free; not as long as something is there."""

from __future__ import annotations

import threading
import typing as t

import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.action import compute_host_state
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import evidence as host_evidence
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import moves
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import schedule
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import audit, host_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

MACHINE = "4c4c4544-0042-4a10-8054-b7c04f4d3732"


def set_state(world: World, state: str, *hosts: str) -> list[dict[str, t.Any]]:
    with world.ledger.write() as tx:
        return host_state.set_state(tx.for_run(world.context()), hosts or ["h1"], state, "")


def test_a_host_that_is_gone_for_good(world: World) -> None:
    world.report("h1", memory=9)
    uuid = world.boot("web")
    address = world.addresses(uuid)
    with pytest.raises(errors.ComputeServiceInUse):
        set_state(world, service_state.DELETED)
    set_state(world, service_state.FORCED_DOWN)
    with pytest.raises(errors.Conflict, match="web"):
        set_state(world, service_state.DELETED)
    world.delete(uuids=[uuid])
    world.finish(force=True)  # the host does not answer
    assert world.cleanups() == {(uuid, "h1")} and world.claims() == {(uuid, "h1")}
    with pytest.raises(errors.ComputeHostNotFound, match="h9"):
        set_state(world, service_state.DELETED, "h1", "h9")

    ports = WorldPorts(world, "a")
    wanted = {"hosts": ["h1"], "state": "deleted", "print_table": True}
    before = world.everything()
    assert action_of(compute_host_state, ports, {}, True, **wanted).act()["changed"]
    assert "h1 would be deleted from the ledger" in ports.shown[-1] and world.everything() == before
    result = action_of(compute_host_state, ports, {}, False, **wanted).act()
    assert result["changed"] and result["hosts"] == {} and "h1 is deleted from the ledger" in ports.shown[-1]
    assert not world.cleanups() and not world.claims() and not world.rows(tables.compute_nodes)
    assert not world.rows(tables.ports) and not world.rows(tables.node_facts)
    with world.ledger.read() as tx:
        assert not audit.plan(tx.for_run(world.context()), host_evidence.Evidence(strangers=("h1",)))
    world.report("h1", memory=9)  # another machine of that name
    assert world.addresses(world.boot("next")) == address


def test_a_host_whose_machine_answers_under_another_name_is_not_forced_down(world: World) -> None:
    """Renamed in the inventory, it looked dead; an evacuation would have run its guests twice."""
    world.report("h1", node="kvm", host_uuid=MACHINE)
    uuid = world.boot("web")
    world.report("h3", node="other", host_uuid=MACHINE)  # some makers give all machines one UUID
    world.time += 60
    set_state(world, service_state.FORCED_DOWN)
    set_state(world, service_state.UP)
    world.report("h2", node="kvm", host_uuid=MACHINE)
    with pytest.raises(errors.Conflict, match="its machine answers as h2") as refused:
        set_state(world, service_state.FORCED_DOWN, "h1", "h3")
    assert "Name the machine h1 in the inventory again" in refused.value.remedy
    world.delete(uuids=[uuid])
    world.finish(force=True)
    set_state(world, service_state.FORCED_DOWN)  # it has nothing any more, and can be deleted


@pytest.mark.parametrize("end", ["source_compute", "dest_compute"])
def test_a_host_on_which_a_move_depends_stays(world: World, end: str) -> None:
    world.report("h2")
    uuid = world.boot("web")
    world.report("h1")
    set_state(world, service_state.FORCED_DOWN)
    spec = world.row(uuid).request_spec_id
    row = {"instance_uuid": uuid, "migration_type": moves.MIGRATION, "status": moves.FINISHED, "old_vm_state": "active"}
    places = {"source_compute": "h2", "source_node": "h2", "dest_compute": "h2", "dest_node": "h2", end: "h1"}
    times = {"run_id": "run-a", "created_at": world.time, "updated_at": world.time}
    with world.ledger.write() as tx:
        entered = {**row, **places, **times, "old_request_spec_id": spec, "new_request_spec_id": spec}
        tx.execute(tables.migrations.insert().values(**entered))
    with pytest.raises(errors.Conflict, match="h1 cannot be deleted: a move of instance") as refused:
        set_state(world, service_state.DELETED)
    assert "revert_resize" in str(refused.value.remedy)
    with world.ledger.write() as tx:
        tx.execute(sa.update(tables.migrations).values(status=moves.CONFIRMED))
    assert set_state(world, service_state.DELETED) == [{"host": "h1", "what": "host", "from": "h1", "to": None}]
    assert [r.host for r in world.rows(tables.compute_nodes)] == ["h2"]


def test_a_host_to_which_a_boot_comes_while_it_is_deleted_stays(world: World) -> None:
    """The claims were released under a build that had just been placed: its guest ran on a host that the ledger had forgotten."""
    if not world.ledger.is_server:
        pytest.skip("sqlite has one writer at a time")
    world.report("h1", memory=9)
    uuid = world.boot("web", "accepted")
    other = World(world.url)
    deleted: list[t.Any] = []

    def fleet(tx: t.Any, needs: t.Any) -> t.Any:
        found = world.fleet(tx, needs)
        set_state(other, service_state.FORCED_DOWN)
        return found

    def delete() -> None:
        try:
            deleted.append(set_state(other, service_state.DELETED))
        except errors.BootflowError as e:
            deleted.append(e)

    thread = threading.Thread(target=delete)
    with world.ledger.write() as tx:
        assert schedule.schedule(tx.for_run(world.context("a")), fleet, world.options()).placed[uuid].host == "h1"
        thread.start()
        thread.join(1.0)  # it waits for the node, or has seen the claim
    thread.join(30)
    other.ledger.close()
    assert [type(d) for d in deleted] == [errors.Conflict]
    assert world.claims() == {(uuid, "h1")} and len(world.rows(tables.compute_nodes)) == 1
