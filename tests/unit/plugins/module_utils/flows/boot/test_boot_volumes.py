# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Booting from volumes and with them, without a host."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import life, readiness
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import builds
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import cleanup, delete
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import (
    BootWorld,
    device,
    from_image,
    volume_request,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.volume_world import REBUILT
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE, SMALL

ELSEWHERE = errors.RemoteError(reason="qemu died")
NOWHERE = errors.ImageError(reason="the image is broken")


def volume_of(bworld: BootWorld, uuid: str, position: int = 0) -> t.Any:
    return bworld.volume(bworld.disks(uuid)[position]["volume_id"])


def refused(bworld: BootWorld, *requests: t.Any, **how: t.Any) -> list[tuple[str, str, str]]:
    before = bworld.everything()
    found = [(e["path"], e["code"], e["message"]) for e in bworld.refusals(*requests, **how)]
    assert bworld.everything() == before
    return found


# --- made for the instance ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "root, size",
    [
        (lambda w: from_image(5), 5),
        (lambda w: device("snapshot", w.snap, 0), 10),
        (lambda w: device("snapshot", "snap", 0, volume_size=12), 12),
        (lambda w: device("blank", None, 0, volume_size=3), 3),
    ],
    ids=["image", "snapshot", "snapshot by name, larger", "blank"],
)
def test_from_a_volume_that_is_made_for_it(bworld: BootWorld, root: t.Any, size: int) -> None:
    bworld.report("h1")
    bworld.store()
    bworld.make("golden", image="cirros")
    bworld.snap = bworld.snapshot({"name": "snap", "volume": "golden"}).created[0]  # type: ignore[attr-defined]
    bworld.work()
    (uuid,) = bworld.boot_of(volume_request("web", root(bworld)))
    assert bworld.state(uuid) == (states.ACTIVE, None, "h1")
    volume = volume_of(bworld, uuid)
    assert (volume.size, volume.status, volume.attach_status, volume.name) == (size, "in-use", "attached", None)
    assert (volume.run_id, volume.instance_uuid) == (None, None)
    (disk,) = bworld.disks(uuid)
    assert (disk["name"], disk["serial"], disk["device_name"]) == (volume.id, volume.id, "/dev/vda")
    assert (disk["size_gb"], disk["boot_index"]) == (size, 0)
    row = bworld.attachment(volume.id)
    assert (row.attached_host, row.storage_host, row.initiator, row.connector) == ("h1", "s1", "iqn.test:h1", "kernel")
    assert (row.attach_status, row.export, row.connection) == ("attached", "done", "done")
    assert (row.run_id, row.attached_at, row.mountpoint) == (None, bworld.time, "/dev/vda")
    assert row.device_path and row.portals == ["192.0.2.1:3260"]
    # the flavor's root disk is not used
    assert bworld.used("h1")[1] == 0 and bworld.row(uuid).root_gb == 0
    assert "volume.attach.end" in bworld.notified(volume.id)


def test_the_guest_has_the_properties_of_what_its_volume_was_made_of(bworld: BootWorld) -> None:
    bworld.report("h1", memory=9)
    bworld.store()
    bworld.images = {"cirros": REBUILT, IMAGE.id: REBUILT}
    bworld.make("golden", image="cirros")
    made, used = bworld.boot_of(
        replace(volume_request("made", from_image()), root_image=REBUILT),
        volume_request("used", device("volume", "golden", 0)),
    )
    for uuid in (made, used):
        with bworld.ledger.read() as tx:
            (build,) = builds.load(tx, [_live(tx, uuid)])
        image = build.row.spec["image"]
        assert (image["id"], image["properties"]["hw_disk_bus"]) == ("", "scsi")
        assert build.row.spec["is_bfv"] is True
        assert bworld.disks(uuid)[0]["device_name"] == "/dev/sda"
        (attachment,) = build.volumes.values()
        assert attachment.volume_id == build.disks[0]["volume_id"]


def _live(tx: Transaction, uuid: str) -> t.Any:
    from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances

    return instances.select_live(tx, uuids=[uuid])[0]


def test_each_of_several_instances_has_a_volume_of_its_own(bworld: BootWorld) -> None:
    bworld.report("h1", memory=9)
    bworld.store()
    uuids = bworld.boot_of(volume_request("web", from_image(), count=3))
    assert len({volume_of(bworld, u).id for u in uuids}) == 3
    assert {bworld.state(u)[0] for u in uuids} == {states.ACTIVE}


