# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of instances whose root is a volume, in the ledger: what is entered, and what failures and deaths leave of it."""

from __future__ import annotations

import json
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import backups, life
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import snapshots as rules
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.resolve import LedgerImages
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.images import dead_images, deletion
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import (
    operation,
    snapshots,
    volume_backed,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.images import image_views, images
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import image_tables, volume_tables
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import (
    BootWorld,
    device,
    from_image,
    volume_request,
)

SNAPSHOT = OPERATIONS["snapshot"]
STORES = read_stores([{"name": "nfs", "path": "/net/images", "kind": "shared"}], [])
FULL = errors.VolumeBackendAPIException(data="the volume group is full")


class Taken(t.NamedTuple):
    begun: operation.Begun
    images: snapshots.Images


class Snapshots:
    """A world with the instance ``web``, which has a root volume and a volume ``data`` on another storage host."""

    def __init__(self, world: BootWorld):
        self.world = world
        world.report("h1", memory=9)
        world.store("s1")
        world.make("data", size=3)
        world.store("s2")
        (self.web,) = world.boot_of(volume_request("web", from_image(5), device("volume", "data")))
        self.volumes = [d["volume_id"] for d in world.disks(self.web) if d["kind"] == "volume"]

    def begin(self, name: str = "snap", run: str = "o", request: t.Any = None, **which: t.Any) -> Taken:
        wanted = request or rules.read_request(name, STORES.get("nfs"), None)
        selection = Selection(**(which or {"names": ["web"]}))
        with self.world.ledger.write() as tx:
            of_run = tx.for_run(self.world.context(run))
            return Taken(
                *snapshots.begin(of_run, SNAPSHOT, selection, ["h1"], wanted, None, self.world.settings(project="x"))
            )

    def hosts(self, taken: Taken) -> list[str]:
        with self.world.ledger.read() as tx:
            return volume_backed.storage_hosts(tx, taken.images.values())

    def work(self, taken: Taken, run: str = "o", fail: t.Any = None) -> None:
        for host in self.hosts(taken):
            work = self.world.work_of(host, run)
            self.world.worked(host, {w.backend: self.world.storage[host].do(w, fail) for w in work}, run)

    def finish(self, taken: Taken, run: str = "o", error: t.Any = None, settles: bool = True) -> dict[str, t.Any]:
        """:arg error: of the instance's host"""
        image_ids = {uuid: image.id for uuid, image in taken.images.items()}
        with self.world.ledger.write() as tx:
            of_run = tx.for_run(self.world.context(run))
            failed = {
                **volume_backed.find_failures(of_run, image_ids),
                **(dict.fromkeys(image_ids, error) if error else {}),
            }
            if settles:
                volume_backed.give_up(of_run, image_ids, failed)
        answers = {u: {"error": failed[u].as_dict() if u in failed else None} for u in image_ids}
        with self.world.ledger.write() as tx:
            of_run = tx.for_run(self.world.context(run))
            outcomes = {u: Outcome(states.RUNNING, failed.get(u)) for u in image_ids}
            ended = operation.finish(of_run, SNAPSHOT, outcomes)
            return {**ended, **snapshots.finish(of_run, image_ids, answers, ended, "nfs")}

    def clean(self, run: str = "c") -> None:
        """The next work of all storage hosts."""
        self.world.storage_round(run)

    def views(self) -> list[dict[str, t.Any]]:
        return self.world.ledger.inspect(image_views.image_views, None, None, None)

    def snapshots(self) -> list[t.Any]:
        """Rows of live snapshots, by name."""
        c = volume_tables.volume_snapshots.c
        return sorted(self.world.rows(volume_tables.volume_snapshots, c.deleted == ""), key=lambda row: row.name)

    def on_hosts(self) -> set[str]:
        return {item for host in self.world.storage.values() for there in host.there.values() for item in there}

    def set_state(self, **values: t.Any) -> None:
        with self.world.ledger.write() as tx:
            instances.write(tx.for_run(self.world.context("x")), [self.web], **values)


@pytest.fixture
def site(bworld: BootWorld) -> Snapshots:
    return Snapshots(bworld)


def test_all_is_entered_before_a_storage_host_is_asked(site: Snapshots) -> None:
    taken = site.begin()
    assert [r.uuid for r in taken.begun.rows] == [site.web]
    assert site.world.state(site.web)[:2] == ("active", "image_uploading")
    (view,) = site.views()
    assert (view["status"], view["places"], view["size"], view["disk_format"]) == ("queued", {}, None, None)
    rows = site.snapshots()
    assert {r.volume_id for r in rows} == set(site.volumes) and {r.status for r in rows} == {"creating"}
    assert [r.name for r in rows] == ["snapshot for snap, %s, %s" % (d, view["id"]) for d in ("vda", "vdb")]
    mapped = json.loads(view["properties"]["block_device_mapping"])
    assert {d["snapshot_id"] for d in mapped} == {r.id for r in rows}
    assert [d["volume_size"] for d in mapped] == [5, 3]
    assert view["properties"]["instance_uuid"] == site.web and view["min_disk"] == 1


def test_an_image_without_bytes_that_boots(site: Snapshots) -> None:
    taken = site.begin()
    hosts = site.hosts(taken)
    assert hosts and set(hosts) <= {"s1", "s2"}
    site.work(taken)
    assert site.finish(taken) == {}
    (view,) = site.views()
    assert (view["status"], view["places"], view["size"], view["checksum"]) == ("active", {}, 0, "")
    assert {r.status for r in site.snapshots()} == {"available"}
    assert site.world.state(site.web)[:2] == ("active", None)
    with site.world.ledger.read() as tx:
        (stored,) = images.stored(tx, images.select(tx, ids=[view["id"]]))
    image = LedgerImages().as_image(stored)
    site.world.images[image.id] = image
    (again,) = site.world.boot_of(volume_request("again", image=image), run="b")
    made = [site.world.volume(d["volume_id"]) for d in site.world.disks(again)]
    assert [v.snapshot_id for v in made] == [r.id for r in site.snapshots()]
    assert [v.size for v in made] == [5, 3] and made[0].bootable
    assert site.world.row(again).root_gb == 0


def test_a_rerun_changes_nothing(site: Snapshots) -> None:
    taken = site.begin()
    site.work(taken)
    site.finish(taken)
    again = site.begin(run="p")
    assert again.begun.rows == [] and [r.uuid for r in again.begun.unchanged] == [site.web]
    assert len(site.snapshots()) == 2


@pytest.mark.parametrize("settles", [True, False])
def test_one_that_fails_takes_the_others_and_the_image_with_it(site: Snapshots, settles: bool) -> None:
    taken = site.begin()
    bad = next(r.id for r in site.snapshots() if r.volume_id == site.volumes[1])
    site.work(taken, fail={bad: FULL})
    assert {r.status for r in site.snapshots()} == {"available", "error"}
    failed = site.finish(taken, settles=settles)
    assert set(failed) == {site.web} and "the volume group is full" in failed[site.web].message
    assert "volume %s" % site.volumes[1] in failed[site.web].message
    assert site.views() == [] and site.snapshots() == []
    assert site.world.state(site.web)[:2] == ("active", None)
    assert site.world.fault(site.web).message == failed[site.web].message
    site.clean()
    assert site.on_hosts() == set(site.volumes) and site.world.pending_cleanups() == set()
    taken = site.begin(run="p")
    site.work(taken, run="p")
    assert site.finish(taken, run="p") == {}


def test_a_storage_host_that_is_silent(site: Snapshots) -> None:
    taken = site.begin()
    failed = site.finish(taken)
    assert "was not asked, or did not answer" in failed[site.web].message
    assert site.views() == [] and site.snapshots() == []
    assert site.world.pending_cleanups(), "the host may have done it"


def test_what_other_runs_left_on_a_storage_host_waits(site: Snapshots) -> None:
    """Wiping it would take time, and guests may stand still meanwhile."""
    failed = site.begin("other", run="o")
    site.work(failed)
    site.finish(failed, error=FULL)
    left = site.world.pending_cleanups()
    assert left
    taken = site.begin(run="p")
    for host in site.hosts(taken):
        assert {v["state"] for w in site.world.work_of(host, "p") for v in w.volumes} == {"present"}
    site.work(taken, run="p")
    assert site.world.pending_cleanups() == left
    assert site.finish(taken, run="p") == {}
    site.clean()
    assert site.world.pending_cleanups() == set()


def test_an_instance_whose_own_host_fails_keeps_no_snapshots(site: Snapshots) -> None:
    taken = site.begin()
    site.work(taken)
    assert site.finish(taken, error=errors.HostUnreachable(host="h1", reason="gone")).keys() == {site.web}
    assert site.views() == [] and site.snapshots() == []
    site.clean()
    assert site.on_hosts() == set(site.volumes)


@pytest.mark.parametrize("ended_by", ["the next snapshot", "the same snapshot", "image_delete", "a deletion"])
def test_a_dead_run_leaves_nothing(site: Snapshots, ended_by: str) -> None:
    taken = site.begin(run="dead")
    site.work(taken, run="dead")
    with site.world.ledger.write() as tx:
        assert dead_images.end_dead(tx.for_run(site.world.context("p"))) == [], "it lives"
    site.world.time += 601
    image_id = taken.images[site.web].id
    if ended_by == "image_delete":
        with site.world.ledger.write() as tx:
            deletion.begin(tx.for_run(site.world.context("p")), [image_id], None, False, STORES)
    elif ended_by == "a deletion":
        site.world.delete(names=["web"])
    else:
        site.begin("snap" if ended_by == "the same snapshot" else "other", run="p")
    assert image_id not in {view["id"] for view in site.views()}
    assert not [r for r in site.snapshots() if image_id in r.name]
    (row,) = site.world.rows(image_tables.images, image_tables.images.c.id == image_id)
    assert row.status == life.DELETED
    late = site.finish(taken, run="dead")
    assert site.web in late
    if ended_by in ("image_delete", "a deletion"):
        site.clean()
        assert not site.on_hosts() & {s.id for s in site.world.rows(volume_tables.volume_snapshots)}


def test_an_unfinished_image_that_maps_snapshots_of_others_takes_none_with_it(site: Snapshots) -> None:
    """A person may import an image with such properties, and the run may die."""
    taken = site.begin()
    site.work(taken)
    site.finish(taken)
    foreign = replace(taken.images[site.web], id="99999999-0000-4000-8000-00000000000b", name="imported")
    with site.world.ledger.write() as tx:
        images.create(tx.for_run(site.world.context("dead")), [foreign])
        images.own(tx.for_run(site.world.context("dead")), foreign.id)
    site.world.time += 601
    with site.world.ledger.write() as tx:
        assert dead_images.end_dead(tx.for_run(site.world.context("p"))) == [foreign.id]
    assert {r.status for r in site.snapshots()} == {"available"} and site.world.pending_cleanups() == set()


def test_an_image_that_is_deleted_leaves_the_snapshots(site: Snapshots) -> None:
    """As in Nova, whose image service knows nothing of them."""
    taken = site.begin()
    site.work(taken)
    site.finish(taken)
    with site.world.ledger.write() as tx:
        deletion.begin(tx.for_run(site.world.context("d")), ["snap"], None, False, STORES)
    assert site.views() == [] and {r.status for r in site.snapshots()} == {"available"}
    assert site.world.pending_cleanups() == set()


@pytest.mark.parametrize(
    ("quotas", "code"),
    [({"snapshots": 1}, "SnapshotLimitExceeded"), ({"gigabytes": 15}, "VolumeSizeExceedsAvailableQuota")],
)
def test_quotas_are_checked_for_all_volumes_before_anything_is_written(
    site: Snapshots, quotas: dict[str, int], code: str
) -> None:
    site.world.quotas = {"volumes": -1, "gigabytes": -1, "snapshots": -1, **quotas}
    before = site.world.everything()
    with pytest.raises(errors.InvalidRequest) as caught:
        site.begin()
    assert [e["code"] for e in caught.value.errors] == [code]
    assert site.world.everything() == before
    site.world.quotas = {"volumes": -1, "gigabytes": 16, "snapshots": 2}
    site.begin()


def test_a_backend_without_room(site: Snapshots) -> None:
    for host in site.world.storage.values():
        host.totals = {"lvm": sum(host.there["lvm"].values()) + 1}
        site.world.reported(host.name)
    with pytest.raises(errors.InvalidRequest) as caught:
        site.begin()
    assert {e["code"] for e in caught.value.errors} == {"NoValidBackend"}
    assert all(e["path"].startswith("web: volume ") for e in caught.value.errors)


def test_a_volume_with_work_of_another_run(site: Snapshots) -> None:
    with site.world.ledger.write() as tx:
        tx.execute(
            volume_tables.volumes.update()
            .where(volume_tables.volumes.c.id == site.volumes[1])
            .values(status="detaching")
        )
    with pytest.raises(errors.InvalidRequest, match="status must be available, in-use"):
        site.begin()
    with site.world.ledger.write() as tx:
        tx.execute(volume_tables.volumes.update().values(status="in-use"))


@pytest.mark.parametrize(("vm_state", "is_refused"), [("paused", True), ("stopped", False), ("suspended", False)])
def test_a_paused_instance_is_refused(site: Snapshots, vm_state: str, is_refused: bool) -> None:
    """source: Nova's snapshot_volume_backed"""
    site.set_state(vm_state=vm_state)
    if is_refused:
        with pytest.raises(errors.InstanceInvalidState, match="paused"):
            site.begin()
        return
    assert site.begin().begun.rows


def test_a_backup_is_refused(site: Snapshots) -> None:
    request = backups.read_request("%(name)s", "daily", 1, STORES.get("nfs"), None)
    with pytest.raises(errors.InvalidInput, match="not supported for volume-backed instances: web"):
        site.begin(request=request)
    assert site.views() == [] and site.snapshots() == []


def test_roots_of_both_kinds_in_one_run(site: Snapshots) -> None:
    local = site.world.boot("local")
    request = rules.read_request("%(name)s-snap", STORES.get("nfs"), None)
    taken = site.begin(request=request, names=["web", "local"])
    statuses = {view["instance_uuid"]: view["status"] for view in site.views()}
    assert statuses == {site.web: "queued", local: "saving"}
    assert len(site.snapshots()) == 2
    with site.world.ledger.read() as tx:
        assert set(volume_backed.find_failures(tx, {u: i.id for u, i in taken.images.items()})) == {site.web}


def test_a_volume_that_two_instances_have(bworld: BootWorld) -> None:
    bworld.report("h1", memory=9)
    bworld.store("s1")
    bworld.make("both", size=1, multiattach=True)
    uuids = bworld.boot_of(
        volume_request("web", from_image(5), device("volume", "both")),
        volume_request("db", from_image(5), device("volume", "both")),
    )
    wanted = rules.read_request("%(name)s-snap", STORES.get("nfs"), None)
    with bworld.ledger.write() as tx:
        of_run = tx.for_run(bworld.context("o"))
        _begun, made = snapshots.begin(
            of_run, SNAPSHOT, Selection(uuids=uuids), ["h1"], wanted, None, replace(bworld.settings(), project="x")
        )
    ids = [json.loads(i.properties["block_device_mapping"])[1]["snapshot_id"] for i in made.values()]
    assert len(set(ids)) == 2
