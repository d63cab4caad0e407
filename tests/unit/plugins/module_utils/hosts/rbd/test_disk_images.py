# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Local disks in a pool that answers as Ceph does: made, moved, resized, left and removed."""

from __future__ import annotations

import functools
import os
import typing as t
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.arriving_disks import checked_disks
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.disk_pool import DiskPool
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies import sender
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.arrivals.registry import arrivals_of
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.local_disks import ensure_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.resizes.pool import NEW
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.resizes.registry import resize_of
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores import rbd as store
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_info import records_of
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.disk_spec import DiskSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.group import Group
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.registry import (
    store_of,
    store_of_record,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.images import BaseImage
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.command import Completed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.ownership import mark_made_for
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd import disk_access, disk_images, fences
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.cluster import FENCE_SECONDS, Cluster
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.disk_images import (
    HERE,
    DiskImages,
    before_move,
)

from .pool import FSID, GIB, HUNG, KEY, NO_MANAGER, Pool, answering

UUID = "0fd65882-945e-4386-b2f2-5a36d62fefad"
LEDGER, OTHER = "1ed9e000-0000-4000-8000-000000000001", "1ed9e000-0000-4000-8000-000000000002"
IMAGE = "6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e"
BASE, ROOT, SWAP = "bootflow-image.%s-0123456789abcdef" % IMAGE, UUID + "_disk", UUID + "_disk.swap"
POOL = DiskPool("volumes", ("192.0.2.1:6789",), "compute", FSID, KEY)
MIB = 1024**2
MOVE = "move 7 1764490000.0"
SPECS = [
    DiskSpec("disk", "image", 2 * GIB, "rbd", IMAGE),
    DiskSpec("disk.swap", "swap", 64 * MIB, "rbd"),
]


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pool:
    opened = functools.partial(Cluster, parent=str(tmp_path / "run"))
    monkeypatch.setattr(disk_images, "Cluster", opened)
    monkeypatch.setattr(store, "Cluster", opened)
    monkeypatch.setattr(disk_images, "_POLL", 0.01)
    monkeypatch.setattr(store, "format_disk", lambda spec, path: None)
    monkeypatch.setattr(disk_images.DiskImages, "__init__", _impatient)
    return answering(monkeypatch)


def _impatient(self: DiskImages, cluster: Cluster, ledger_id: str = "", watch_timeout: float = 0.05) -> None:
    self.cluster, self.ledger_id = cluster, ledger_id
    self.images = disk_images.Images(cluster, ledger_id, watch_timeout)


@pytest.fixture
def base(tmp_path: Path) -> dict[str, BaseImage]:
    path = tmp_path / ("%s-0123456789abcdef.raw" % IMAGE)
    with path.open("wb") as file:
        file.truncate(5 * MIB + 512)
    return {IMAGE: BaseImage(str(path), 5 * MIB + 512, "0" * 64)}


@pytest.fixture
def made(pool: Pool, base: dict[str, BaseImage], tmp_path: Path) -> Path:
    """The folder of an instance whose disks are in the pool."""
    ensure(base, tmp_path)
    return tmp_path / "instances" / UUID


def ensure(
    base: dict[str, BaseImage], tmp_path: Path, specs: t.Sequence[DiskSpec] | None = None, **more: t.Any
) -> t.Any:
    where = str(tmp_path / "instances")
    return ensure_disks(
        where, UUID, SPECS if specs is None else specs, base, ledger_id=LEDGER, pool=more.pop("pool", POOL), **more
    )


def opened(pool: Pool) -> t.ContextManager[DiskImages]:
    return disk_images.disk_images(POOL, LEDGER)


# --- disks --------------------------------------------------------------------------------------------------------------


def test_a_root_disk_is_a_clone_and_the_image_comes_once(
    pool: Pool, base: dict[str, BaseImage], tmp_path: Path
) -> None:
    assert ensure(base, tmp_path, check_mode=True)["changed"] and not pool.images
    done = ensure(base, tmp_path)
    assert done["changed"] and done["disks"][0] == {
        "name": "disk",
        "path": "volumes/" + ROOT,
        "format": "raw",
        "virtual_size": 2 * GIB,
    }
    assert sorted(pool.images) == sorted([BASE, ROOT, SWAP])
    assert pool.images[BASE]["size"] == 6 * MIB, "QEMU counts sectors, so that an image has whole MiB"
    assert pool.images[ROOT]["parent"] == {"pool": "volumes", "image": BASE, "snapshot": "snap"}
    assert pool.images[ROOT]["size"] == 2 * GIB and pool.images[ROOT]["meta"]["bootflow.ledger"] == LEDGER
    assert not ensure(base, tmp_path)["changed"]
    folder = tmp_path / "instances" / UUID
    assert {n: (r["format"], r["pool"]) for n, r in records_of(str(folder)).items()} == {
        "disk": ("rbd", "volumes"),
        "disk.swap": ("rbd", "volumes"),
    }
    assert not [name for name in os.listdir(folder) if name.endswith(".part")]
    assert len([line for line in pool.lines if line.startswith("rbd import")]) == 2  # the image and the swap


def test_an_image_that_another_host_imports_is_waited_for(pool: Pool, base: dict[str, BaseImage]) -> None:
    pool.add("incomplete." + BASE, watchers=["192.0.2.7:0/1"])
    asked = []

    def status(words: list[str], row: dict[str, t.Any], image: str, snapshot: str) -> t.Any:
        asked.append(image)
        if len(asked) == 3:
            pool.images[BASE] = {**pool.images.pop(image), "snapshots": {"snap": GIB}}
        return {"watchers": [{"address": "192.0.2.7:0/1"}]}

    pool._rbd_status = status  # type: ignore[method-assign]
    with opened(pool) as images:
        assert images.base(base[IMAGE].path, IMAGE) == BASE
    assert len(asked) == 3 and len([line for line in pool.lines if line.startswith("rbd import")]) == 1


def test_what_a_killed_import_left_is_removed(pool: Pool, base: dict[str, BaseImage]) -> None:
    pool.add("incomplete." + BASE, snapshots={"snap": GIB})
    with opened(pool) as images:
        assert images.base(base[IMAGE].path, IMAGE) == BASE
    assert list(pool.images) == [BASE] and pool.images[BASE]["size"] == 6 * MIB


def test_an_image_without_a_snapshot_gets_one(pool: Pool, base: dict[str, BaseImage]) -> None:
    pool.add(BASE)
    with opened(pool) as images:
        assert images.base(base[IMAGE].path, IMAGE) == BASE
        assert list(pool.images[BASE]["snapshots"]) == ["snap"]
        assert "rbd snap protect volumes/%s@snap" % BASE in pool.lines
        before = len(pool.lines)
        images.base(base[IMAGE].path, IMAGE)
    assert not [line for line in pool.lines[before:] if line.startswith(("rbd snap create", "rbd snap protect"))]


def test_a_failure_leaves_no_disk(pool: Pool, base: dict[str, BaseImage], tmp_path: Path) -> None:
    pool.broken["rbd resize --size 2048M"] = Completed(1, "", "rbd: resize error: (5) Input/output error\n")
    with pytest.raises(errors.RbdFailed):
        ensure(base, tmp_path)
    assert list(pool.images) == [BASE]
    pool.broken.clear()
    assert ensure(base, tmp_path)["changed"]


def test_a_disk_of_another_host_is_left_alone(pool: Pool, base: dict[str, BaseImage], tmp_path: Path) -> None:
    pool.add(ROOT)
    with pytest.raises(errors.DiskInPool):
        ensure(base, tmp_path)
    assert list(pool.images) == [ROOT]


def test_another_cluster_a_full_and_a_hung_one_are_refused(
    pool: Pool, base: dict[str, BaseImage], tmp_path: Path
) -> None:
    elsewhere = DiskPool("volumes", POOL.monitors, "compute", OTHER, KEY)
    with pytest.raises(errors.OtherCluster):
        ensure(base, tmp_path, pool=elsewhere)
    with pytest.raises(errors.InvalidInput, match="requires a pool"):
        ensure(base, tmp_path, pool=None)
    pool.flags = "full_quota"
    with pytest.raises(errors.StorageClusterFull):
        ensure(base, tmp_path)
    pool.broken["rbd ls"] = Completed(110, "", HUNG)
    with pytest.raises(errors.StorageClusterUnavailable):
        ensure(base, tmp_path)
    assert not pool.images


def test_the_sizes_of_a_pool_are_those_of_all_of_its_hosts(pool: Pool, made: Path) -> None:
    facts = store_of("rbd", pool=POOL).facts("/", lambda: pytest.fail("the growth of files"))
    # 2 GiB are stored and 10 free; images promise 2 GiB, 64 MiB and 6 MiB.
    assert facts == {"local_gb": 12, "local_gb_used": 2, "disk_available_least": 9}


@pytest.mark.parametrize("fault", ["hung", "full", "no manager", "no permission", "no JSON", "another cluster"])
def test_a_pool_that_takes_no_instance_has_no_room_and_the_host_reports(pool: Pool, fault: str) -> None:
    if fault == "hung":
        pool.broken["rbd ls"] = Completed(110, "", HUNG)
    pool.flags = "full_quota" if fault == "full" else pool.flags
    pool.manager = fault != "no manager"
    if fault == "no permission":
        pool.broken["rbd ls --long"] = Completed(1, "", "rbd: list: (1) Operation not permitted\n")
    if fault == "no JSON":
        pool.broken["ceph df"] = Completed(0, "Ceph is well", "")
    fsid = OTHER if fault == "another cluster" else FSID
    facts = store_of("rbd", pool=replace(POOL, fsid=fsid)).facts("/", lambda: 0)
    assert facts["local_gb"] == 0 and facts["disk_available_least"] < 0 and facts["disk_refusal"]
    assert NO_MANAGER["available"] is False


def test_a_disk_in_a_pool_is_not_read_or_exchanged_yet(made: Path) -> None:
    record = records_of(str(made))["disk"]
    disks = store_of_record(record, Group(pool=POOL))
    with pytest.raises(errors.NotSupportedYet):
        disks.make_readable(str(made), "disk", record)
    with pytest.raises(errors.NotSupportedYet):
        disks.make_replacement(str(made), SPECS[0], {})
    with pytest.raises(errors.NotSupportedYet):
        disks.take_replacement(str(made), "disk")
    with pytest.raises(errors.NotSupportedYet):
        next(iter(disks.opened(str(made), "disk", record, ())))


# --- removal ------------------------------------------------------------------------------------------------------------


def test_a_removal_takes_all_of_the_instance_and_nothing_else(pool: Pool, made: Path) -> None:
    pool.add("incomplete.%s_disk.eph0" % UUID)
    pool.images[ROOT]["snapshots"][before_move(MOVE)] = GIB
    folder = str(made)
    words = store.remove_images(folder, UUID, POOL, LEDGER, check_mode=True)
    assert len(words) == 3 and len(pool.images) == 4
    assert store.remove_images(folder, UUID, POOL, LEDGER) == words
    assert list(pool.images) == [BASE]


def test_a_removal_refuses_snapshots_of_others_open_disks_and_other_ledgers(pool: Pool, made: Path) -> None:
    folder = str(made)
    with pytest.raises(errors.Conflict, match="belongs to the ledger"):
        store.remove_images(folder, UUID, POOL, OTHER)
    pool.images[SWAP]["watchers"] = ["192.0.2.7:0/1"]
    with pytest.raises(errors.DiskOpenElsewhere, match="192.0.2.7"):
        store.remove_images(folder, UUID, POOL, LEDGER)
    pool.images[SWAP]["watchers"] = []
    pool.images[ROOT]["snapshots"]["monday"] = GIB
    with pytest.raises(errors.VolumeIsBusy, match="monday"):
        store.remove_images(folder, UUID, POOL, LEDGER)
    with pytest.raises(errors.InvalidDiskInfo, match="pool volumes"):
        store.remove_images(folder, UUID, DiskPool("vms", POOL.monitors, "compute", FSID, KEY), LEDGER)
    with pytest.raises(errors.InvalidInput, match="requires a pool"):
        store.remove_images(folder, UUID, None, LEDGER)
    assert len(pool.images) == 3


# --- moves --------------------------------------------------------------------------------------------------------------


def arrive(made: Path, tmp_path: Path, sizes: dict[str, int], specs: t.Sequence[DiskSpec]) -> str:
    """Let the instance come to another host. Returns its folder there."""
    offer, described = sender.prepare(str(made.parent), UUID, "token", ["disk.swap"])
    assert not offer.files and [d["name"] for d in described] == ["disk"]
    disks = checked_disks(described, {"disk": 2 * GIB}, UUID)
    folder = str(tmp_path / "there" / UUID)
    mark_made_for(folder, MOVE)
    (arrival,) = arrivals_of(folder, Group(ledger_id=LEDGER, pool=POOL), disks, sizes, specs)
    arrival.require_group()
    arrival.prepare()
    arrival.create()
    arrival.finish()
    return folder


@pytest.fixture
def offers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "take_back", lambda uuid: None)