def test_volumes_beside_a_local_root(bworld: BootWorld) -> None:
    bworld.report("h1")
    bworld.store()
    bworld.make("data", size=2)
    flavor = replace(SMALL, swap=64, ephemeral_gb=1)
    (uuid,) = bworld.boot_of(
        volume_request(
            "web",
            device("blank", volume_size=3, volume_type="fast", delete_on_termination=True),
            device("volume", "data", device_name="/dev/vdx"),
            image=IMAGE,
            flavor=flavor,
        )
    )
    assert [(d["kind"], d["device_name"]) for d in bworld.disks(uuid)] == [
        ("image", "/dev/vda"),
        ("ephemeral", "/dev/vdb"),
        ("swap", "/dev/vdc"),
        ("volume", "/dev/vdd"),
        ("volume", "/dev/vdx"),
    ]
    assert volume_of(bworld, uuid, 3).volume_type == "fast"
    assert volume_of(bworld, uuid, 4).name == "data"
    assert bworld.used("h1")[1] == 2
    with bworld.ledger.read() as tx:
        assert _live(tx, uuid).spec["image"]["id"] == IMAGE.id


# --- what is refused -----------------------------------------------------------------------------------------------------


def test_all_refusals_at_once_and_nothing_written(bworld: BootWorld) -> None:
    bworld.report("h1", memory=9)
    bworld.store()
    bworld.make("empty", size=1)
    bworld.make("taken", size=1, image="cirros")
    bworld.boot_of(volume_request("first", device("volume", "taken", 0)))
    found = refused(
        bworld,
        volume_request("a", device("volume", "none-such", 0)),
        volume_request("b", device("volume", "empty", 0)),
        volume_request("c", device("volume", "taken"), image=IMAGE),
        volume_request("d", device("snapshot", "no-snap"), device("volume", "empty"), image=IMAGE),
        volume_request("e", device("volume", "empty"), image=IMAGE),
        volume_request("f", device("blank", volume_size=1, volume_type="none-such"), image=IMAGE),
        volume_request("g", device("blank", None, 0, volume_size=1), device("blank", volume_size=1000)),
        quotas={},
    )
    assert [(path, code) for path, code, _m in found] == [
        ("instances[0].block_device_mapping[0]", "InvalidBDMVolume"),
        ("instances[1].block_device_mapping[0]", "InvalidBDMVolumeNotBootable"),
        ("instances[2].block_device_mapping[0]", "InvalidVolume"),
        ("instances[3].block_device_mapping[0]", "InvalidBDMSnapshot"),
        ("instances[4].block_device_mapping[0]", "InvalidVolume"),
        ("instances[5].block_device_mapping[0]", "VolumeTypeNotFoundByName"),
    ]
    messages = [m for _p, _c, m in found]
    assert messages[0] == "Block Device Mapping is Invalid: failed to get volume none-such."
    assert messages[1] == "Block Device %s is not bootable." % bworld.volume("empty").id
    assert "multiple attachments are not enabled" in messages[2]
    assert "is requested twice" in messages[4]


def test_a_snapshot_of_a_volume_that_is_not_bootable(bworld: BootWorld) -> None:
    bworld.store()
    bworld.make("empty", size=1)
    bworld.snapshot({"name": "snap", "volume": "empty"})
    bworld.work()
    ((path, code, _m),) = refused(bworld, volume_request("a", device("snapshot", "snap", 0)))
    assert (path, code) == ("instances[0].block_device_mapping[0]", "InvalidBDMVolumeNotBootable")


def test_the_quota_of_volumes(bworld: BootWorld) -> None:
    bworld.store()
    bworld.quotas = {"volumes": 2}
    ((path, code, _m),) = refused(bworld, volume_request("a", from_image(), count=3))
    assert (path, code) == ("instances[0].block_device_mapping[0]", "VolumeLimitExceeded")
    assert len(bworld.accept(volume_request("a", from_image(), count=2)).created) == 2


def test_without_a_word_on_how_volumes_are_made(bworld: BootWorld) -> None:
    from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import accept

    with pytest.raises(errors.InvalidRequest, match="volumes are not made here"), bworld.ledger.write() as tx:
        accept.accept(
            tx.for_run(bworld.context()),
            [volume_request("a", from_image())],
            accept.AcceptOptions(networks=bworld.networks),
        )


def test_a_volume_type_that_there_is_not(bworld: BootWorld) -> None:
    bworld.store()
    (error,) = bworld.refusals(volume_request("a", device("blank", None, 0, volume_size=1, volume_type="none-such")))
    assert (error["code"], error["status"]) == ("VolumeTypeNotFoundByName", 400)


