# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a person who made several mistakes at once is told by a boot."""

from __future__ import annotations

import copy
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.action import boot_accept
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput, InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
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
    """Callbacks and display_args_to_stdout show the arguments of a task."""
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


@pytest.mark.parametrize("check_mode", [True, False])
def test_an_image_file_that_is_not_on_the_controller_is_refused_with_the_request(
    world: World, tmp_path: Path, check_mode: bool
) -> None:
    world.report("h1")
    image = tmp_path / "cirros.img"
    variables = {
        "inventory_hostname": "localhost",
        "groups": {"all": ["localhost", "h1"], "bootflow_compute": ["h1"]},
        "hostvars": {"localhost": {}, "h1": {}},
        "bootflow_flavors": [{"name": "small", "memory_mb": 512, "vcpus": 1, "root_gb": 1}],
        "bootflow_images": [
            {"name": "cirros", "disk_format": "raw", "path": str(image), "checksum": "0" * 64},
            {"name": "unused", "disk_format": "raw", "path": "/nowhere"},
        ],
        "bootflow_instances": [{"name": "web", "flavor": "small", "image": "cirros", "networks": "none"}],
    }

    def accept() -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", action_of(boot_accept, WorldPorts(world, "a"), variables, check_mode).act())

    with pytest.raises(InvalidRequest) as caught:
        accept()
    (error,) = caught.value.errors
    assert error["path"] == "instances[0].image" and str(image) in error["message"]
    assert world.rows(tables.instances) == []
    image.write_bytes(b"x")
    assert accept()["changed"]
    image.unlink()
    if not check_mode:
        assert accept()["resumed"]  # it needs the file on its host, where it may be already


def test_what_changed_and_what_the_catalogue_changed_are_told(world: World) -> None:
    """In check mode and when it is done; the instance is not built again."""
    world.report("h1")
    variables: dict[str, t.Any] = {
        "inventory_hostname": "localhost",
        "groups": {"all": ["localhost", "h1"], "bootflow_compute": ["h1"]},
        "hostvars": {"localhost": {}, "h1": {}},
        "bootflow_flavors": [{"name": "small", "memory_mb": 512, "vcpus": 1, "root_gb": 1}],
        "bootflow_images": [{"name": "i", "disk_format": "raw", "url": "http://x/y", "checksum": "0" * 64}],
        "bootflow_instances": [{"name": "web", "flavor": "small", "image": "i", "networks": "none"}],
    }
    (uuid,) = action_of(boot_accept, WorldPorts(world, "a"), variables).act()["created"]
    world.schedule()
    world.build("h1")
    variables["bootflow_flavors"] = [{"name": "small", "memory_mb": 1024, "vcpus": 1, "root_gb": 1}]
    variables["bootflow_instances"][0]["metadata"] = {"role": "front"}
    for check_mode, word in ((True, "would change"), (False, "changed")):
        ports = WorldPorts(world, "b")
        result = action_of(boot_accept, ports, variables, check_mode).act()
        assert (result["changed"], result["updated"], result["unchanged"]) == (True, [uuid], [])
        assert result["drift"] == [{"instances": ["web"], "changes": ["flavor.memory_mb: was 512, is 1024"]}]
        assert result["diff"]["after"] == "web metadata: {'role': 'front'}\n"
        assert ports.shown == [
            "\nweb: %s metadata.\nweb keeps the catalogue entries with which it was accepted; changed since then:"
            " flavor.memory_mb: was 512, is 1024.\n" % word
        ]
    again = action_of(boot_accept, WorldPorts(world, "c"), variables).act()
    assert (again["changed"], again["unchanged"]) == (False, [uuid])


def test_a_folder_for_passwords_that_cannot_be_made_is_refused_before_anything_is_written(
    world: World, tmp_path: Path
) -> None:
    world.report("h1")
    (tmp_path / "file").touch()
    variables = {
        "inventory_hostname": "localhost",
        "groups": {"all": ["localhost", "h1"], "bootflow_compute": ["h1"]},
        "hostvars": {"localhost": {}, "h1": {}},
        "bootflow_flavors": [{"name": "small", "vcpus": 1, "memory_mb": 512, "root_gb": 1}],
        "bootflow_images": [{"name": "i", "disk_format": "raw", "url": "http://x/y", "checksum": "0" * 64}],
        "bootflow_instances": [{"name": "web", "flavor": "small", "image": "i", "networks": "none"}],
        "bootflow_admin_password_dir": str(tmp_path / "file" / "x"),
    }
    accept = action_of(boot_accept, WorldPorts(world, "run1"), variables)
    with pytest.raises(InvalidInput, match="cannot be written to .*/file/x: Not a directory"):
        accept.act()
    assert world.rows(tables.instances) == []
    variables["bootflow_enable_instance_password"] = False
    variables["bootflow_admin_password_dir"] = str(tmp_path / "passwords")
    action_of(boot_accept, WorldPorts(world, "run1"), variables, check_mode=True).act()
    del variables["bootflow_enable_instance_password"]
    action_of(boot_accept, WorldPorts(world, "run1"), variables, check_mode=True).act()
    assert not (tmp_path / "passwords").exists()
    assert action_of(boot_accept, WorldPorts(world, "run1"), variables).act()["created"]
    assert (tmp_path / "passwords").stat().st_mode & 0o777 == 0o700
