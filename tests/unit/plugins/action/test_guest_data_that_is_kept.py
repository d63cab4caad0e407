# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""User data and files that a controller keeps: from the boot to an evacuation without the file, until the last instance is deleted."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.action import boot_accept
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.drive_files import unpack_files
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.guest_data import GuestSecrets
from ansible_collections.bootflow.compute.plugins.plugin_utils.builds import kept_guest_data
from ansible_collections.bootflow.compute.plugins.plugin_utils.builds.kept_guest_data import KeptGuestData
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

from .test_evacuate import Evacuating
from .test_guest_data_of_evacuation import FILE, SECRET, fleet_of, places
from .test_instance_delete import Play
from .test_rebuild import row_of

SYSTEM = kept_guest_data.SYSTEM  # tests have another one


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "user-data"


def of_ledger(folder: Path, world: World) -> Path:
    """The part of the folder that is of the world's ledger."""
    return folder / world.ledger.id


@pytest.fixture
def keeping(world: World, folder: Path) -> Evacuating:
    """The hosts and instances of an evacuation, on a controller that keeps what booted them."""
    fleet = fleet_of(world)
    KeptGuestData(str(of_ledger(folder, world))).keep([GuestSecrets(SECRET), GuestSecrets(None, (FILE,))])
    fleet.variables["bootflow_user_data_dir"] = str(folder)
    return fleet


def test_an_evacuation_needs_no_file(keeping: Evacuating) -> None:
    done = keeping.evacuate(hosts=["h1"])
    assert "failed" not in done and not any(places(keeping).values())
    drives = {n: str(unpack_files(keeping.drives[row_of(keeping.world, n).uuid]["files"])) for n in ("app", "db")}
    assert "hunter2" in drives["app"] and "hunter2" in drives["db"]
    assert "hunter2" not in str(done) + str(keeping.world.everything())


@pytest.mark.parametrize("variables", [{"bootflow_keep_user_data": False}, {"bootflow_user_data_dir": "/nonexistent"}])
def test_another_controller_needs_the_file(keeping: Evacuating, variables: dict[str, t.Any]) -> None:
    keeping.variables.update(variables)
    with pytest.raises(errors.GuestDataRequired, match="app") as refused:
        keeping.evacuate(names=["app"])
    assert "bootflow_user_data_dir" in refused.value.remedy and "-e @FILE" in refused.value.remedy


@pytest.mark.parametrize(
    "changed", [{"user_data": SECRET + "x"}, {"injected_files": [{"path": "/a", "contents": "eA=="}]}]
)
def test_a_file_that_differs_is_refused(keeping: Evacuating, changed: dict[str, t.Any]) -> None:
    """Not the copy that is kept is taken instead: the person means another guest."""
    keeping.variables["bootflow_instances"] = [{"name": "app", **changed}]
    before = keeping.world.everything()
    with pytest.raises(
        errors.GuestDataDiffers, match="was booted with other %s than the request has" % next(iter(changed))
    ):
        keeping.evacuate(names=["app"])
    assert keeping.world.everything() == before
    assert keeping.evacuate(hosts=["h1"])["failed"] and places(keeping)["app"], "the others go"


def test_a_rebuild_needs_no_file_either(world: World, folder: Path) -> None:
    from .test_rebuild import Rebuilding

    world.report("h1")
    world.accept(request("one", user_data=SECRET))
    world.schedule()
    world.build("h1")
    rebuilding = Rebuilding(world)
    rebuilding.variables["bootflow_user_data_dir"] = str(folder)
    with pytest.raises(errors.GuestDataRequired):
        rebuilding.play("rebuild", names=["one"])
    rebuilding.variables["bootflow_instances"] = [{"name": "one", "user_data": SECRET + "new"}]
    assert rebuilding.play("rebuild", names=["one"])["changed"]
    rebuilding.variables["bootflow_instances"] = []
    rebuilding.drives.clear()
    assert rebuilding.play("rebuild", names=["one"])["changed"], "what it was rebuilt with is kept"
    assert "hunter2\\nnew" in str(unpack_files(rebuilding.drives[row_of(world, "one").uuid]["files"]))