def test_the_disk_that_the_image_of_a_snapshot_wants(bworld: BootWorld) -> None:
    bworld.store()
    bworld.images["cirros"] = replace(IMAGE, min_disk=4)
    bworld.make("golden", size=4, image="cirros")
    bworld.snapshot({"name": "snap", "volume": "golden"})
    bworld.work()
    ((path, code, message),) = refused(bworld, volume_request("a", device("snapshot", "snap", 0, volume_size=3)))
    assert (path, code) == ("instances[0].block_device_mapping", "VolumeSmallerThanMinDisk")
    assert "Volume size is 3221225472 bytes, minimum size is 4294967296 bytes." in message
    assert len(bworld.accept(volume_request("a", device("snapshot", "snap", 0))).created) == 1


def test_an_image_that_maps_its_root_to_a_snapshot(bworld: BootWorld) -> None:
    """As one that was made of a volume-backed server."""
    bworld.report("h1")
    bworld.store()
    bworld.make("golden", size=2, image="cirros")
    bworld.make("data", size=1)
    bworld.snapshot({"name": "snap", "volume": "golden"})
    bworld.work()
    root = {"source_type": "snapshot", "snapshot_id": "snap", "boot_index": 0, "delete_on_termination": True}
    beside = {"source_type": "volume", "volume_id": "data", "device_name": "/dev/vdq"}
    own = replace(IMAGE, properties={"bdm_v2": "True", "block_device_mapping": [root, beside]})
    (uuid,) = bworld.boot_of(volume_request("web", image=own))
    assert bworld.state(uuid) == (states.ACTIVE, None, "h1")
    assert [(d["kind"], d["device_name"], d["size_gb"]) for d in bworld.disks(uuid)] == [
        ("volume", "/dev/vda", 2),
        ("volume", "/dev/vdq", 1),
    ]
    assert (volume_of(bworld, uuid).bootable, volume_of(bworld, uuid, 1).name) == (True, "data")
    assert bworld.used("h1")[1] == 0


def test_memory_that_the_image_of_an_existing_volume_wants(bworld: BootWorld) -> None:
    bworld.store()
    bworld.images["cirros"] = replace(IMAGE, min_ram=4096)
    bworld.make("golden", image="cirros")
    ((path, code, _m),) = refused(bworld, volume_request("a", device("volume", "golden", 0)))
    assert (path, code) == ("instances[0].block_device_mapping", "FlavorMemoryTooSmall")


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"hw_tpm_version": "2.0"}, "NotSupportedYet"),
        ({"hw_vif_model": "ne3k"}, "UnsupportedHardware"),
        ({"img_config_drive": "always"}, "InvalidInput"),
        ({"os_shutdown_timeout": "soon"}, "InvalidInput"),
        ({"hw_pci_numa_affinity_policy": "near"}, "InvalidPCINUMAAffinity"),
        ({"hw_cpu_policy": "dedicated"}, "InvalidInput"),  # NUMATopologyFilter is not enabled
    ],
)
@pytest.mark.parametrize("source", ["volume", "snapshot"])
def test_what_the_image_of_an_existing_volume_asks_for_is_checked(
    bworld: BootWorld, source: str, properties: dict[str, str], code: str
) -> None:
    """Only its NUMA cells were: a guest booted without the TPM that its image asks for, or failed on each host."""
    bworld.store()
    bworld.filters = ["PciPassthroughFilter"]
    bworld.images["cirros"] = replace(IMAGE, properties=properties)
    bworld.make("golden", image="cirros")
    bworld.snapshot({"name": "snap", "volume": "golden"})
    bworld.work()
    word = {"volume": "golden", "snapshot": "snap"}[source]
    ((path, found, _m),) = refused(bworld, volume_request("a", device(source, word, 0)))
    assert (path, found) == ("instances[0].block_device_mapping", code)


def test_the_policy_of_a_volume_s_image_is_that_of_the_devices(bworld: BootWorld) -> None:
    bworld.store()
    bworld.aliases = [{"name": "gpu", "vendor_id": "10de"}]
    bworld.images["cirros"] = replace(IMAGE, properties={"hw_pci_numa_affinity_policy": "required"})
    bworld.make("golden", image="cirros")
    flavor = replace(SMALL, extra_specs={"pci_passthrough:alias": "gpu:1"})
    asked = replace(volume_request("a", device("volume", "golden", 0)), flavor=flavor)
    (uuid,) = bworld.accept(asked).created
    with bworld.ledger.read() as tx:
        (request,) = _live(tx, uuid).spec["pci_requests"]
    assert (request["alias_name"], request["numa_policy"]) == ("gpu", "required")


