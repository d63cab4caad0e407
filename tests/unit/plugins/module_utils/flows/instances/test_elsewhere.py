# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Instances of which another host than theirs reported something: nothing starts them a second time, and nothing brings them there."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.dead_builds import Seen
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.power_states import RUNNING, SHUTDOWN
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import elsewhere, operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import dead_builds, power_sync
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import (
    cleanups,
    instances,
    nodes,
    service_state,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

OTHER_LEDGER = "4ba360aa-565a-4939-921e-ad5ce44ce5bf"


def said(world: World, host: str, *domains: dict[str, t.Any], **more: t.Any) -> None:
    """What ``host`` reports now."""
    world.time += 10
    facts = {"hypervisor_hostname": host, "memory_mb": 4096, "local_gb": 4000, "vcpus": 500, "host_uuid": host}
    settings = {"ram_allocation_ratio": 1.0}
    with world.ledger.write() as tx:
        tx = tx.for_run(world.context())
        nodes.record_report(tx, host, {**facts, "domains": list(domains), **more}, settings)


def domain(uuid: str, power_state: int = RUNNING, **more: t.Any) -> dict[str, t.Any]:
    return {"uuid": uuid, "name": "web", "power_state": power_state, "ours": True, **more}


def refused(world: World, uuid: str) -> str:
    """Why the instance cannot be started; "" if it can."""
    with world.ledger.read() as tx:
        rows = instances.select_live(tx, uuids=[uuid])
        error = elsewhere.refusals(tx, rows).get(uuid)
    return "" if error is None else error.message


@pytest.fixture(name="uuid")
def _booted(world: World) -> str:
    """An instance on h1."""
    world.report("h1")
    uuid = world.boot("web")
    said(world, "h2")
    return uuid


@pytest.mark.parametrize("dead", [True, False])
def test_a_build_of_an_older_ledger_whose_guest_has_gone_to_another_host_since(world: World, dead: bool) -> None:
    """The ledger was restored from a backup. The guest that is off on the former host is built, and must not be started there."""
    world.report("h1")
    uuid = world.boot("web", "spawning", run="other")
    world.time += 1e6 if dead else 1.0
    said(world, "h2", domain(uuid))
    said(world, "h1", domain(uuid, SHUTDOWN))
    with world.ledger.write() as tx:
        adopted = dead_builds.settle_builds(
            tx.for_run(world.context()), "h1", {uuid: Seen(True, SHUTDOWN, "web")}, world.time
        ).adopted
    assert [*adopted] == ([uuid] if dead else [])
    assert ("h2 has the domain of the instance (running)" in refused(world, uuid)) is dead


@pytest.mark.parametrize(
    ("reported", "words"),
    [
        ({"domains": [("h2", RUNNING)]}, "h2 has the domain of the instance (running)"),
        ({"domains": [("h2", SHUTDOWN)]}, "h2 has the domain of the instance (shutdown)"),
        ({"instance_folders": True}, "h2 has the disks of the instance"),
        ({"instance_volumes": True}, "h2 has the disks of the instance"),
        ({"ledger": OTHER_LEDGER}, ""),
        ({}, ""),
    ],
)
def test_what_another_host_reported(world: World, uuid: str, reported: t.Any, words: str) -> None:
    its = [domain(uuid, state) for _host, state in reported.get("domains", ())]
    its += [domain(uuid, ledger=reported["ledger"])] if "ledger" in reported else []
    more: dict[str, t.Any] = {}
    if "instance_folders" in reported:
        more["instance_folders"] = [uuid]
    if "instance_volumes" in reported:
        more["instance_volumes"] = {uuid: ["%s_disk" % uuid]}
    said(world, "h2", *its, **more)
    assert words in refused(world, uuid) and bool(words) == bool(refused(world, uuid))


def test_an_orphan_that_is_off_keeps_nobody_from_the_instance(world: World, uuid: str) -> None:
    said(world, "h1", domain(uuid, SHUTDOWN))
    said(world, "h2", domain(uuid, SHUTDOWN))
    assert refused(world, uuid) == ""
    said(world, "h2", domain(uuid))
    assert "(running)" in refused(world, uuid)


BRING_UP = (
    "start",
    "resume",
    "soft_reboot",
    "hard_reboot",
    "rescue",
    "unrescue",
    "restore",
    "rebuild",
    "revert",
    "revert_resize",
    "unshelve",
)


def test_the_actions_that_bring_up_a_guest() -> None:
    assert {name for name, rule in states.ACTIONS.items() if rule.brings_up} == set(BRING_UP)


@pytest.mark.parametrize("name", BRING_UP)
def test_what_would_make_a_second_guest_is_refused(world: World, uuid: str, name: str) -> None:
    if name == "revert_resize":
        return  # flows/moves
    vm_states = OPERATIONS[name].rule.vm_states
    vm_state = states.ACTIVE if vm_states is None or states.ACTIVE in vm_states else sorted(vm_states)[0]
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(vm_state=vm_state))
    said(world, "h2", domain(uuid))
    with world.ledger.write() as tx:
        with pytest.raises(errors.InstanceElsewhere, match="h2 has the domain of the instance"):
            operation.begin(tx.for_run(world.context("b")), OPERATIONS[name], Selection(uuids=[uuid]), ("h1", "h2"))
    said(world, "h2")
    with world.ledger.write() as tx:
        operation.begin(tx.for_run(world.context("b")), OPERATIONS[name], Selection(uuids=[uuid]), ("h1", "h2"))


