# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The two ends of attachments: who may end an export, and what is left of runs that died."""

from __future__ import annotations

import multiprocessing
import random
import typing as t

import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import plan as rules
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit.evidence import Evidence
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import exports, life, readiness
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import cleanup
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import audit, leases
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables, volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import (
    attachments,
    volumes,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage.attachments import Connector
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import (
    BootWorld,
    device,
    from_image,
    volume_request,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE

LEASE = 1e6


@pytest.fixture
def golden(bworld: BootWorld) -> BootWorld:
    """A host, and a volume "golden" that can be booted from."""
    bworld.report("h1", memory=9)
    bworld.store()
    bworld.make("golden", image="cirros")
    return bworld


def boot(world: BootWorld, until: str = "active", run: str = "a") -> str:
    return world.boot_of(volume_request("web", device("volume", "golden", 0)), until=until, run=run)[0]


# --- what an export is told ------------------------------------------------------------------------------------------------


def test_what_the_storage_host_is_told(golden: BootWorld) -> None:
    (uuid,) = golden.accept(volume_request("web", device("volume", "golden", 0))).created
    golden.schedule()
    with golden.ledger.write() as tx:
        assert exports.to_export(tx.for_run(golden.context()), "s1") == []  # nobody knows for whom
    golden.place()
    with golden.ledger.write() as tx:
        assert attachments.hosts_to_export(tx.for_run(golden.context())) == {"s1"}
        assert attachments.hosts_to_export(tx.for_run(golden.context("b"))) == set()
        assert exports.to_export(tx.for_run(golden.context()), "s2") == []
        (export,) = exports.to_export(tx.for_run(golden.context()), "s1")
    volume = golden.volume("golden")
    assert (export.volume_id, export.instance_uuid, export.backend) == (volume.id, uuid, "lvm")
    assert (export.initiator, export.initiators) == ("iqn.test:h1", ("iqn.test:h1",))
    assert (export.pool_host, export.configuration["name"], export.mode) == ("s1@lvm#lvm", "lvm", "rw")
    # written before it is begun: what a killed run may have left is known
    assert golden.ends("golden") == ("attaching", "begun", "none")
    assert golden.attachment("golden").storage_host == "s1"


def test_another_run_s_answer_is_not_taken(golden: BootWorld) -> None:
    boot(golden, "exported")
    row = golden.attachment("golden")
    with golden.ledger.write() as tx:
        exports.exported(tx.for_run(golden.context("b")), "s1", {row.id: {"iqn": "x", "lun": 9, "portals": []}})
        life.connected(tx.for_run(golden.context("b")), {row.id: "/dev/wrong"})
        life.attached(tx.for_run(golden.context("b")), [row.id])
        assert life.connecting(tx.for_run(golden.context("b")), [row.id]) == set()
    assert golden.attachment("golden") == row


def test_an_instance_without_volumes_is_ready(golden: BootWorld) -> None:
    uuid = golden.accept(volume_request("plain", image=IMAGE)).created[0]
    with golden.ledger.read() as tx:
        assert readiness.prospects(tx, [uuid, "nobody"]).ready == {uuid, "nobody"}


def test_connected_elsewhere_is_not_placed_anew(golden: BootWorld) -> None:
    uuid = boot(golden, "block_device_mapping")
    before = golden.attachment("golden")
    with golden.ledger.write() as tx:
        life.bind_hosts(tx.for_run(golden.context()), {uuid: Connector("h9", "iqn.test:h9")})
    assert golden.attachment("golden").attached_host == before.attached_host == "h1"


# --- who ends an export ----------------------------------------------------------------------------------------------------


def ending(world: BootWorld) -> str:
    """An export of run d that is to end, whose compute side is done."""
    uuid = boot(world)
    world.delete("d", uuids=[uuid])
    world.disconnect("h1", [uuid], "d")
    world.removed("h1", [uuid])
    assert world.ends("golden") == ("detached", "ending", "none")
    return uuid


def test_a_live_run_s_export_is_left_to_it(golden: BootWorld) -> None:
    ending(golden)
    with golden.ledger.read() as tx:
        assert attachments.hosts_to_unexport(tx.for_run(golden.context("z"))) == set()
        assert attachments.hosts_to_unexport(tx.for_run(golden.context("d"))) == {"s1"}
    assert golden.unexport(run="z") == []
    assert golden.unexport(run="d") == [golden.volume("golden").id]
    assert golden.status("golden") == "available"


@pytest.mark.parametrize("how", ["dead", "nobody's"])
def test_whoever_comes_next_ends_it(golden: BootWorld, how: str) -> None:
    uuid = ending(golden)
    if how == "dead":
        golden.time += LEASE
    else:
        with golden.ledger.write() as tx:
            life.release_instances(tx, [uuid])
    assert golden.unexport(run="z") == [golden.volume("golden").id]
    assert (golden.status("golden"), golden.live_attachments()) == ("available", [])
    assert golden.finish() == (["web"], [])


def test_what_two_runs_took_is_ended_once(golden: BootWorld) -> None:
    ending(golden)
    with golden.ledger.write() as tx:
        (export,) = exports.to_unexport(tx.for_run(golden.context("d")), "s1")
    golden.time += LEASE
    golden.unexport(run="z")
    golden.boot_of(volume_request("next", device("volume", "golden", 0)), run="n")
    with golden.ledger.write() as tx:
        exports.unexported(tx.for_run(golden.context("d")), "s1", {export.attachment_id: None})
    assert golden.ends("golden") == ("attached", "done", "done")


def test_an_export_that_does_not_end_stays_with_its_fault(golden: BootWorld) -> None:
    ending(golden)
    golden.unexport(run="d", error=errors.ISCSITargetRemoveFailed(volume_id="v"))
    assert golden.ends("golden") == ("detached", "ending", "none")
    done, left = golden.finish()
    assert done == [] and left[0]["fault"]["code"] == "ISCSITargetRemoveFailed"
    golden.unexport(run="d")
    assert golden.finish() == (["web"], []) and golden.status("golden") == "available"


def test_an_export_that_is_used_never_ends(golden: BootWorld) -> None:
    uuid = boot(golden)
    golden.delete("d", uuids=[uuid])
    golden.time += LEASE
    assert golden.unexport(run="z") == []
    assert golden.ends("golden") == ("detached", "done", "done")


# --- runs that died -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", ["accepted", "exported", "networking", "block_device_mapping", "spawning"])
@pytest.mark.parametrize("goes", [True, False])
def test_a_build_whose_lease_is_out_gives_its_volumes_back(golden: BootWorld, until: str, goes: bool) -> None:
    wish = volume_request(
        "web", device("volume", "golden", 0), device("blank", volume_size=1, delete_on_termination=goes)
    )
    (uuid,) = golden.accept(wish).created if until == "accepted" else golden.boot_of(wish, until=until)
    made = golden.disks(uuid)[1]["volume_id"]
    golden.time += LEASE
    with golden.ledger.write() as tx:
        leases.expire(tx.for_run(golden.context("z")))
    assert golden.state(uuid)[0] == states.ERROR
    if until in ("block_device_mapping", "spawning"):
        # its guest may be there still
        golden.storage_round("z")
        assert golden.ends("golden") == ("detached", "done", "done")
    with golden.ledger.write() as tx:
        golden.connections.clear()
        cleanup.finish(tx, {"h1": [uuid]})
    golden.storage_round("z")
    assert (golden.status("golden"), golden.live_attachments()) == ("available", [])
    never_placed = until == "accepted"
    assert golden.status(made) == ("deleted" if goes or never_placed else "available")


@pytest.mark.parametrize("until, first", [("exported", []), ("spawning", ["h1"])])
def test_a_host_that_may_still_use_a_volume_is_asked_first(golden: BootWorld, until: str, first: list[str]) -> None:
    """Before a request is looked at, not after: its volume could not be reserved again before the host is clean."""

    def asked() -> list[str]:
        with golden.ledger.write() as tx:
            return attachments.hosts_to_clean_first(tx)

    uuid = boot(golden, until)
    assert asked() == []  # its run is at work
    golden.time += LEASE
    with golden.ledger.write() as tx:
        leases.expire(tx.for_run(golden.context("z")))
    assert asked() == first
    with golden.ledger.write() as tx:
        golden.connections.clear()
        cleanup.finish(tx, {"h1": [uuid]})
    assert asked() == []


@pytest.mark.parametrize(
    "status, becomes",
    [("creating", "error"), ("downloading", "error"), ("deleting", "deleted"), ("extending", "in-use")],
)
def test_volumes_of_runs_whose_lease_is_out(golden: BootWorld, status: str, becomes: str) -> None:
    if status in ("creating", "downloading"):
        golden.request({"name": "half", "size": 1, **({"image": "cirros"} if status == "downloading" else {})}, run="v")
        golden.choose("v")
        golden.work_of(run="v")
    else:
        golden.make("half", size=1)
    if status == "deleting":
        golden.remove("half", run="v")
    if status == "extending":
        golden.extend("half", 2, run="v")
        becomes = "available"
    assert golden.status("half") == status
    for run in ("z", "y"):
        with golden.ledger.write() as tx:
            leases.expire(tx.for_run(golden.context(run)))
        assert golden.volume("half").run_id == "run-v"
    golden.time += LEASE
    with golden.ledger.write() as tx:
        leases.expire(tx.for_run(golden.context("z")))
    golden.storage_round("z")
    assert golden.status("half") == becomes
    if becomes == "error":
        with golden.ledger.read() as tx:
            assert "run run-v died while it created volume half" in golden.shown("half")["fault"]["message"]


# --- audit --------------------------------------------------------------------------------------------------------------------


def findings(world: BootWorld, hosts: t.Any = None) -> list[tuple[str, str, t.Any, t.Any, str]]:
    found = world.ledger.for_run(world.context("audit")).inspect(audit.plan, Evidence(hosts=hosts))
    return [(f.kind, f.what, f.old, f.new, f.action) for f in found if f.kind in (rules.VOLUME, rules.ATTACHMENT)]


def repair(world: BootWorld) -> None:
    context, evidence = world.context("audit"), Evidence()
    planned = world.ledger.for_run(context).inspect(audit.plan, evidence)
    world.ledger.for_run(context).transact(audit.repair, planned, evidence)
    assert [f for f in findings(world) if f[4] != rules.WAIT] == []


def test_a_sound_ledger_has_no_findings(golden: BootWorld) -> None:
    boot(golden)
    (half,) = golden.boot_of(volume_request("half", from_image()), until="spawning", run="v")
    assert findings(golden) == []
    assert golden.state(half)[0] == states.BUILDING


def test_audit_ends_what_dead_runs_left(golden: BootWorld) -> None:
    golden.make("data", size=1)
    golden.make("old", size=1)
    boot(golden)
    golden.attach({"instance": "web", "volume": "data"}, run="v")
    golden.remove("old", run="v")
    golden.request({"name": "half", "size": 1}, run="v")
    golden.time += LEASE
    data = golden.volume("data").id
    assert sorted(findings(golden)) == [
        ("attachment", "volume %s" % data, "attaching", "detached", "release"),
        ("volume", "volume half", "creating", "error", "end"),
        ("volume", "volume old", "deleting", "deleting", "finish"),
    ]
    assert findings(golden, hosts=["h7"]) == []
    repair(golden)
    golden.storage_round("audit")
    assert [golden.status(n) for n in ("data", "half", "old")] == ["available", "error", "deleted"]


def test_audit_ends_attachments_of_instances_that_are_gone(golden: BootWorld) -> None:
    uuid = boot(golden)
    golden.delete_all(uuid)
    other = golden.boot_of(volume_request("other", device("volume", "golden", 0)), run="o")[0]
    with golden.ledger.write() as tx:  # as no run of ours leaves it
        tx.execute(
            tables.instances.update()
            .where(tables.instances.c.uuid == other)
            .values(deleted=other, vm_state=states.DELETED, host=None, node=None)
        )
        tx.execute(tables.claims.delete())
        tx.execute(tables.ip_allocations.delete())
        tx.execute(tables.ports.delete())
        tx.execute(
            sa.update(tables.compute_nodes).values(memory_mb_used=0, local_gb_used=0, vcpus_used=0, num_instances=0)
        )
    volume = golden.volume("golden").id
    assert sorted(findings(golden)) == sorted(
        [
            ("attachment", "volume %s" % volume, "attached", "detached", "release"),
            ("attachment", "volume %s" % volume, "connected", None, "clean"),
        ]
    )
    repair(golden)
    assert golden.cleanups() == {(other, "h1")}
    golden.storage_round("audit")
    assert golden.status("golden") == "detaching"  # a guest may have it
    with golden.ledger.write() as tx:
        golden.connections.clear()
        cleanup.finish(tx, {"h1": [other]})
    golden.storage_round("audit")
    assert golden.status("golden") == "available"


def test_audit_frees_a_volume_that_nobody_has(golden: BootWorld) -> None:
    with golden.ledger.write() as tx:
        tx.execute(volume_tables.volumes.update().values(status="in-use", attach_status="attached"))
    assert findings(golden) == [("volume", "volume golden", "in-use", "available", "correct")]
    repair(golden)
    assert (golden.status("golden"), golden.volume("golden").attach_status) == ("available", "detached")


# --- races --------------------------------------------------------------------------------------------------------------------


def test_one_volume_is_given_once(golden: BootWorld) -> None:
    """Real processes: boots and attaches of the same volume, of which one may have it."""
    golden.boot_of(*(volume_request("guest-%d" % n, image=IMAGE) for n in range(2)))
    golden.ledger.close()
    fork = multiprocessing.get_context("fork")
    barrier, answers = fork.Barrier(6), fork.Queue()

    def child(number: int) -> None:
        mine = BootWorld(golden.url)
        mine.rng = random.Random(number)
        run = "r%d" % number
        try:
            barrier.wait(60)
            if number % 2:
                mine.attach({"instance": "guest-%d" % (number // 4), "volume": "golden"}, run=run)
            else:
                mine.accept(volume_request("web-%d" % number, device("volume", "golden", 0)), run=run)
            answers.put("taken")
        except errors.InvalidRequest as e:
            answers.put(",".join(sorted({r["code"] for r in e.errors})))
        except BaseException as e:
            answers.put("crashed: %s: %s" % (type(e).__name__, e))
        finally:
            mine.ledger.close()

    workers = [fork.Process(target=child, args=(n,)) for n in range(6)]
    for worker in workers:
        worker.start()
    found = sorted(answers.get(timeout=120) for _each in workers)
    for worker in workers:
        worker.join(60)
    assert found.count("taken") == 1
    assert set(found) - {"taken"} <= {"InvalidVolume", "VolumeLocked"}
    assert len(golden.live_attachments()) == 1 and golden.status("golden") == "attaching"


def test_reserving_looks_again(golden: BootWorld) -> None:
    with golden.ledger.write() as tx:
        (stale,) = volumes.select(tx, names=["golden"])
        tx.execute(volume_tables.volumes.update().values(status="deleting"))
        with pytest.raises(errors.InvalidVolume, match="another request took"):
            life.reserve(tx.for_run(golden.context()), stale, "11111111-1111-4111-8111-111111111111", "/dev/vdb")
        assert instances.select_live(tx) == []
        tx.execute(volume_tables.volumes.update().values(status="available"))


def test_what_is_made_for_an_instance_is_not_taken_from_it(golden: BootWorld) -> None:
    (uuid,) = golden.accept(volume_request("web", from_image())).created
    made = golden.disks(uuid)[0]["volume_id"]
    with golden.ledger.write() as tx:
        tx.execute(
            volume_tables.volumes.update()
            .where(volume_tables.volumes.c.id == made)
            .values(status="available", made=True)
        )
        (row,) = volumes.select(tx, ids=[made])
        with pytest.raises(errors.InvalidVolume, match="the status is reserved") as caught:
            life.reserve(tx.for_run(golden.context("b")), row, "11111111-1111-4111-8111-111111111111", "/dev/vdb")
        assert "is being created for instance %s" % uuid in caught.value.remedy
        tx.execute(
            volume_tables.volumes.update()
            .where(volume_tables.volumes.c.id == made)
            .values(status="creating", made=False)
        )


# --- late answers ------------------------------------------------------------------------------------------------------


def test_an_export_that_fails_while_its_attachment_is_to_end_does_not_bring_it_back(golden: BootWorld) -> None:
    uuid = boot(golden, "block_device_mapping")
    with golden.ledger.write() as tx:
        life.resume(tx.for_run(golden.context("b")), [uuid])
        (export,) = exports.to_export(tx.for_run(golden.context("b")), "s1")
        life.end_with_instances(tx.for_run(golden.context("b")), [uuid])
        failed = {export.attachment_id: errors.ISCSITargetCreateFailed(volume_id="v")}
        exports.exported(tx.for_run(golden.context("b")), "s1", failed)
    assert golden.ends("golden") == ("detached", "begun", "done")
    golden.disconnect("h1", [uuid], "b")
    assert golden.unexport(run="b") == [golden.volume("golden").id]
    assert (golden.status("golden"), golden.live_attachments()) == ("available", [])


def test_what_a_host_disconnected_is_detached_whoever_began_it(golden: BootWorld) -> None:
    """A run that was taken for dead detached it, and its detachment was rolled back meanwhile."""
    uuid = boot(golden)
    golden.disconnect("h1", [uuid], "z")
    assert golden.ends("golden") == ("detached", "ending", "none")
    assert golden.disks(uuid) == []
    assert golden.unexport(run="z") == [golden.volume("golden").id]
    assert (golden.status("golden"), golden.live_attachments()) == ("available", [])