# --- the same again ------------------------------------------------------------------------------------------------------


def test_the_same_request_again_changes_nothing(bworld: BootWorld) -> None:
    bworld.report("h1")
    bworld.store()
    wish = volume_request("web", from_image())
    bworld.boot_of(wish)
    before = bworld.everything()
    again = bworld.accept(wish, run="b")
    assert (again.changed, len(again.unchanged)) == (False, 1)
    assert bworld.everything() == before
    (error,) = bworld.refusals(volume_request("web", from_image(6)), run="b")
    assert error["code"] == "InstanceExists" and "block_device_mapping" in error["message"]


def test_a_killed_run_s_volumes_go_on_with_its_build(bworld: BootWorld) -> None:
    bworld.report("h1")
    bworld.store()
    wish = volume_request("web", from_image())
    bworld.boot_of(wish, until="block_device_mapping")
    volume = bworld.attachment(bworld.rows(volume_tables.volumes)[0].id).volume_id
    assert bworld.ends(volume) == ("attaching", "done", "done")
    bworld.time += 1e6
    (uuid,) = bworld.accept(wish, run="b").resumed
    # its credentials died with it: the export is made anew
    assert bworld.ends(volume) == ("attaching", "begun", "done")
    assert {r.run_id for r in bworld.live_attachments()} == {"run-b"}
    bworld.schedule("b")
    bworld.place("b")
    bworld.storage_round("b")
    bworld.build("h1", run="b")
    assert bworld.state(uuid)[0] == states.ACTIVE
    assert bworld.ends(volume) == ("attached", "done", "done")
    assert bworld.status(volume) == "in-use"


def test_a_live_run_keeps_its_builds_volumes(bworld: BootWorld) -> None:
    bworld.report("h1")
    bworld.store()
    wish = volume_request("web", from_image())
    bworld.boot_of(wish, until="exported")
    (error,) = bworld.refusals(wish, run="b")
    assert error["code"] == "InstanceBusy"
    assert {r.run_id for r in bworld.live_attachments()} == {"run-a"}


@pytest.mark.parametrize("delete_on_termination", [True, False])
def test_one_in_error_is_booted_again(bworld: BootWorld, delete_on_termination: bool) -> None:
    bworld.report("h1")
    bworld.store()
    bworld.make("data", size=1)
    wish = volume_request("web", from_image(delete_on_termination=delete_on_termination), device("volume", "data"))
    (uuid,) = bworld.boot_of(wish, until="spawning")
    first = volume_of(bworld, uuid).id
    bworld.disconnect("h1", [uuid])
    assert bworld.fail("h1", uuid, NOWHERE) == "error"
    bworld.storage_round()
    assert bworld.status("data") == "available"
    assert bworld.status(first) == ("deleted" if delete_on_termination else "available")
    bworld.accept(wish, run="b")
    assert bworld.status("data") == "attaching"
    bworld.schedule("b")
    bworld.place("b")
    bworld.storage_round("b")
    bworld.build("h1", run="b")
    assert bworld.state(uuid)[0] == states.ACTIVE
    assert (volume_of(bworld, uuid).id == first) is not delete_on_termination
    assert volume_of(bworld, uuid).status == "in-use"


def test_one_in_error_whose_exports_have_not_ended_is_booted_again(bworld: BootWorld) -> None:
    bworld.report("h1")
    bworld.store()
    bworld.make("golden", image="cirros")
    wish = volume_request("web", device("volume", "golden", 0))
    (uuid,) = bworld.boot_of(wish, until="spawning")
    bworld.disconnect("h1", [uuid])
    bworld.fail("h1", uuid, NOWHERE)
    assert bworld.ends("golden") == ("detached", "ending", "none")
    bworld.accept(wish, run="a")
    bworld.schedule()
    bworld.place()
    bworld.storage_round()
    assert bworld.asked[-2:] == [("absent", bworld.volume("golden").id), ("present", bworld.volume("golden").id)]
    bworld.build("h1")
    assert bworld.state(uuid)[0] == states.ACTIVE and bworld.status("golden") == "in-use"


def test_one_in_error_whose_volume_is_somebody_else_s_meanwhile(bworld: BootWorld) -> None:
    bworld.report("h1", memory=9)
    bworld.store()
    bworld.make("golden", image="cirros")
    wish = volume_request("web", device("volume", "golden", 0))
    (uuid,) = bworld.boot_of(wish, until="networking")
    bworld.fail("h1", uuid, NOWHERE, event="networking")
    bworld.storage_round()
    bworld.boot_of(volume_request("other", device("volume", "golden", 0)), run="o")
    ((_path, code, message),) = refused(bworld, wish, run="b")
    assert code == "InvalidVolume" and "already attached" in message