def test_a_move_leaves_the_images_and_a_revert_brings_them_back(
    pool: Pool, made: Path, tmp_path: Path, offers: None, libvirt: dict[str, bool]
) -> None:
    there = arrive(made, tmp_path, {"disk": 3 * GIB}, [DiskSpec("disk.swap", "swap", 128 * MIB, "rbd")])
    assert records_of(there)["disk"]["virtual_size"] == 3 * GIB == pool.images[ROOT]["size"]
    assert (
        pool.images[SWAP]["size"] == 128 * MIB and pool.images["%s.%s" % (SWAP, before_move(MOVE))]["size"] == 64 * MIB
    )
    assert not access("open", rolls_back="another move")["changed"]
    assert access("open", check_mode=True, rolls_back=MOVE)["changed"] and pool.images[ROOT]["size"] == 3 * GIB
    pool.images[ROOT]["watchers"] = ["192.0.2.7:0/1"]
    assert access("open", rolls_back=MOVE)["error"]["code"] == "DiskOpenElsewhere"
    pool.images[ROOT]["watchers"] = []
    assert access("open", rolls_back=MOVE)["changed"]
    assert pool.images[ROOT]["size"] == 2 * GIB and pool.images[SWAP]["size"] == 64 * MIB
    assert sorted(pool.images) == sorted([BASE, ROOT, SWAP]) and not pool.images[ROOT]["snapshots"]


