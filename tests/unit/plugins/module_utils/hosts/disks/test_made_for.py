# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host removes for a move that failed only what it made for it, and for a build whose run died no guest that is built. libvirt is one of our own,
with the domains that a test has.
"""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import Conflict
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import move_mark
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import instances
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.instances import Condition
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.local_disks import ensure_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_spec import DiskSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os import locks, ownership

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11"
MOVE, OTHER = (move_mark.made_for("run-%d" % n, n, 1000.0 * n) for n in (1, 2))


@pytest.fixture
def domains(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """UUIDs of the domains of the host."""
    found: set[str] = set()

    def remove(_connection: t.Any, uuid: str, *_arguments: t.Any) -> list[str]:
        there = uuid in found
        found.discard(uuid)
        return ["domain"] if there else []

    monkeypatch.setattr(instances, "find_domain", lambda _connection, uuid: uuid if uuid in found else None)
    monkeypatch.setattr(instances, "remove_domain", remove)
    return found


def folder_of(path: Path, mark: str, arrived: bool = False, *files: str) -> Path:
    folder = path / UUID
    folder.mkdir()
    for name in files:
        (folder / name).write_text("data")
    ownership.mark_made_for(str(folder), mark)
    if arrived:
        ownership.mark_arrived(str(folder))
    return folder


@pytest.mark.parametrize(
    ("mark", "arrived", "files", "removed"),
    [
        (MOVE, False, ("disk",), True),
        (MOVE, False, (), True),
        (OTHER, False, ("disk",), False),
        ("", False, ("disk",), False),  # of a boot, or a rebuild
        (MOVE, True, ("disk",), False),  # by a ledger that believes that the move still goes on
        ("", False, (), True),  # the process that made it died at once
    ],
)
def test_a_move_that_failed(
    domains: set[str], tmp_path: Path, mark: str, arrived: bool, files: tuple[str, ...], removed: bool
) -> None:
    folder = folder_of(tmp_path, mark, arrived, *files)
    done = instances.remove_instance(None, str(tmp_path), UUID, condition=Condition(made_for=MOVE))
    assert folder.exists() is not removed and bool(done.get("kept")) is not removed
    instances.remove_instance(None, str(tmp_path), UUID)
    assert not folder.exists()


@pytest.mark.parametrize("due_at", [1999.0, 2001.0])
def test_a_boot_or_a_rebuild_after_a_cleanup_was_due(
    domains: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, due_at: float
) -> None:
    """A ledger that was restored from a backup may have that cleanup still."""
    monkeypatch.setattr(locks, "LOCK_ROOT", str(tmp_path / "run"))
    path = tmp_path / "instances"
    made = DiskSpec("disk.swap", "swap", 1024**2, "raw")
    for when in (2000.0, 3000.0):  # the same again changes nothing
        ensure_disks(str(path), UUID, [made], {}, ledger_id="ledger", made_at=when)
    if due_at > 2000.0:
        instances.remove_instance(None, str(path), UUID, condition=Condition(due_at=due_at))
    else:
        with pytest.raises(Conflict, match="after this cleanup was due"):
            instances.remove_instance(None, str(path), UUID, condition=Condition(due_at=due_at))
    assert (path / UUID / "disk.swap").exists() is (due_at < 2000.0)


def test_a_build_keeps_the_mark_of_the_move_that_made_its_folder(
    domains: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evacuation makes the folder first: where it fails, only what has its mark is removed."""
    monkeypatch.setattr(locks, "LOCK_ROOT", str(tmp_path / "run"))
    folder = folder_of(tmp_path, MOVE)
    ensure_disks(str(tmp_path), UUID, [], {}, made_at=5000.0)
    assert ownership.made_for(str(folder)) == MOVE
    done = instances.remove_instance(None, str(tmp_path), UUID, condition=Condition(made_for=MOVE))
    assert not done.get("kept") and not folder.exists()


def test_a_domain_that_was_there_before_stays(domains: set[str], tmp_path: Path) -> None:
    """One without a folder, as where its root is a volume."""
    domains.add(UUID)
    done = instances.remove_instance(None, str(tmp_path), UUID, condition=Condition(made_for=MOVE))
    assert done == {"changed": False, "removed": [], "kept": True} and domains == {UUID}