# --- waiting for volumes ----------------------------------------------------------------------------------------------------


def test_a_build_waits_for_its_volumes_without_losing_an_attempt(bworld: BootWorld) -> None:
    bworld.report("h1", memory=9)
    bworld.store()
    (slow, quick) = bworld.accept(volume_request("slow", from_image()), volume_request("quick", image=IMAGE)).created
    bworld.schedule()
    bworld.place()
    begun, failed = bworld.begin(builds.NETWORKING, "h1")
    assert ([b.uuid for b in begun], failed) == ([quick], {})
    assert bworld.state(slow) == (states.BUILDING, None, "h1")
    attempts = bworld.row(slow).retry["num_attempts"]
    assert bworld.schedule().hosts == ["h1"]
    bworld.storage_round()
    begun, failed = bworld.begin(builds.NETWORKING, "h1")
    assert ([b.uuid for b in begun], failed) == ([slow], {})
    assert bworld.row(slow).retry["num_attempts"] == attempts


def test_a_volume_that_cannot_be_made_ends_the_build(bworld: BootWorld) -> None:
    bworld.report("h1")
    bworld.report("h2")
    bworld.store(lvm=3)
    (uuid,) = bworld.boot_of(volume_request("web", from_image()), until="exported")
    volume = volume_of(bworld, uuid)
    assert volume.status == "error"
    host = bworld.row(uuid).host
    begun, failed = bworld.begin(builds.NETWORKING, host)
    assert begun == [] and isinstance(failed[uuid].error, errors.VolumeNotCreated) and failed[uuid].cleaned
    assert bworld.fail(host, uuid, failed[uuid].error, event="networking", preparing=failed[uuid].preparing) == "error"
    assert bworld.state(uuid) == (states.ERROR, None, None)
    assert bworld.claims() == set()
    fault = bworld.fault(uuid)
    assert fault.error_code == "VolumeNotCreated"
    assert fault.message.endswith("And its status is error.") and volume.id in fault.message
    assert fault.remedy.startswith("NoValidBackend: ") and "CapacityFilter rejected s1@lvm#lvm" in fault.remedy
    assert fault.remedy.endswith("volume_list shows what became of volume %s." % volume.id)
    with bworld.ledger.read() as tx:  # an earlier fault is not why a volume was detached
        detached = errors.VolumeNotCreated(
            volume_id=volume.id, seconds=0, attempts=1, volume_status="available", remedy="x"
        )
        readiness._add_causes(tx, [detached])
    assert detached.remedy == "x"
    assert bworld.live_attachments() == []
    # room is found: the same boot makes it anew
    bworld.store(lvm=30)
    bworld.accept(volume_request("web", from_image()), run="b")
    bworld.schedule("b")
    bworld.place("b")
    bworld.storage_round("b")
    bworld.build(bworld.row(uuid).host, run="b")
    assert bworld.state(uuid)[0] == states.ACTIVE and volume_of(bworld, uuid).id == volume.id


def test_a_login_that_fails_on_a_host_goes_to_another_host(bworld: BootWorld) -> None:
    """The host connects volumes in what is Nova's spawn, whose failures are rescheduled; only what prepares them aborts."""
    bworld.report("h1")
    bworld.report("h2")
    bworld.store(lvm=30)
    (uuid,) = bworld.boot_of(volume_request("web", from_image()), until="exported")
    host = bworld.row(uuid).host
    error = errors.FailedISCSITargetPortalLogin()
    assert bworld.fail(host, uuid, error, event="block_device_mapping") == "rescheduled"
    bworld.schedule()
    bworld.place()
    bworld.storage_round()
    assert bworld.row(uuid).host not in (None, host)
    bworld.build(bworld.row(uuid).host)
    assert bworld.state(uuid)[0] == states.ACTIVE


def test_what_still_waits_after_the_last_round_fails(bworld: BootWorld) -> None:
    bworld.report("h1")
    bworld.store()
    (uuid,) = bworld.accept(volume_request("web", from_image(delete_on_termination=True))).created
    bworld.schedule()
    bworld.place()
    bworld.time += 30
    volume = volume_of(bworld, uuid)
    assert bworld.give_up() == [uuid]
    assert bworld.state(uuid) == (states.ERROR, None, None)
    message = bworld.fault(uuid).message
    assert "even after we waited 30 seconds or 3 attempts. And its status is creating." in message
    assert (bworld.claims(), bworld.live_attachments(), bworld.status(volume.id)) == (set(), [], "deleted")


