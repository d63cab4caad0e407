# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The words of ssh end in a full stop, and ours go on after them: each way in which an action learns that a host cannot be reached."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.bootflow.compute.plugins.action import compute_report
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

WORDS = "Failed to connect to the host via ssh:\n  ann@h1: Permission denied (publickey)."
SAID = "Host h1 is unreachable: Failed to connect to the host via ssh: ann@h1: Permission denied (publickey)"


def lost(*_anything: t.Any) -> t.Any:
    raise AnsibleConnectionFailure(WORDS)


@pytest.mark.parametrize("module", [lost, lambda *_asked: {"unreachable": True, "msg": WORDS}])
def test_a_module(world: World, module: t.Callable[..., t.Any]) -> None:
    ports = WorldPorts(world, "a", module)
    action = action_of(compute_report, ports, {"inventory_hostname": "h1", "hostvars": {"h1": {}}})
    assert action.act()["error"]["message"] == SAID
    (warning,) = ports.warnings
    remedy = errors.HostUnreachable.remedy
    assert warning == "h1 did not report and is left out: %s. %s" % (SAID, remedy)


def test_a_look_whether_a_host_answers(world: World) -> None:
    ports = WorldPorts(world, "a")
    ports.run_python = lost  # type: ignore[method-assign]
    action = action_of(compute_report, ports, {"inventory_hostname": "h1", "hostvars": {"h1": {}}})
    with pytest.raises(errors.HostUnreachable) as gone:
        action.probe()
    assert gone.value.message == SAID
