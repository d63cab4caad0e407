# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a person who made several mistakes at once is told by a boot."""

from __future__ import annotations

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