def test_an_export_that_fails_ends_the_build(bworld: BootWorld) -> None:
    bworld.report("h1")
    bworld.store()
    bworld.make("golden", image="cirros")
    (uuid,) = bworld.accept(volume_request("web", device("volume", "golden", 0))).created
    bworld.schedule()
    bworld.place()
    bworld.storage_round(fail_export=errors.ISCSITargetCreateFailed(volume_id="v"))
    begun, failed = bworld.begin(builds.NETWORKING, "h1")
    assert begun == [] and isinstance(failed[uuid].error, errors.ISCSITargetAttachFailed)
    assert bworld.fail("h1", uuid, failed[uuid].error, event="networking", preparing=failed[uuid].preparing) == "error"
    assert bworld.fault(uuid).message.startswith("Failure prepping block device. ")
    bworld.storage_round()
    assert (bworld.status("golden"), bworld.live_attachments()) == ("available", [])


# --- failing ------------------------------------------------------------------------------------------------------------


def test_a_reschedule_takes_the_volumes_along(bworld: BootWorld) -> None:
    bworld.report("h1", memory=9)
    bworld.report("h2", memory=2)
    bworld.store()
    (uuid,) = bworld.boot_of(volume_request("web", from_image(delete_on_termination=True)), until="spawning")
    volume = volume_of(bworld, uuid)
    bworld.disconnect("h1", [uuid])
    assert bworld.fail("h1", uuid, ELSEWHERE) == "rescheduled"
    row = bworld.attachment(volume.id)
    assert (row.attach_status, row.export, row.connection, row.attached_host) == ("attaching", "ending", "none", None)
    assert bworld.schedule().placed[uuid].host == "h2"
    bworld.place()
    bworld.storage_round()
    assert bworld.initiators[volume.id] == ("iqn.test:h2",)
    bworld.build("h2")
    assert bworld.state(uuid) == (states.ACTIVE, None, "h2")
    assert volume_of(bworld, uuid).id == volume.id
    assert bworld.attachment(volume.id).attached_host == "h2"


def test_a_host_that_could_not_be_cleaned_keeps_the_volume(bworld: BootWorld) -> None:
    bworld.report("h1", memory=9)
    bworld.report("h2", memory=2)
    bworld.store()
    bworld.make("golden", image="cirros")
    (uuid,) = bworld.boot_of(volume_request("web", device("volume", "golden", 0)), until="spawning")
    away = {"cleaned": False, "cleanup_reason": "no route", "unreachable": True}
    # its guest may still run: no other host may have the volume
    assert bworld.fail("h1", uuid, errors.HostUnreachable(host="h1", reason="no route"), **away) == "error"
    assert bworld.fault(uuid).message.startswith("Could not clean up failed build, not rescheduling.")
    assert bworld.ends("golden") == ("detached", "done", "done")
    bworld.storage_round()
    assert bworld.asked[-1][0] == "present" and bworld.status("golden") == "attaching"
    ((_path, code, message),) = refused(bworld, volume_request("web", device("volume", "golden", 0)), run="a")
    assert code == "InvalidVolume" and "still connected to host h1" in message
    with bworld.ledger.write() as tx:
        bworld.connections.clear()
        cleanup.finish(tx, {"h1": [uuid]})
    assert bworld.ends("golden") == ("detached", "ending", "none")
    bworld.storage_round()
    assert (bworld.status("golden"), bworld.live_attachments()) == ("available", [])


def test_an_unreachable_host_that_was_never_connected_is_left_behind(bworld: BootWorld) -> None:
    bworld.report("h1", memory=9)
    bworld.report("h2", memory=2)
    bworld.store()
    (uuid,) = bworld.boot_of(volume_request("web", from_image()), until="networking")
    away = {"cleaned": False, "cleanup_reason": "no route", "unreachable": True}
    error = errors.HostUnreachable(host="h1", reason="no route")
    assert bworld.fail("h1", uuid, error, event="networking", **away) == "rescheduled"
    assert bworld.schedule().placed[uuid].host == "h2"
    bworld.place()
    bworld.storage_round()
    assert bworld.initiators[volume_of(bworld, uuid).id] == ("iqn.test:h2",)
    bworld.build("h2")
    assert bworld.state(uuid) == (states.ACTIVE, None, "h2")


