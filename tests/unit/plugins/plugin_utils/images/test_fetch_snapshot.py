# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images that hosts made of instances come into a store of the controller: whole, or not at all."""

from __future__ import annotations

import hashlib
import shutil
import types
import typing as t
from pathlib import Path

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible_collections.bootflow.compute.plugins.action import image_export
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores
from ansible_collections.bootflow.compute.plugins.plugin_utils.images import fetch_snapshot as of_controller
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import LedgerAction
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

CONTENT = b"image" * 500_000
ID = "99999999-0000-4000-8000-00000000000a"


class Site:
    """A host with the file of an image, and a store of the controller."""

    def __init__(self, world: World, folder: Path):
        self.file, self.folder = folder / "made", folder / "store"
        self.folder.mkdir()
        self.file.write_bytes(CONTENT)
        (self.store,) = read_stores([{"name": "here", "path": str(self.folder)}], [])
        self.answer = {"path": str(self.file), "size": len(CONTENT), "checksum": hashlib.sha256(CONTENT).hexdigest()}
        variables = {"inventory_hostname": "kvm1", "groups": {"all": ["kvm1"]}}
        self.action: LedgerAction = action_of(image_export, WorldPorts(world, "e"), variables, False, dest="/x")
        self.action._connection = types.SimpleNamespace(fetch_file=shutil.copyfile, transport="ssh", become=None)

    def fetch(self) -> None:
        of_controller.fetch_snapshot(self.action, self.store, ID, "web", self.answer)

    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


@pytest.fixture
def site(world: World, tmp_path: Path) -> Site:
    return Site(world, tmp_path)


def test_a_file_is_fetched(site: Site) -> None:
    (site.folder / (ID + ".part")).write_bytes(b"of a killed run")
    site.fetch()
    assert (site.folder / ID).read_bytes() == CONTENT and site.files() == {ID}
    assert (site.folder / ID).stat().st_mode & 0o777 == 0o600
    of_controller.remove_half(site.store, ID)
    assert site.files() == set()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (AnsibleConnectionFailure("gone"), errors.HostUnreachable),
        (AnsibleError("denied"), errors.ImageNotReadable),
        (OSError(28, "No space left on device"), errors.DiskFull),
        (None, errors.ImageChecksumMismatch),
    ],
)
def test_what_does_not_arrive_leaves_nothing(site: Site, fault: Exception | None, expected: type[Exception]) -> None:
    def fetch(_path: str, target: str) -> None:
        Path(target).write_bytes(CONTENT[:-1] + b"x")
        if fault is not None:
            raise fault

    site.action._connection.fetch_file = fetch
    with pytest.raises(expected):
        site.fetch()
    assert site.files() == set()


def test_the_size_is_that_of_the_file(site: Site) -> None:
    site.answer["size"] = len(CONTENT) - 1
    with pytest.raises(errors.ImageChecksumMismatch, match="its host says %d" % (len(CONTENT) - 1)):
        site.fetch()
    assert site.files() == set()


def test_room_is_looked_for_before(site: Site) -> None:
    site.answer["size"] = 2**60
    with pytest.raises(errors.DiskFull, match="MiB are free"):
        site.fetch()
    site.folder.rmdir()
    with pytest.raises(errors.RemoteError, match="does not exist on the controller"):
        site.fetch()


@pytest.mark.parametrize(
    ("become", "stdout", "expected"), [(None, "1000\n", 0), ("sudo", "1000\n", 1000), ("sudo", "", 0)]
)
def test_the_file_is_of_the_user_that_logs_in(site: Site, become: t.Any, stdout: str, expected: int) -> None:
    asked: list[str] = []

    def execute(command: str, sudoable: bool = True) -> dict[str, t.Any]:
        assert not sudoable
        asked.append(command)
        return {"stdout": stdout, "rc": 0}

    site.action._connection.become = become
    site.action._low_level_execute_command = execute
    assert of_controller.login_user(site.action) == expected
    assert asked == ([] if become is None else ["id -u"])
