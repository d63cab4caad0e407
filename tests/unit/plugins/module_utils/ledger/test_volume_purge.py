# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import quotas
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import purge
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables, volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import volume_views
from ansible_collections.bootflow.compute.tests.unit.worlds.volume_world import VolumeWorld

DAY = 86400.0


def of(vworld: VolumeWorld, item: str) -> set[str]:
    """Tables with rows that have to do with it."""
    return {name for name, rows in vworld.everything().items() if any(item in r for r in rows)}


def test_deleted_volumes_are_purged_with_their_history_and_no_others(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=100)
    vworld.report("h1")
    guest = vworld.boot("guest", networks=())
    old, living, snapped = vworld.make("old", 10), vworld.make("living", 10), vworld.make("snapped", 10)
    vworld.snapshot({"name": "gone", "volume": "snapped"}, {"name": "with", "volume": "old"})
    vworld.work()
    ids = {r.name: r.id for r in vworld.rows(volume_tables.volume_snapshots)}
    vworld.remove("old", cascade=True)
    vworld.work(run="d", old=errors.VolumeIsBusy(message="x"))
    vworld.remove("old", cascade=True)
    vworld.snapshot({"name": "gone", "state": "absent"}, run="d")
    vworld.work(run="d")
    with vworld.ledger.write() as tx:
        tx.execute(
            volume_tables.volumes.update().where(volume_tables.volumes.c.id == living).values(instance_uuid=guest)
        )
    vworld.delete(uuids=[guest])
    vworld.removed("h1", [guest])
    vworld.finish()
    vworld.time += 10 * DAY
    recent = vworld.make("recent", 1, run="r")
    vworld.remove("recent", run="r")
    vworld.work(run="r")
    limit = vworld.time - 5 * DAY
    assert of(vworld, old) >= {"volumes", "volume_snapshots", "volume_events", "volume_faults", "volume_notifications"}
    before = vworld.everything()
    planned = vworld.ledger.inspect(purge.plan, limit)
    assert vworld.everything() == before
    removed = purge.purge(vworld.ledger, limit, batch=1)
    assert removed == planned
    assert removed["volumes"] == 1 and removed["volume_snapshots"] == 2 and removed["instances"] == 1
    assert of(vworld, old) == of(vworld, ids["with"]) == of(vworld, ids["gone"]) == set()
    assert {r.id for r in vworld.rows(volume_tables.volumes)} == {living, snapped, recent}
    assert of(vworld, recent) >= {"volumes", "volume_events"}
    assert of(vworld, living) >= {"volumes", "volume_events"}
    assert purge.purge(vworld.ledger, limit) == {}
    vworld.remove("living", run="z")
    assert vworld.work(run="z").done == [living]


def test_one_that_a_host_is_not_rid_of_is_not_over(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=100)
    (volume_id,) = vworld.request({"name": "v", "size": 1}).created
    vworld.choose()
    vworld.silent()
    vworld.remove("v", run="a")
    assert vworld.pending_cleanups()
    assert "volumes" not in purge.purge(vworld.ledger, vworld.time + 1)
    vworld.reported("s1")
    assert vworld.work(run="x").done == [volume_id]
    assert purge.purge(vworld.ledger, vworld.time + 1)["volumes"] == 1


def test_instances_with_attachments_are_not_over(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=100)
    vworld.report("h1")
    guest = vworld.boot("guest", networks=())
    volume_id = vworld.make("v", 1)
    row = {"id": "a", "volume_id": volume_id, "instance_uuid": guest, "attach_status": "detached", "created_at": 0.0}
    with vworld.ledger.write() as tx:
        tx.execute(volume_tables.volume_attachments.insert().values(**row))
        tx.execute(tables.instances.update().values(deleted="x", deleted_at=1.0, vm_state="deleted", host=None))
        tx.execute(tables.claims.delete())
        tx.execute(
            tables.compute_nodes.update().values(memory_mb_used=0, local_gb_used=0, vcpus_used=0, num_instances=0)
        )
    assert "instances" not in vworld.ledger.inspect(purge.plan, vworld.time)
    with vworld.ledger.write() as tx:
        tx.execute(volume_tables.volume_attachments.update().values(deleted="a"))
    removed = purge.purge(vworld.ledger, vworld.time)
    assert removed["instances"] == removed["volume_attachments"] == 1
    assert [r.id for r in vworld.rows(volume_tables.volumes)] == [volume_id]


def test_lists_are_plain_and_in_order(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=100)
    for name in ("b", "a"):
        vworld.make(name, 1)
    with vworld.ledger.read() as tx:
        volumes = volume_views.volumes(tx, project="default")
        assert volume_views.volumes(tx, project="other") == [] == volume_views.snapshots(tx)
        (backend,) = volume_views.backends(tx)
    assert [v["name"] for v in volumes] == ["a", "b"]
    assert volumes[0]["created_at"] == "2023-11-14T22:13:20Z" and volumes[0]["source"] == ""
    assert (backend["free_gb"], backend["pending_gb"], backend["volume_count"]) == (98, 0, 2)


def test_quotas_of_instances_leave_the_words_of_volumes_alone() -> None:
    found = quotas.limits_of(
        {"instances": 3, "gigabytes": 5, "volumes_fast": 1, "projects": {"p": {"volumes": 1}}}, "p"
    )
    assert found["instances"] == 3 and "gigabytes" not in found and "volumes" not in found