def test_a_confirmed_move_forgets_what_was_kept(pool: Pool, made: Path, tmp_path: Path, offers: None) -> None:
    arrive(made, tmp_path, {"disk": 0}, [])
    assert sorted(pool.images) == sorted([BASE, ROOT, "%s.%s" % (SWAP, before_move(MOVE))]), "it has no swap"
    assert store.leave_images(str(made), UUID, POOL, LEDGER, check_mode=True) == []
    assert store.leave_images(str(made), UUID, POOL, LEDGER)
    assert sorted(pool.images) == sorted([BASE, ROOT]) and not pool.images[ROOT]["snapshots"]
    assert store.leave_images(str(made), UUID, POOL, LEDGER) == []


def test_a_disk_that_is_open_or_of_another_size_does_not_arrive(
    pool: Pool, made: Path, tmp_path: Path, offers: None
) -> None:
    pool.images[ROOT]["watchers"] = ["192.0.2.7:0/1"]
    with pytest.raises(errors.DiskOpenElsewhere):
        arrive(made, tmp_path, {}, [])
    pool.images[ROOT]["watchers"], pool.images[SWAP]["watchers"] = [], ["192.0.2.7:0/1"]
    with pytest.raises(errors.DiskOpenElsewhere):
        arrive(made, tmp_path, {}, [DiskSpec("disk.swap", "swap", 128 * MIB, "rbd")])
    assert SWAP in pool.images
    pool.images[ROOT].update(size=GIB, snapshots={})
    with pytest.raises(errors.InvalidDiskInfo, match="has recorded"):
        arrive(made, tmp_path, {}, [])
    assert not pool.images[ROOT]["snapshots"]


