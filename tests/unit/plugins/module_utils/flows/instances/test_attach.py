# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes that instances get and lose while they live, without a host."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import life
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import attach as volume_attach
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Operation
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import leases
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances, runs
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables, volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import attachments
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage.attachments import Connector
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import (
    BootWorld,
    device,
    from_image,
    volume_request,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE

REFUSED = errors.DeviceDetachFailed(device="vdb", reason="the guest did not answer")


@pytest.fixture
def pair(bworld: BootWorld) -> BootWorld:
    """An instance "web" that runs, and a volume "data"."""
    bworld.report("h1", memory=9)
    bworld.store()
    bworld.make("data", size=2)
    bworld.boot_of(volume_request("web", image=IMAGE))
    return bworld


def uuid_of(world: BootWorld, name: str = "web") -> str:
    c = tables.instances.c
    return str(world.rows(tables.instances, c.display_name == name, c.deleted == "")[0].uuid)


def host_work(world: BootWorld, host: str = "h1", run: str = "v", fail: t.Any = None) -> None:
    """What compute_attachments does. :arg fail: why the guest does not do it."""
    context = world.context(run)
    with world.ledger.read() as tx:
        attach = volume_attach.to_attach(tx.for_run(context), host)
        detach = volume_attach.to_detach(tx.for_run(context), host)
    if attach:
        world.connect(host, [r.instance_uuid for r in attach], run)
    with world.ledger.write() as tx:
        if fail is not None and attach:
            world.connections -= {(host, r.volume_id) for r in attach}
            life.disconnected(tx.for_run(context), [r.id for r in attach])
            volume_attach.failed(tx.for_run(context), {r.id: fail for r in attach})
        elif attach:
            life.attached(tx.for_run(context), [r.id for r in attach])
        if fail is not None and detach:
            volume_attach.failed(tx.for_run(context), {r.id: fail for r in detach})
        elif detach:
            ids, uuids = [r.volume_id for r in detach], [r.instance_uuid for r in detach]
            gone = set(ids) - attachments.shared_on(tx, host, ids, uuids)
            world.connections -= {(host, volume) for volume in gone}
            life.disconnected(tx.for_run(context), [r.id for r in detach])


def finish(world: BootWorld, its: Operation, run: str = "v") -> tuple[list[str], list[tuple[str, str | None]]]:
    """(volumes done, (volume, code of its error) left)"""
    with world.ledger.write() as tx:
        done, left = volume_attach.finish(tx.for_run(world.context(run)), its)
    return [d["volume"] for d in done], [(v["volume"], (v["error"] or {}).get("code")) for v in left]


def told(world: BootWorld, uuid: str) -> list[tuple[str, t.Any]]:
    """The notifications of volumes that the instance was given, or that were taken from it."""
    rows = world.rows(tables.notifications, tables.notifications.c.instance_uuid == uuid)
    return [(r.event_type, r.payload) for r in rows if r.event_type.startswith("compute.instance.volume.")]


def attach(world: BootWorld, *wishes: t.Any, run: str = "v") -> volume_attach.Begun:
    """From the wish to the guest."""
    begun = world.attach(*wishes, run=run)
    world.storage_round(run)
    host_work(world, run=run)
    done, left = finish(world, volume_attach.ATTACH, run)
    assert (len(done), left) == (len(begun.rows), [])
    return begun


def refused(world: BootWorld, step: t.Any, *wishes: t.Any, **how: t.Any) -> list[tuple[str, str, str]]:
    before = world.everything()
    with pytest.raises(errors.InvalidRequest) as caught:
        step(*wishes, **how)
    assert world.everything() == before
    return [(e["path"], e["code"], e["message"]) for e in caught.value.errors]


WISH = {"instance": "web", "volume": "data"}


def test_attached_and_detached(pair: BootWorld) -> None:
    uuid = uuid_of(pair)
    begun = pair.attach(WISH, run="v")
    (row,) = begun.rows
    assert (begun.hosts, begun.storage_hosts, begun.unchanged) == (["h1"], ["s1"], [])
    assert (row.mountpoint, row.attached_host, row.initiator) == ("/dev/vdb", "h1", "iqn.test:h1")
    assert pair.status("data") == "attaching"
    host_work(pair)  # nothing is exported yet
    assert pair.ends("data") == ("attaching", "none", "none")
    pair.storage_round("v")
    host_work(pair)
    assert finish(pair, volume_attach.ATTACH) == (["data"], [])
    assert pair.ends("data") == ("attached", "done", "done")
    volume = pair.volume("data")
    assert (volume.status, volume.attach_status, volume.run_id) == ("in-use", "attached", None)
    disk = pair.disks(uuid)[-1]
    assert (disk["kind"], disk["volume_id"], disk["serial"], disk["name"]) == ("volume", *[volume.id] * 3)
    assert (disk["device_name"], disk["disk_bus"], disk["boot_index"], disk["size_gb"]) == (
        "/dev/vdb",
        "virtio",
        None,
        2,
    )
    (event,) = [e for e in pair.events(volume.id) if e[0] == "attach_volume"]
    assert event == ("attach_volume", "h1", "Success")
    assert told(pair, uuid) == [("compute.instance.volume.attach", {"host": "h1", "volume_id": volume.id})]

    begun = pair.detach({"volume": "data"}, run="w")
    assert (begun.hosts, [r.id for r in begun.rows], pair.status("data")) == (["h1"], [row.id], "detaching")
    assert pair.unexport(run="w") == []
    host_work(pair, run="w")
    assert pair.ends("data") == ("detached", "ending", "none")
    assert pair.disks(uuid)[-1]["kind"] == "image"
    pair.storage_round("w")
    assert finish(pair, volume_attach.DETACH, "w") == (["data"], [])
    volume = pair.volume("data")
    assert (volume.status, volume.attach_status, pair.live_attachments()) == ("available", "detached", [])
    messages = [a.message for a in pair.rows(tables.instance_actions) if a.action != "create"]
    assert messages == [None, None]
    assert told(pair, uuid)[1:] == [("compute.instance.volume.detach", {"host": "h1", "volume_id": volume.id})]


def test_the_same_again_is_unchanged(pair: BootWorld) -> None:
    attach(pair, WISH)
    before = pair.everything()
    begun = pair.attach(WISH, run="w")
    assert (begun.rows, begun.unchanged, begun.hosts, begun.storage_hosts) == ([], ["data"], [], [])
    assert pair.everything() == before
    ids = {"instance": uuid_of(pair).upper(), "volume": pair.volume("data").id.upper()}
    assert pair.attach({**WISH, **ids}, run="w").unchanged == ["data"], "UUIDs may have capitals"
    pair.make("free", size=1)
    begun = pair.detach({"volume": "free"}, run="w")
    assert (begun.rows, begun.unchanged) == ([], ["free"])


def test_names_buses_and_modes(pair: BootWorld) -> None:
    for name in ("a", "b", "c", "d"):
        pair.make(name, size=1)
    attach(
        pair,
        {**WISH, "device": "/dev/vdf", "mode": "ro"},
        {"instance": "web", "volume": "a"},
        {"instance": "web", "volume": "b", "disk_bus": "scsi"},
        {"instance": "web", "volume": "c", "delete_on_termination": True},
    )
    names = {n: pair.attachment(n).mountpoint for n in ("data", "a", "b", "c")}
    # sda may be the config drive's
    assert names == {"data": "/dev/vdf", "a": "/dev/vdb", "b": "/dev/sdb", "c": "/dev/vdc"}
    assert pair.attachment("data").attach_mode == "ro"
    assert pair.attachment("c").delete_on_termination
    found = refused(pair, pair.attach, {"instance": "web", "volume": "d", "device": "vdb"}, run="w")
    assert found == [("attachments[0]", "DevicePathInUse", "The supplied device path (/dev/vdb) is in use.")]
    found = refused(
        pair, pair.attach, {"instance": "web", "volume": "d", "device": "/dev/vdg", "disk_bus": "scsi"}, run="w"
    )
    assert found[0][1] == "InvalidBDM"
    # deleting the instance takes c along, and nothing else
    pair.delete_all(uuid_of(pair))
    assert [pair.status(n) for n in ("data", "a", "b", "c")] == ["available"] * 3 + ["deleted"]


def test_detaching_never_deletes(pair: BootWorld) -> None:
    attach(pair, {**WISH, "delete_on_termination": True})
    pair.detach(WISH, run="w")
    host_work(pair, run="w")
    pair.storage_round("w")
    assert pair.status("data") == "available"


def test_all_that_is_wrong_at_once(pair: BootWorld) -> None:
    pair.make("other", size=1)
    pair.boot_of(volume_request("off", image=IMAGE), until="networking")
    attach(pair, WISH)
    wishes = [
        {"instance": "none-such", "volume": "other"},
        {"instance": "web", "volume": "none-such"},
        {"volume": "other"},
        {"instance": "web", "volume": "other", "mode": "wr"},
        {"instance": "web", "volume": "other", "bogus": 1},
        "web",
        {"instance": "off", "volume": "other"},
        {"instance": "web", "volume": "data", "device": "/dev/vdq"},
        {"instance": "web", "volume": "other"},
        {"instance": "web", "volume": "a\0b"},
    ]
    found = refused(pair, pair.attach, *wishes, run="w")
    assert sorted((path, code) for path, code, _m in found) == [
        ("attachments[0].instance", "InstanceNotFound"),
        ("attachments[1].volume", "VolumeNotFound"),
        ("attachments[2]", "InvalidInput"),
        ("attachments[3]", "InvalidVolumeAttachMode"),
        ("attachments[4]", "InvalidInput"),
        ("attachments[5]", "InvalidInput"),
        ("attachments[6]", "InstanceInvalidState"),
        ("attachments[7]", "InvalidVolume"),
        ("attachments[8].volume", "InvalidInput"),
        ("attachments[9]", "InvalidInput"),
    ]


def test_what_cannot_begin_keeps_no_other_from_its_own(pair: BootWorld) -> None:
    pair.make("other", size=1)
    pair.boot_of(volume_request("locked", image=IMAGE))
    with pair.ledger.write() as tx:
        tx.execute(tables.instances.update().where(tables.instances.c.display_name == "locked").values(locked_by="bob"))
    wishes = [{"instance": "locked", "volume": "other"}, WISH]
    begun = pair.attach(*wishes, run="v")
    assert [r.volume_id for r in begun.rows] == [pair.volume("data").id] and pair.status("other") == "available"
    assert [(r.request.path, r.error.code) for r in begun.refused] == [("attachments[0]", "InstanceIsLocked")]
    pair.storage_round("v")
    host_work(pair)
    assert finish(pair, volume_attach.ATTACH) == (["data"], [])

    wishes.append({"instance": "web", "volume": "nix"})
    assert len(refused(pair, pair.attach, *wishes, run="w")) == 2, "a wrong request begins nothing"
    assert [c for _path, c, _message in refused(pair, pair.attach, wishes[0], run="w")] == ["InstanceIsLocked"]
    with pair.ledger.write() as tx:
        tx.execute(tables.instances.update().where(tables.instances.c.display_name == "locked").values(locked_by=None))
    attach(pair, wishes[0], run="x")
    with pair.ledger.write() as tx:
        tx.execute(tables.instances.update().where(tables.instances.c.display_name == "locked").values(locked_by="bob"))
    begun = pair.detach({"volume": "other"}, {"volume": "data"}, run="y")
    assert [r.volume_id for r in begun.rows] == [pair.volume("data").id] and pair.status("other") == "in-use"
    assert [r.error.code for r in begun.refused] == ["InstanceIsLocked"]


@pytest.mark.parametrize("what", ["connector", "inventory"])
def test_a_host_that_cannot_take_a_volume_keeps_no_other_from_it(pair: BootWorld, what: str) -> None:
    pair.make("other", size=1)
    pair.report("h2", memory=9)
    (far,) = pair.boot_of(volume_request("far", image=IMAGE))
    where = pair.row(far).host
    other = {"h1": "h2", "h2": "h1"}[where]
    assert pair.row(uuid_of(pair)).host == other, "h2 has more room"

    def end(host: str, facts: t.Any) -> Connector:
        if what == "connector" and host == where:
            raise errors.HostLacksHardware(host=host, model="iSCSI initiator", reason="it has none")
        return pair.end(host, facts)

    def reach(hosts: t.Sequence[str]) -> None:
        if what == "inventory" and where in hosts:
            raise errors.DriverNotInitialized(message="it is not in the inventory")

    wishes = [{"instance": "far", "volume": "other"}, WISH]
    with pair.ledger.write() as tx:
        begun = volume_attach.begin_attach(tx.for_run(pair.context("v")), wishes, "default", end, True, reach)
    assert begun.hosts == [other] and [r.mountpoint for r in begun.rows] == ["/dev/vdb"]
    code = {"connector": "HostLacksHardware", "inventory": "DriverNotInitialized"}[what]
    assert [r.error.code for r in begun.refused] == [code] and len(pair.disks(far)) == 1


def test_an_instance_that_is_locked_or_being_worked_on(pair: BootWorld) -> None:
    attach(pair, WISH)
    pair.make("other", size=1)
    busy = {"locked_by": None, "task_state": states.POWERING_OFF, "run_id": "run-z"}
    for values, code in (({"locked_by": "bob"}, "InstanceIsLocked"), (busy, "InstanceBusy")):
        with pair.ledger.write() as tx:
            runs.renew(tx.for_run(pair.context("z")))
            tx.execute(tables.instances.update().values(**values))
        for begin, wish in ((pair.attach, {**WISH, "volume": "other"}), (pair.detach, WISH)):
            assert [c for _path, c, _message in refused(pair, begin, wish, run="w")] == [code]
    pair.time += 601  # run z is dead
    ((_path, code, message),) = refused(pair, pair.detach, WISH, run="w")
    assert code == "InstanceInvalidState" and "powering-off" in message


def test_a_root_volume_stays(pair: BootWorld) -> None:
    (uuid,) = pair.boot_of(volume_request("bfv", from_image()))
    volume = pair.disks(uuid)[0]["volume_id"]
    ((path, code, message),) = refused(pair, pair.detach, {"volume": volume}, run="w")
    assert (path, code, message) == ("attachments[0]", "CannotDetachRootVolume", "Cannot detach a root device volume")


def test_a_volume_of_another_zone(pair: BootWorld) -> None:
    pair.cross_az_attach = False
    pair.store("s2", configuration={"availability_zone": "south"})
    pair.make("far", size=1, availability_zone="south")
    ((_path, code, message),) = refused(pair, pair.attach, {"instance": "web", "volume": "far"}, run="w")
    assert code == "InvalidVolume" and "Instance is in nova. Volume is in south" in message


def test_a_guest_that_does_not_take_it(pair: BootWorld) -> None:
    uuid = uuid_of(pair)
    pair.attach(WISH, run="v")
    pair.storage_round("v")
    host_work(pair, fail=REFUSED)
    assert pair.ends("data") == ("detached", "ending", "none")
    assert len(pair.disks(uuid)) == 1
    pair.storage_round("v")
    assert finish(pair, volume_attach.ATTACH) == ([], [("data", "DeviceDetachFailed")])
    assert (pair.status("data"), pair.live_attachments()) == ("available", [])
    assert [a.message for a in pair.rows(tables.instance_actions) if a.action == "attach_volume"] == ["Error"]
    attach(pair, WISH, run="w")


@pytest.mark.parametrize("bad", ["data", "more"])
def test_one_of_two_volumes_that_a_guest_does_not_take(pair: BootWorld, bad: str) -> None:
    """The instance's action failed, whichever of them comes first."""
    pair.make("more", size=1)
    pair.attach(WISH, {"instance": "web", "volume": "more"}, run="v")
    pair.storage_round("v")
    context = pair.context("v")
    with pair.ledger.read() as tx:
        rows = volume_attach.to_attach(tx.for_run(context), "h1")
    failing = [r for r in rows if r.volume_id == pair.volume(bad).id]
    pair.connect("h1", [r.instance_uuid for r in rows], "v")
    pair.connections -= {("h1", r.volume_id) for r in failing}
    with pair.ledger.write() as tx:
        life.attached(tx.for_run(context), [r.id for r in rows if r not in failing])
        life.disconnected(tx.for_run(context), [r.id for r in failing])
        volume_attach.failed(tx.for_run(context), {r.id: REFUSED for r in failing})
    (good,) = {"data", "more"} - {bad}
    assert finish(pair, volume_attach.ATTACH) == ([good], [(bad, "DeviceDetachFailed")])
    assert [a.message for a in pair.rows(tables.instance_actions) if a.action == "attach_volume"] == ["Error"]


def test_an_export_that_fails(pair: BootWorld) -> None:
    pair.attach(WISH, run="v")
    pair.storage_round("v", fail_export=errors.ISCSITargetCreateFailed(volume_id="v"))
    host_work(pair)
    assert finish(pair, volume_attach.ATTACH) == ([], [("data", "ISCSITargetCreateFailed")])
    pair.storage_round("z")  # what is left is anybody's
    assert (pair.status("data"), pair.live_attachments(), len(pair.disks(uuid_of(pair)))) == ("available", [], 1)


def test_hosts_that_were_not_asked(pair: BootWorld) -> None:
    pair.attach(WISH, run="v")
    assert finish(pair, volume_attach.ATTACH) == ([], [("data", None)])
    assert (pair.status("data"), pair.live_attachments()) == ("available", [])
    attach(pair, WISH)
    pair.detach(WISH, run="w")
    assert finish(pair, volume_attach.DETACH, "w") == ([], [("data", None)])
    assert (pair.status("data"), pair.ends("data")) == ("in-use", ("attached", "done", "done"))


def test_a_guest_that_does_not_let_go(pair: BootWorld) -> None:
    attach(pair, WISH)
    pair.detach(WISH, run="w")
    host_work(pair, run="w", fail=REFUSED)
    assert finish(pair, volume_attach.DETACH, "w") == ([], [("data", "DeviceDetachFailed")])
    assert (pair.status("data"), pair.ends("data")) == ("in-use", ("attached", "done", "done"))
    assert len(pair.disks(uuid_of(pair))) == 2


@pytest.mark.parametrize("killed", ["begun", "exported", "connected"])
def test_a_killed_attach_goes_on_in_the_next_run(pair: BootWorld, killed: str) -> None:
    pair.attach(WISH, run="v")
    if killed != "begun":
        pair.storage_round("v")
    if killed == "connected":
        pair.connect("h1", [uuid_of(pair)], "v")
    ((_path, code, _m),) = refused(pair, pair.attach, WISH, run="w")
    assert code == "VolumeLocked"
    pair.time += 1e6
    begun = attach(pair, WISH, run="w")
    assert len(begun.rows) == 1
    assert (pair.status("data"), pair.ends("data")) == ("in-use", ("attached", "done", "done"))
    assert len(pair.disks(uuid_of(pair))) == 2


def test_two_runs_at_one_instance(pair: BootWorld) -> None:
    pair.make("more", size=1)
    pair.attach(WISH, run="v")
    pair.attach({"instance": "web", "volume": "more"}, run="w")
    assert {r.volume_id: r.run_id for r in pair.live_attachments()} == {
        pair.volume("data").id: "run-v",
        pair.volume("more").id: "run-w",
    }
    for run, name in (("w", "more"), ("v", "data")):
        pair.storage_round(run)
        host_work(pair, run=run)
        assert finish(pair, volume_attach.ATTACH, run) == ([name], [])
    assert [d["device_name"] for d in pair.disks(uuid_of(pair))] == ["/dev/vda", "/dev/vdb", "/dev/vdc"]


@pytest.mark.parametrize("killed", ["begun", "disconnected"])
def test_a_killed_detach_goes_on_in_the_next_run(pair: BootWorld, killed: str) -> None:
    attach(pair, WISH)
    pair.detach(WISH, run="v")
    if killed == "disconnected":
        host_work(pair)
    ((_path, code, _m),) = refused(pair, pair.detach, WISH, run="w")
    assert code == "VolumeLocked"
    pair.time += 1e6
    assert len(pair.detach(WISH, run="w").rows) == 1
    host_work(pair, run="w")
    pair.storage_round("w")
    assert finish(pair, volume_attach.DETACH, "w") == (["data"], [])
    assert (pair.status("data"), pair.live_attachments()) == ("available", [])


@pytest.mark.parametrize("killed", ["begun", "exported", "connected"])
def test_a_killed_attach_is_undone_by_a_detach(pair: BootWorld, killed: str) -> None:
    pair.attach(WISH, run="v")
    if killed != "begun":
        pair.storage_round("v")
    if killed == "connected":
        pair.connect("h1", [uuid_of(pair)], "v")
    pair.time += 1e6
    pair.detach(WISH, run="w")
    host_work(pair, run="w")
    pair.storage_round("w")
    assert finish(pair, volume_attach.DETACH, "w") == (["data"], [])
    assert (pair.status("data"), pair.live_attachments(), len(pair.disks(uuid_of(pair)))) == ("available", [], 1)


@pytest.mark.parametrize("what", ["attach", "detach"])
def test_a_boot_gives_back_what_ended_runs_left(pair: BootWorld, what: str) -> None:
    if what == "attach":
        pair.attach(WISH, run="v")
        pair.storage_round("v")
    else:
        attach(pair, WISH)
        pair.detach(WISH, run="v")
    with pair.ledger.write() as tx:
        assert leases.expire(tx.for_run(pair.context("z"))).to_clean == []
    assert pair.attachment("data").run_id == "run-v"
    pair.time += 1e6
    with pair.ledger.write() as tx:
        assert leases.expire(tx.for_run(pair.context("z"))).to_clean == []
    pair.storage_round("z")
    assert pair.status("data") == ("available" if what == "attach" else "in-use")
    assert len(pair.disks(uuid_of(pair))) == (1 if what == "attach" else 2)


def test_deleting_the_instance_while_it_gets_a_volume(pair: BootWorld) -> None:
    uuid = uuid_of(pair)
    pair.attach(WISH, run="v")
    pair.storage_round("v")
    assert pair.delete_all(uuid) == (["web"], [])
    assert pair.status("data") == "available"
    host_work(pair)  # the late worker finds nothing
    assert finish(pair, volume_attach.ATTACH) == ([], [("data", None)])
    assert pair.status("data") == "available"


def test_an_attach_in_the_run_of_a_boot_does_not_touch_its_builds(pair: BootWorld) -> None:
    (uuid,) = pair.boot_of(volume_request("late", from_image()), until="exported", run="v")
    with pair.ledger.read() as tx:
        assert volume_attach.to_attach(tx.for_run(pair.context("v")), "h1") == []
        assert volume_attach.begun_by_others(tx.for_run(pair.context("z"))) == []
        assert instances.select_live(tx, uuids=[uuid])[0].vm_state == "building"


def test_a_volume_that_grew_is_looked_at_again(pair: BootWorld) -> None:
    attach(pair, WISH)
    with pair.ledger.write() as tx:
        tx.execute(volume_tables.volume_attachments.update().values(rescan=True))
    with pair.ledger.write() as tx:
        (row,) = attachments.to_rescan(tx, "h1")
        assert attachments.to_rescan(tx, "h2") == []
        attachments.rescanned(tx, [row.id])
        assert attachments.to_rescan(tx, "h1") == []


def test_several_instances_of_one_volume(pair: BootWorld) -> None:
    pair.report("h2", memory=2)
    (other,) = pair.accept(volume_request("other", image=IMAGE, forced_host="h2")).created
    pair.schedule()
    pair.build("h2")
    with pair.ledger.write() as tx:
        tx.execute(volume_tables.volumes.update().values(multiattach=True))
    for name, host, run in (("web", "h1", "v"), ("other", "h2", "w")):
        pair.attach({"instance": name, "volume": "data"}, run=run)
        pair.storage_round(run)
        host_work(pair, host, run)
    volume = pair.volume("data").id
    assert pair.initiators[volume] == ("iqn.test:h1", "iqn.test:h2")
    found = refused(pair, pair.detach, {"volume": "data"}, run="x")
    assert "More than one attachment" in found[0][2]
    pair.detach(WISH, run="x")
    host_work(pair, "h1", "x")
    pair.storage_round("x")
    assert pair.initiators[volume] == ("iqn.test:h2",)
    assert (pair.status("data"), pair.volume("data").attach_status) == ("in-use", "attached")
    pair.delete_all(other)
    assert (pair.status("data"), pair.initiators[volume]) == ("available", ())


def test_a_project_s_own_names(pair: BootWorld) -> None:
    found = refused(pair, lambda *w: _of_project(pair, *w), WISH)
    assert sorted(code for _p, code, _m in found) == ["InstanceNotFound", "VolumeNotFound"]


def _of_project(world: BootWorld, *wishes: t.Any) -> t.Any:
    with world.ledger.write() as tx:
        return volume_attach.begin_attach(tx.for_run(world.context("w")), wishes, "other", world.end, True)


def test_a_volume_whose_extension_failed_is_free_after_its_instance(pair: BootWorld) -> None:
    """It stayed attached for ever: it could not be deleted, and there was nothing to detach."""
    pair.attach({"instance": "web", "volume": "data"}, run="v")
    pair.storage_round("v")
    host_work(pair)
    pair.extend("data", 5, run="x")
    pair.work(run="x", data=errors.VolumeBackendAPIException(data="broken"))
    assert (pair.status("data"), pair.volume("data").attach_status) == ("error_extending", "attached")
    with pytest.raises(errors.InvalidRequest) as refused:
        pair.detach({"volume": "data"}, run="y")
    assert (
        "bootflow.compute.volume_extend for the volume again, with the present size of 2 GiB"
        in refused.value.errors[0]["remedy"]
    )
    assert pair.delete_all(uuid_of(pair)) == (["web"], [])
    row = pair.volume("data")
    assert (row.status, row.attach_status, row.previous_status) == ("error_extending", "detached", "available")
    assert [r.name for r in pair.remove("data").rows] == ["data"]


def test_the_present_size_ends_a_failed_extension(pair: BootWorld) -> None:
    pair.attach({"instance": "web", "volume": "data"}, run="v")
    pair.storage_round("v")
    host_work(pair)
    pair.extend("data", 5, run="x")
    pair.work(run="x", data=errors.VolumeBackendAPIException(data="broken"))
    pair.extend("data", 2, run="y")
    pair.work(run="y")
    assert (pair.status("data"), pair.volume("data").size) == ("in-use", 2)
    assert [a.volume_id for a in pair.detach({"volume": "data"}, run="z").rows] == [pair.volume("data").id]


@pytest.mark.parametrize("thin", [False, True])
def test_a_thick_volume_is_not_attached_while_it_is_copied(bworld: BootWorld, thin: bool) -> None:
    """The storage host copies one that nobody has as it is: what a guest wrote meanwhile was in a part of the copy."""
    bworld.report("h1", memory=9)
    bworld.store(thin=thin)
    data = bworld.make("data", size=2)
    bworld.boot_of(volume_request("web", image=IMAGE))
    bworld.request({"name": "copy", "source_volid": "data"}, run="c")
    bworld.choose("c")
    bworld.work_of(run="c")
    from_data = volume_request("db", device("volume", data), image=IMAGE)
    if not thin:
        for check in (
            lambda: bworld.attach({"instance": "web", "volume": "data"}, run="v"),
            lambda: bworld.accept(from_data),
        ):
            with pytest.raises(errors.InvalidRequest) as refused:
                check()
            (error,) = refused.value.errors
            assert error["code"] == "VolumeIsBusy" and "is being copied to copy" in error["message"]
        bworld.work(run="c")
    assert bworld.attach({"instance": "web", "volume": "data"}, run="v").rows


def test_a_copy_whose_run_died_keeps_no_volume_from_a_guest(pair: BootWorld) -> None:
    pair.request({"name": "copy", "source_volid": "data"}, run="c")
    pair.time += 3600
    assert pair.attach({"instance": "web", "volume": "data"}, run="v").rows
