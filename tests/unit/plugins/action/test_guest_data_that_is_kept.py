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
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema.guest_data_tables import guest_texts
from ansible_collections.bootflow.compute.plugins.plugin_utils.guest_data import guest_data_folder, guest_data_place
from ansible_collections.bootflow.compute.plugins.plugin_utils.guest_data.guest_data_folder import GuestDataFolder
from ansible_collections.bootflow.compute.plugins.plugin_utils.guest_data.guest_data_table import GuestDataTable
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

from .test_evacuate import Evacuating
from .test_guest_data_of_evacuation import FILE, SECRET, fleet_of, places
from .test_instance_delete import Play
from .test_rebuild import Rebuilding, row_of

SYSTEM = guest_data_folder.SYSTEM  # tests have another one


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
    GuestDataFolder(str(of_ledger(folder, world))).keep([GuestSecrets(SECRET), GuestSecrets(None, (FILE,))])
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


def booted(
    world: World,
    folder: Path | None,
    check_mode: bool = False,
    variables: t.Mapping[str, t.Any] | None = None,
    **fields: t.Any,
) -> None:
    all_variables = {
        "inventory_hostname": "localhost",
        "groups": {"all": ["localhost", "h1"], "bootflow_compute": ["h1"]},
        "hostvars": {"localhost": {}, "h1": {}},
        "bootflow_flavors": [{"name": "small", "memory_mb": 512, "vcpus": 1, "root_gb": 1}],
        "bootflow_images": [{"name": "cirros", "disk_format": "raw", "url": "http://x/y", "checksum": "0" * 64}],
        "bootflow_instances": [{"name": "web", "flavor": "small", "image": "cirros", "networks": "none", **fields}],
        **({"bootflow_user_data_dir": str(folder)} if folder else {}),
        **(variables or {}),
    }
    action_of(boot_accept, WorldPorts(world, "run1"), all_variables, check_mode).act()


def kept(folder: Path) -> int:
    return len([p for p in folder.iterdir() if len(p.name) == 64]) if folder.is_dir() else 0


def test_a_boot_keeps_it_until_the_last_instance_is_deleted(world: World, folder: Path) -> None:
    world.report("h1")
    booted(world, folder, check_mode=True, user_data=SECRET, max_count=2)
    assert not folder.exists()
    booted(world, folder, user_data=SECRET, max_count=2)
    booted(world, folder, name="plain")
    digest = row_of(world, "web-1").digest
    mine, another = of_ledger(folder, world), GuestDataFolder(str(folder / "another"))
    another.keep([GuestSecrets(SECRET)])
    assert GuestDataFolder(str(mine)).read_secrets(digest) == GuestSecrets(SECRET) and kept(mine) == 1
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
    monkeypatch.setattr(guest_data_folder, "SYSTEM", SYSTEM)
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
    found = guest_data_place.of_action(action)
    assert getattr(found, "folder", None) == (folder and "%s/%s" % (folder.format(tmp=tmp_path), world.ledger.id))


def test_a_boot_keeps_it_by_default(world: World) -> None:
    """With PostgreSQL, too."""
    world.report("h1")
    booted(world, None, user_data=SECRET)
    digest = row_of(world, "web").digest
    action = action_of(
        boot_accept, WorldPorts(world, "run1"), {"bootflow_instances": [], "hostvars": {"localhost": {}}, "groups": {}}
    )
    own = guest_data_place.of_action(action)
    assert own.read_secrets(digest) == GuestSecrets(SECRET)
    if not world.url.startswith("sqlite"):
        assert isinstance(own, GuestDataFolder)
        modes = [Path(own.folder).parents[n].stat().st_mode & 0o777 for n in (0, 1)]
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


KEY, NEW_KEY = "a key of sixteen or more", "a newer key, also long"


def stored(*keys: str) -> dict[str, t.Any]:
    """The variables of a controller that keeps user data in the ledger."""
    return {"bootflow_user_data_store": "ledger", "bootflow_user_data_keys": list(keys)}


@pytest.fixture
def rebuilding(world: World) -> Rebuilding:
    """An instance whose user data another controller keeps in the ledger with KEY."""
    world.report("h1")
    world.accept(request("web", user_data=SECRET))
    world.schedule()
    world.build("h1")
    GuestDataTable(lambda: world.ledger, world.ledger.id, [KEY]).keep([GuestSecrets(SECRET)])
    return Rebuilding(world)


@pytest.mark.parametrize("keys", [[], [KEY]])
def test_a_boot_keeps_it_in_the_ledger_until_the_last_instance_is_deleted(
    world: World, tmp_path: Path, keys: list[str]
) -> None:
    world.report("h1")
    booted(world, None, check_mode=True, variables=stored(*keys), user_data=SECRET, max_count=2)
    assert not world.rows(guest_texts)
    booted(world, None, variables=stored(*keys), user_data=SECRET, max_count=2)
    assert ("hunter2" in str(world.everything())) is (not keys), "in clear text only without a key"
    assert not list(tmp_path.glob("**/user-data"))
    play = Play(world)
    play.hosts, play.variables = ["h1"], stored(*keys)
    for name, left in (("web-1", 1), ("web-2", 0)):
        play(names=[name])
        assert len(world.rows(guest_texts)) == left, name


def test_another_controller_rebuilds_with_what_the_ledger_keeps(rebuilding: Rebuilding) -> None:
    with pytest.raises(errors.GuestDataRequired):
        rebuilding.play("rebuild", names=["web"])
    rebuilding.variables.update(stored(NEW_KEY, KEY))
    assert rebuilding.play("rebuild", names=["web"])["changed"]
    assert "hunter2" in str(unpack_files(rebuilding.drives[row_of(rebuilding.world, "web").uuid]["files"]))


def test_a_rebuild_without_the_key_changes_nothing(rebuilding: Rebuilding) -> None:
    before = rebuilding.world.everything()
    rebuilding.variables.update(stored(NEW_KEY))
    with pytest.raises(errors.GuestDataLocked, match="no key of bootflow_user_data_keys") as refused:
        rebuilding.play("rebuild", names=["web"])
    assert "-e @FILE" in refused.value.remedy and rebuilding.world.everything() == before
    rebuilding.variables["bootflow_instances"] = [{"name": "web", "user_data": SECRET}]
    assert rebuilding.play("rebuild", names=["web"])["changed"], "the file of the boot is as good"


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"bootflow_user_data_keys": [KEY]}, "and bootflow_user_data_store is folder"),
        (
            {"bootflow_user_data_store": "ledger", "bootflow_user_data_keys": ["short"]},
            "passphrases with at least 16 characters",
        ),
        (
            {"bootflow_user_data_store": "ledger", "bootflow_user_data_keys": [7]},
            "passphrases with at least 16 characters",
        ),
    ],
)
def test_keys_that_would_not_do_are_refused_first(world: World, variables: dict[str, t.Any], text: str) -> None:
    world.report("h1")
    before = world.everything()
    with pytest.raises(errors.InvalidInput, match=text) as refused:
        booted(world, None, user_data=SECRET, variables=variables)
    assert world.everything() == before and "short" not in refused.value.paragraph