def test_an_active_instance_that_runs_elsewhere_is_not_as_requested(world: World, uuid: str) -> None:
    """As after the restore of an older ledger: "nothing to do" would be wrong."""
    said(world, "h1")
    said(world, "h2", domain(uuid))
    start = (OPERATIONS["start"], Selection(uuids=[uuid]), ("h1", "h2"))
    with world.ledger.write() as tx, pytest.raises(errors.InstanceElsewhere, match="h2 has the domain"):
        operation.begin(tx.for_run(world.context("b")), *start)
    said(world, "h2")
    with world.ledger.write() as tx:
        assert [r.uuid for r in operation.begin(tx.for_run(world.context("b")), *start).unchanged] == [uuid]


def test_a_host_that_is_to_be_cleaned_or_is_forced_down_does_not_count(world: World, uuid: str) -> None:
    said(world, "h2", domain(uuid))
    with world.ledger.write() as tx:
        service_state.set_state(tx.for_run(world.context()), ["h2"], service_state.FORCED_DOWN, "it lies")
    assert refused(world, uuid) == ""
    with world.ledger.write() as tx:
        tx.execute(tables.compute_nodes.update().values(forced_down=False))
    assert refused(world, uuid)
    with world.ledger.write() as tx:
        cleanups.add(tx.for_run(world.context()), cleanups.Due("h2", uuid, "web", "an orphan"))
    assert refused(world, uuid) == ""
    with world.ledger.write() as tx:
        cleanups.done(tx.for_run(world.context()), {("h2", uuid)})
    assert refused(world, uuid) == "" and not world.rows(tables.sightings)


def test_another_name_of_its_own_machine_is_no_other_host(world: World, uuid: str) -> None:
    said(world, "h1", domain(uuid), hypervisor_hostname="kvm1", host_uuid="m")
    said(world, "h2", domain(uuid), hypervisor_hostname="kvm1", host_uuid="m")
    assert refused(world, uuid) == ""


def test_a_host_that_restarted_does_not_start_what_runs_elsewhere_by_a_report_before(world: World, uuid: str) -> None:
    """Both hosts are named: one of them is wrong."""
    said(world, "h1", domain(uuid))
    said(world, "h2", domain(uuid))
    with world.ledger.write() as tx:
        nodes.record_boots(tx.for_run(world.context()), {"h1": "first"})
    world.time += 10
    with world.ledger.write() as tx:
        report = power_sync.Report(world.time, {uuid: SHUTDOWN}, "second")
        synced = power_sync.sync(tx.for_run(world.context("b")), {"h1": report}, stops=True)
    assert not synced.to_resume
    (found,) = synced.differences
    assert "h1" in found.reason and "h2 reports" in found.reason, found.reason