def test_no_valid_host_gives_the_volumes_back(bworld: BootWorld) -> None:
    bworld.store()
    bworld.make("golden", image="cirros")
    (uuid,) = bworld.accept(
        volume_request("web", device("volume", "golden", 0), device("blank", volume_size=1))
    ).created
    made = volume_of(bworld, uuid, 1).id
    assert bworld.status("golden") == "attaching"
    assert bworld.schedule().failed == [uuid]
    assert (bworld.status("golden"), bworld.live_attachments()) == ("available", [])
    assert bworld.status(made) == "deleted"  # it never got as far as a backend


# --- deleting -----------------------------------------------------------------------------------------------------------


def test_deleting_an_instance(bworld: BootWorld) -> None:
    bworld.report("h1")
    bworld.store()
    bworld.make("keep", size=1)
    (uuid,) = bworld.boot_of(volume_request("web", from_image(delete_on_termination=True), device("volume", "keep")))
    gone = volume_of(bworld, uuid).id
    bworld.delete(uuids=[uuid])
    assert bworld.ends(gone) == ("detached", "done", "done")
    assert bworld.status("keep") == "detaching"
    assert bworld.unexport(run="d") == []  # the guest may still write
    bworld.disconnect("h1", [uuid], "d")
    bworld.removed("h1", [uuid])
    done, left = bworld.finish()
    assert done == [] and left[0]["host"] == "s1"
    bworld.storage_round("d")
    assert bworld.finish() == (["web"], [])
    assert (bworld.status("keep"), bworld.volume("keep").attach_status) == ("available", "detached")
    assert bworld.status(gone) == "deleted"
    assert bworld.storage["s1"].there["lvm"].keys() == {bworld.volume("keep").id}
    assert bworld.disks(uuid) == []


@pytest.mark.parametrize("needed_by", ["a snapshot", "a reader"])
def test_a_volume_that_snapshots_or_readers_need_stays_when_its_instance_goes(
    bworld: BootWorld, needed_by: str
) -> None:
    """As in Nova, where Cinder refuses to delete it. It ended in error_deleting, from which only a deletion leads out."""
    bworld.report("h1")
    bworld.store()
    (uuid,) = bworld.boot_of(volume_request("web", from_image(delete_on_termination=True)))
    root = volume_of(bworld, uuid).id
    if needed_by == "a snapshot":
        bworld.snapshot({"name": "monday", "volume": root, "force": True}, run="s")
        bworld.work("s1", "s")
    else:
        bworld.request({"name": "copy", "source_volid": root}, run="s")
    assert bworld.delete(uuids=[uuid]).volumes == {}
    bworld.disconnect("h1", [uuid], "d")
    bworld.removed("h1", [uuid])
    bworld.storage_round("d")
    assert bworld.finish() == (["web"], [])
    row = bworld.volume(root)
    assert (row.status, row.attach_status, bworld.live_attachments()) == ("available", "detached", [])
    with bworld.ledger.read() as tx:
        (left,) = delete.volumes_left(tx, [uuid])
    assert (left["id"], left["status"], left["fault"]["code"]) == (root, "available", "VolumeIsBusy")
    assert ("monday" if needed_by == "a snapshot" else "copy") in left["fault"]["message"]
    assert bworld.events(root)[-1] == ("delete", None, "Error")


def test_deleting_while_it_is_built(bworld: BootWorld) -> None:
    bworld.report("h1")
    bworld.store()
    for until in ("accepted", "exported", "networking", "block_device_mapping", "spawning"):
        if until == "accepted":
            (uuid,) = bworld.accept(volume_request("web", from_image(delete_on_termination=True))).created
        else:
            (uuid,) = bworld.boot_of(volume_request("web", from_image(delete_on_termination=True)), until=until)
        volume = volume_of(bworld, uuid).id
        assert bworld.delete_all(uuid) == (["web"], [])
        assert bworld.status(volume) == "deleted"
        assert bworld.storage["s1"].there["lvm"] == {}
        # the late worker has nothing to connect any more
        assert bworld.connect("h1", [uuid]) == set()


def test_deleting_by_force_while_a_host_is_away(bworld: BootWorld) -> None:
    bworld.report("h1")
    bworld.store()
    (uuid,) = bworld.boot_of(volume_request("web", from_image(delete_on_termination=True)))
    volume = volume_of(bworld, uuid).id
    bworld.delete(uuids=[uuid])
    assert bworld.finish(force=True) == (["web"], [])
    assert bworld.ends(volume) == ("detached", "done", "done")
    with bworld.ledger.write() as tx:
        bworld.connections.clear()
        cleanup.finish(tx, {"h1": [uuid]})
    bworld.storage_round("z")
    assert bworld.status(volume) == "deleted" and bworld.live_attachments() == []