@pytest.mark.parametrize(("due_at", "removed"), [(0.0, True), (1999.0, False), (2001.0, True)])
@pytest.mark.parametrize("arrived", [False, True])
def test_a_cleanup_that_was_due_before_the_instance_came(
    domains: set[str], tmp_path: Path, arrived: bool, due_at: float, removed: bool
) -> None:
    folder = folder_of(tmp_path, OTHER, arrived, "disk")
    condition = Condition(due_at=due_at)
    if removed:
        instances.remove_instance(None, str(tmp_path), UUID, condition=condition)
    else:
        with pytest.raises(Conflict, match="after this cleanup was due"):
            instances.remove_instance(None, str(tmp_path), UUID, condition=condition)
    assert folder.exists() is not removed


def test_a_host_refuses_what_it_has(domains: set[str], tmp_path: Path) -> None:
    domains.add(UUID)
    with pytest.raises(Conflict, match="already has a domain of instance %s" % UUID):
        instances.refuse_present(None, str(tmp_path / UUID))
    domains.clear()
    instances.refuse_present(None, str(tmp_path / UUID))
    folder_of(tmp_path, "", False, "disk")
    with pytest.raises(Conflict, match="already has a folder of instance %s" % UUID):
        instances.refuse_present(None, str(tmp_path / UUID))


# --- builds whose run died ---------------------------------------------------------------------------------------------------

UNFINISHED = Condition(due_at=3000.0, unfinished=True)
BUILD = move_mark.made_at(2000.0)


@pytest.mark.parametrize(
    ("mark", "arrived", "domain", "removed"),
    [
        (BUILD, False, False, True),
        (BUILD, False, True, True),  # it was started, and was still waited for
        (BUILD, True, True, False),
        (BUILD, True, False, False),  # somebody has undefined it: its disks are there
        (MOVE, False, True, True),
        (MOVE, True, True, False),  # it has come back since
        ("", False, True, False),  # of a version that had no marks
        ("", False, False, True),
    ],
)
def test_a_build_whose_run_died(
    domains: set[str], tmp_path: Path, mark: str, arrived: bool, domain: bool, removed: bool
) -> None:
    """A ledger that was restored from a backup believes so of a guest that has run ever since."""
    folder = folder_of(tmp_path, mark, arrived, "disk")
    domains |= {UUID} if domain else set()
    before = set(domains)
    if removed:
        assert instances.remove_instance(None, str(tmp_path), UUID, condition=UNFINISHED)["changed"]
    else:
        for check_mode in (True, False):
            with pytest.raises(Conflict, match="the build of instance %s has ended on" % UUID) as refused:
                instances.remove_instance(None, str(tmp_path), UUID, check_mode, condition=UNFINISHED)
            assert "delete the instance" in refused.value.remedy
    assert (folder / "disk").exists() is not removed and (not domains if removed else domains == before)
    instances.remove_instance(None, str(tmp_path), UUID, condition=Condition(due_at=3000.0))
    assert not folder.exists() and not domains


def test_a_removal_that_was_interrupted_is_completed(
    domains: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left then is no guest that is built, whatever the ledger believes."""
    folder = folder_of(tmp_path, BUILD, True, "disk")
    domains.add(UUID)
    assert ownership.has_arrived(str(folder), True)

    def dies(*_arguments: t.Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(instances, "remove_tree", dies)
        with pytest.raises(KeyboardInterrupt):
            instances.remove_instance(None, str(tmp_path), UUID)
    assert (folder / "disk").exists() and not domains and not ownership.has_arrived(str(folder), False)
    assert move_mark.began_at(ownership.made_for(str(folder))) == 2000.0
    instances.remove_instance(None, str(tmp_path), UUID, condition=UNFINISHED)
    assert not folder.exists()


def test_check_mode_leaves_the_mark(domains: set[str], tmp_path: Path) -> None:
    folder = folder_of(tmp_path, BUILD, True, "disk")
    assert instances.remove_instance(None, str(tmp_path), UUID, check_mode=True)["changed"]
    assert ownership.has_arrived(str(folder), False)


def test_a_folder_that_is_being_built_has_not_arrived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LOCK_ROOT", str(tmp_path / "run"))
    folder = tmp_path / UUID
    ensure_disks(str(tmp_path), UUID, [], {}, made_at=2000.0)
    assert not ownership.has_arrived(str(folder), True)
    ownership.mark_arrived(str(folder))
    ensure_disks(str(tmp_path), UUID, [], {}, made_at=3000.0)  # the same again, and a rebuild
    assert ownership.has_arrived(str(folder), True)
    assert move_mark.began_at(ownership.made_for(str(folder))) == 2000.0
