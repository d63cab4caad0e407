# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest that its host does not have any more, and one of which nobody knows: after an operation that failed, the first is in error."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

FAILED = errors.LibvirtError(reason="x")
NOT_FOUND = errors.InstanceNotFound(instance_id="x")


@pytest.mark.parametrize("name", ["soft_reboot", "hard_reboot", "unrescue"])
@pytest.mark.parametrize(
    ("answer", "error", "ends_in_error"),
    [
        ({"power_state": states.NOSTATE}, FAILED, True),  # as Nova, which looks for the guest then
        ({}, NOT_FOUND, True),
        ({}, FAILED, False),  # libvirt does not answer
        ({}, errors.HostUnreachable(host="h1", reason="x"), False),
        ({"power_state": states.SHUTDOWN}, FAILED, True),
        ({"power_state": states.RUNNING}, FAILED, False),
    ],
)
def test_what_is_left_of_a_guest(
    world: World, name: str, answer: dict[str, t.Any], error: errors.BootflowError, ends_in_error: bool
) -> None:
    world.report("h1")
    uuid = world.boot("web")
    its = OPERATIONS[name]
    before = states.RESCUED if name == "unrescue" else states.ACTIVE
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(vm_state=before, power_state=states.RUNNING))
    with world.ledger.write() as tx:
        operation.begin(tx.for_run(world.context("b")), its, Selection(uuids=[uuid]), ["h1"])
    with world.ledger.write() as tx:
        operation.finish(tx.for_run(world.context("b")), its, {uuid: Outcome.of_answer(answer, error)})
    goes_on = states.ACTIVE if answer.get("power_state") == states.RUNNING else before
    assert world.state(uuid)[:2] == (states.ERROR if ends_in_error else goes_on, None)
    known = "power_state" in answer or error is NOT_FOUND
    assert world.row(uuid).power_state == (answer.get("power_state", states.NOSTATE) if known else states.RUNNING)


def test_a_success_is_one_whatever_the_guest_is() -> None:
    assert not Outcome.of_answer({"power_state": states.NOSTATE}, None).domain_missing