@pytest.mark.parametrize("known", [True, False])
def test_a_volume_on_a_compute_host_that_is_lost_is_free_again(bworld: BootWorld, known: bool) -> None:
    """Who deletes its instance by force, and says that the host is down, before or after that, has the volume back."""
    bworld.report("h1")
    bworld.store()
    data = bworld.make("data", size=1)
    (uuid,) = bworld.boot_of(volume_request("web", device("volume", data), image=IMAGE))
    bworld.down = ["h1"]

    def force_down() -> None:
        with bworld.ledger.write() as tx:
            life.cut_off_ended(tx.for_run(bworld.context("f")), ["h1"])
            service_state.set_state(tx.for_run(bworld.context("f")), ["h1"], service_state.FORCED_DOWN)

    if known:
        force_down()
    bworld.delete(uuids=[uuid])
    assert bworld.finish(force=True) == (["web"], [])
    if not known:
        bworld.storage_round("z")
        assert bworld.ends("data") == ("detached", "done", "done"), "the host may use it"
        force_down()
    bworld.asked.clear()
    bworld.storage_round("y")
    assert (
        bworld.asked == [("absent", data)] and bworld.live_attachments() == [] and bworld.status("data") == "available"
    )
    assert bworld.cleanups() == {(uuid, "h1")}


# --- zones --------------------------------------------------------------------------------------------------------------


def test_without_cross_az_attach(bworld: BootWorld) -> None:
    bworld.cross_az_attach = False
    bworld.report("h1", memory=9, availability_zone="north")
    bworld.report("h2", memory=2, availability_zone="south")
    bworld.store("s1", configuration={"availability_zone": "north"})
    bworld.store("s2", configuration={"availability_zone": "south"})
    bworld.make("southern", image="cirros", availability_zone="south")
    found = refused(bworld, volume_request("a", device("volume", "southern", 0), availability_zone="north"))
    assert found[0][:2] == ("instances[0].block_device_mapping[0]", "MismatchVolumeAZException")
    assert "not in the same availability zone. Server is in: north. Volumes are in: south." in found[0][2]
    bworld.make("northern", size=1, availability_zone="north")
    both = [device("volume", "southern", 0), device("volume", "northern")]
    ((path, code, message),) = refused(bworld, volume_request("a", *both))
    assert (path, code) == ("instances[0].block_device_mapping[1]", "MismatchVolumeAZException")
    assert "Volumes are in different availability zones: south,north." in message
    used, made = bworld.boot_of(
        volume_request("used", device("volume", "southern", 0)), volume_request("made", from_image())
    )
    assert bworld.row(used).host == "h2"
    assert bworld.row(made).host == "h1"
    assert volume_of(bworld, made).pool_host == "s1@lvm#lvm"
    assert volume_of(bworld, made).availability_zone == "north"


def test_what_is_made_is_made_in_the_zone_of_what_exists(bworld: BootWorld) -> None:
    bworld.cross_az_attach = False
    bworld.report("h2", availability_zone="south")
    bworld.store("s1", configuration={"availability_zone": "north"})
    bworld.store("s2", configuration={"availability_zone": "south"})
    bworld.make("southern", size=1, availability_zone="south")
    (uuid,) = bworld.boot_of(volume_request("web", from_image(), device("volume", "southern")))
    assert bworld.state(uuid)[0] == states.ACTIVE
    assert [volume_of(bworld, uuid, i).availability_zone for i in (0, 1)] == ["south", "south"]


def test_a_rescheduled_build_stays_in_the_zone_of_its_volume(bworld: BootWorld) -> None:
    bworld.cross_az_attach = False
    bworld.report("h1", memory=9, availability_zone="north")
    bworld.report("h2", memory=8, availability_zone="south")
    bworld.report("h3", memory=2, availability_zone="north")
    bworld.store("s1", configuration={"availability_zone": "north"})
    (uuid,) = bworld.boot_of(volume_request("web", from_image()), until="networking")
    assert bworld.fail("h1", uuid, ELSEWHERE, event="networking") == "rescheduled"
    assert bworld.schedule().placed[uuid].host == "h3"


def test_with_cross_az_attach_zones_do_not_matter(bworld: BootWorld) -> None:
    bworld.report("h1", availability_zone="north")
    bworld.store("s2", configuration={"availability_zone": "south"})
    bworld.make("southern", image="cirros", availability_zone="south")
    (uuid,) = bworld.boot_of(volume_request("used", device("volume", "southern", 0), availability_zone="north"))
    assert bworld.state(uuid)[0] == states.ACTIVE
