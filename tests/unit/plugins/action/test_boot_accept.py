# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a person who made several mistakes at once is told by a boot."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.bootflow.compute.plugins.action import boot_accept
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidRequest
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World


def test_wrong_options_and_wrong_settings_of_hosts_are_one_error(world: World) -> None:
    host = {"bootflow_reserved_memory_mb": "1.5"}
    variables = {
        "inventory_hostname": "localhost",
        "groups": {"all": ["localhost", "h1"], "bootflow_compute": ["h1"]},
        "hostvars": {"localhost": {}, "h1": host},
        "bootflow_max_attempts": 9,
        "bootflow_enabled_filters": ["NoFilter"],
        "bootflow_instances": [],
    }
    with pytest.raises(InvalidRequest) as caught:
        action_of(boot_accept, WorldPorts(world, "run1"), variables)
    assert [e["path"] for e in caught.value.errors] == ["bootflow_max_attempts", "scheduler", "host h1"]


def test_secrets_of_variables_are_not_written_into_the_arguments_of_the_task(world: World) -> None:
    """S5: callbacks and display_args_to_stdout show the arguments of a task."""
    variables = {
        "inventory_hostname": "localhost",
        "groups": {"all": ["localhost"], "bootflow_compute": []},
        "hostvars": {"localhost": {}},
        "bootflow_instances": [{"name": "web", "admin_password": "hunter2", "user_data": "secret"}],
        "bootflow_ledger_password": "swordfish",
    }
    given = {"ledger_url": world.url, "project": "default"}
    action = action_of(boot_accept, WorldPorts(world, "run1"), variables, **copy.deepcopy(given))
    assert action.options["instances"] == variables["bootflow_instances"]
    assert action.options["ledger_password"] == "swordfish"
    assert action._task.args == given