def test_disks_of_a_lost_host_are_recorded(pool: Pool, made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "there" / UUID
    folder.mkdir(parents=True)
    lost = DiskSpec("disk.eph0", "ephemeral", GIB, "rbd")
    assert store.adopt_images(str(folder), [*SPECS, lost], POOL, LEDGER) == ["disk", "disk.swap"]
    assert records_of(str(folder))["disk"] == records_of(str(made))["disk"]
    assert store.adopt_images(str(folder), SPECS, None, LEDGER) == []


# --- resizes ------------------------------------------------------------------------------------------------------------


def test_a_resize_on_the_host_grows_the_images_and_comes_back(pool: Pool, made: Path) -> None:
    folder, part = str(made), made / "resize.part"
    part.mkdir()
    records = {"disk": records_of(folder)["disk"]}
    swap = DiskSpec("disk.swap", "swap", 128 * MIB, "rbd")
    resize = resize_of(Group(ledger_id=LEDGER, pool=POOL), [records], [swap])

    def exchange() -> None:
        resize.check(folder, records, [swap])
        new = resize.copy(folder, str(part), records, {"disk": 3 * GIB}, [swap], 0)
        assert pool.images[ROOT]["size"] == 2 * GIB and not resize.is_swapped_in(UUID, [])
        assert pool.images[SWAP + NEW]["size"] == 128 * MIB
        resize.swap_in(folder, [], new)
        resize.swap_in(folder, [], new)  # of a run that was killed after it
        assert pool.images[ROOT]["size"] == 3 * GIB and pool.images[SWAP]["size"] == 128 * MIB
        assert before_move(HERE) in pool.images[ROOT]["snapshots"] and resize.is_swapped_in(UUID, [])

    exchange()
    resize.roll_back(folder, [], {})
    assert pool.images[ROOT]["size"] == 2 * GIB and pool.images[SWAP]["size"] == 64 * MIB
    assert not resize.is_swapped_in(UUID, []) and not resize.commit(UUID)
    exchange()
    assert resize.commit(UUID)
    assert sorted(pool.images) == sorted([BASE, ROOT, SWAP]) and pool.images[ROOT]["size"] == 3 * GIB
    resize.copy(folder, str(part), records, {}, [swap], 0)
    assert resize.discard_copies(UUID) and sorted(pool.images) == sorted([BASE, ROOT, SWAP])


def test_a_resize_needs_a_pool(made: Path) -> None:
    with pytest.raises(errors.InvalidInput, match="requires a pool"):
        resize_of(Group(), [records_of(str(made))])


# --- before a start -----------------------------------------------------------------------------------------------------


@pytest.fixture
def libvirt(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Whether the guest runs here."""
    state = {"runs": False}
    monkeypatch.setattr(disk_access, "find_domain", lambda connection, uuid: object())
    monkeypatch.setattr(disk_access, "is_active", lambda domain: state["runs"])
    monkeypatch.setattr(disk_access, "set_secret", lambda *args: {"changed": True})
    return state


def access(state: str, check_mode: bool = False, **more: str) -> t.Any:
    return disk_access.prepare(None, POOL, [{"uuid": UUID, "state": state, **more}], check_mode)["outcomes"][UUID]


def test_a_disk_that_somebody_else_has_open_is_not_given_to_a_guest(
    pool: Pool, made: Path, libvirt: dict[str, bool]
) -> None:
    assert not access("open")["error"]
    pool.images[ROOT]["watchers"] = ["192.0.2.7:0/1"]
    assert access("open")["error"]["code"] == "DiskOpenElsewhere"
    assert not access("arriving")["error"]
    libvirt["runs"] = True
    assert not access("open")["error"]


def test_a_lost_host_is_fenced(
    pool: Pool, made: Path, libvirt: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.images[ROOT].update(watchers=["192.0.2.7:0/1"], locks=["192.0.2.7:0/2"])
    libvirt["runs"] = True
    assert access("fenced")["fenced"] == [] and not pool.fenced, "the guest runs here: a killed run started it"
    libvirt["runs"] = False
    assert len(access("fenced", check_mode=True)["fenced"]) == 2 and not pool.fenced
    assert access("fenced") == {"changed": True, "error": None, "fenced": ["192.0.2.7:0/1", "192.0.2.7:0/2"]}
    assert pool.fenced == ["192.0.2.7:0/1", "192.0.2.7:0/2"] and not pool.images[ROOT]["watchers"]
    assert {line.split()[-1] for line in pool.lines if "blocklist" in line} == {FENCE_SECONDS}
    pool.images[ROOT]["locks"] = []
    assert access("fenced")["fenced"] == []
    pool.images[ROOT]["watchers"] = ["192.0.2.7:0/3"]
    pool.unfenced = True
    monkeypatch.setattr(fences, "_PATIENCE", 0)
    assert access("fenced")["error"]["code"] == "DiskOpenElsewhere"
