# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The run with the inventory of a fleet: its inventories and its environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.plugin_utils.molecule import fleet_run

SCENARIO = {"ANSIBLE_CONFIG": "/of/molecule.cfg", "ANSIBLE_INVENTORY": "/x", "ANSIBLE_FORCE_COLOR": "1", "HOME": "/h"}


def test_relative_inventories_begin_at_the_project(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("")
    path = str(tmp_path / "hosts.yml")
    assert fleet_run.find_inventories(["hosts.yml", path], str(tmp_path)) == [path, path]


@pytest.mark.parametrize(("named", "message"), [([], "no inventory of a fleet is named"), (["none"], "does not exist")])
def test_a_fleet_without_inventory(named: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInput, match=message) as raised:
        fleet_run.find_inventories(named, str(tmp_path))
    assert fleet_run.ENVIRONMENT in str(raised.value.remedy)


@pytest.mark.parametrize("is_folder", [True, False])
def test_the_configuration_is_that_of_the_fleet(is_folder: bool, tmp_path: Path) -> None:
    inventory = str(tmp_path if is_folder else tmp_path / "hosts.yml")
    common = {"HOME": "/h", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_STDOUT_CALLBACK": "bootflow.compute.concise"}
    assert fleet_run._environment(SCENARIO, inventory) == common
    (tmp_path / "ansible.cfg").write_text("")
    assert fleet_run._environment(SCENARIO, inventory) == {**common, "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg")}