def booted(world: World, folder: Path | None, check_mode: bool = False, **fields: t.Any) -> None:
    variables = {
        "inventory_hostname": "localhost",
        "groups": {"all": ["localhost", "h1"], "bootflow_compute": ["h1"]},
        "hostvars": {"localhost": {}, "h1": {}},
        "bootflow_flavors": [{"name": "small", "memory_mb": 512, "vcpus": 1, "root_gb": 1}],
        "bootflow_images": [{"name": "cirros", "disk_format": "raw", "url": "http://x/y", "checksum": "0" * 64}],
        "bootflow_instances": [{"name": "web", "flavor": "small", "image": "cirros", "networks": "none", **fields}],
        **({"bootflow_user_data_dir": str(folder)} if folder else {}),
    }
    action_of(boot_accept, WorldPorts(world, "run1"), variables, check_mode).act()


def kept(folder: Path) -> int:
    return len([p for p in folder.iterdir() if len(p.name) == 64]) if folder.is_dir() else 0


def test_a_boot_keeps_it_until_the_last_instance_is_deleted(world: World, folder: Path) -> None:
    world.report("h1")
    booted(world, folder, check_mode=True, user_data=SECRET, max_count=2)
    assert not folder.exists()
    booted(world, folder, user_data=SECRET, max_count=2)
    booted(world, folder, name="plain")
    digest = row_of(world, "web-1").digest
    mine, another = of_ledger(folder, world), KeptGuestData(str(folder / "another"))
    another.keep([GuestSecrets(SECRET)])
    assert KeptGuestData(str(mine)).read_secrets(digest) == GuestSecrets(SECRET) and kept(mine) == 1
    play = Play(world)
    play.hosts, play.variables = ["h1"], {"bootflow_user_data_dir": str(folder)}
    for name, left in (("web-1", 1), ("plain", 1), ("web-2", 0)):
        play(names=[name])
        assert kept(mine) == left, name
    assert another.read_secrets(digest) == GuestSecrets(SECRET), "another ledger keeps its own"


@pytest.mark.parametrize(
    ("url", "uid", "state", "folder"),
    [
        ("sqlite:///{tmp}/ledger.db", 0, None, "{tmp}/user-data"),
        ("{tmp}/ledger.db", 0, None, "{tmp}/user-data"),
        ("postgresql://u@h/d", 0, None, "/var/lib/bootflow/user-data"),
        ("postgres://u@h/d", 1000, None, "{tmp}/.local/state/bootflow/user-data"),
        ("postgresql://u@h/d", 1000, "{tmp}/state", "{tmp}/state/bootflow/user-data"),
        ("postgresql://u@h/d", 1000, "state", "{tmp}/.local/state/bootflow/user-data"),
        ("sqlite://", 0, None, None),
    ],
)
def test_where_it_is_kept_by_default(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    uid: int,
    state: str | None,
    folder: str | None,
) -> None:
    """Beside an sqlite file; with PostgreSQL in a folder of the user."""
    monkeypatch.setattr(kept_guest_data, "SYSTEM", SYSTEM)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", (state or "").format(tmp=tmp_path))
    variables = {
        "inventory_hostname": "localhost",
        "groups": {},
        "hostvars": {"localhost": {}},
        "bootflow_instances": [],
    }
    action = action_of(boot_accept, WorldPorts(world, "run1"), variables, ledger_url=url.format(tmp=tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: uid)
    found = kept_guest_data.of_action(action).folder
    assert found == (folder and "%s/%s" % (folder.format(tmp=tmp_path), world.ledger.id))


def test_a_boot_keeps_it_by_default(world: World) -> None:
    """With PostgreSQL, too."""
    world.report("h1")
    booted(world, None, user_data=SECRET)
    digest = row_of(world, "web").digest
    action = action_of(
        boot_accept, WorldPorts(world, "run1"), {"bootflow_instances": [], "hostvars": {"localhost": {}}, "groups": {}}
    )
    own = kept_guest_data.of_action(action)
    assert own.read_secrets(digest) == GuestSecrets(SECRET)
    if not world.url.startswith("sqlite"):
        modes = [Path(own.folder or "").parents[n].stat().st_mode & 0o777 for n in (0, 1)]
        assert modes == [0o700, 0o711], "QEMU passes through the folder above, where the host's instances may be"


def test_a_refusal_says_where_it_looked(keeping: Evacuating, tmp_path: Path) -> None:
    for variables, where in (
        ({"bootflow_user_data_dir": str(tmp_path)}, "%s/%s of this controller" % (tmp_path, keeping.world.ledger.id)),
        ({"bootflow_keep_user_data": False}, "which this controller does not have"),
    ):
        keeping.variables.update(variables)
        with pytest.raises(errors.GuestDataRequired) as refused:
            keeping.evacuate(names=["app"])
        assert where in refused.value.message
