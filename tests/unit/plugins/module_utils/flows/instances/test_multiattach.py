# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes that several instances have: on one host, on several, by one run and by many. The world refuses a login with
credentials that its run does not know. source: Cinder's _attachment_reserve; Nova's multiattach"""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import attach as volume_attach
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import attachments
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage.attachments import Connector
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld, device, volume_request
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE

from .test_attach import finish, host_work, refused, uuid_of

A = volume_tables.volume_attachments.c


@pytest.fixture
def trio(bworld: BootWorld) -> BootWorld:
    """Instances "web" and "near" on h1, "far" on h2, and the volume "data" that several may have."""
    bworld.report("h1", memory=9)
    bworld.report("h2", memory=9)
    bworld.store()
    bworld.make("data", size=2, multiattach=True)
    for name, host in (("web", "h1"), ("near", "h1"), ("far", "h2")):
        bworld.boot_of(volume_request(name, image=IMAGE, forced_host=host))
    return bworld


def attach(world: BootWorld, *names: str, run: str = "v") -> None:
    world.attach(*({"instance": name, "volume": "data"} for name in names), run=run)
    world.storage_round(run)
    for host in ("h1", "h2"):
        host_work(world, host, run)
    assert finish(world, volume_attach.ATTACH, run) == (["data"] * len(names), [])


def detach(world: BootWorld, *names: str, run: str = "w") -> None:
    world.detach(*({"instance": name, "volume": "data"} for name in names), run=run)
    for host in ("h1", "h2"):
        host_work(world, host, run)
    world.storage_round(run)
    assert finish(world, volume_attach.DETACH, run) == (["data"] * len(names), [])


def credentials(world: BootWorld) -> dict[str, str]:
    return world.credentials.get(world.volume("data").id, {})


def of(world: BootWorld, name: str) -> t.Any:
    (row,) = world.rows(volume_tables.volume_attachments, A.instance_uuid == uuid_of(world, name), A.deleted == "")
    return row


H1, H2 = "iqn.test:h1", "iqn.test:h2"


def test_instances_of_several_hosts_each_with_its_own_credentials(trio: BootWorld) -> None:
    attach(trio, "web", run="v")
    assert credentials(trio) == {H1: "v"}
    attach(trio, "far", run="w")
    assert credentials(trio) == {H1: "v", H2: "w"}, "the first one's stay"
    assert (trio.status("data"), trio.volume("data").attach_status) == ("in-use", "attached")
    detach(trio, "web", run="x")
    assert credentials(trio) == {H2: "w"} and trio.connections == {("h2", trio.volume("data").id)}
    assert (trio.status("data"), trio.volume("data").attach_status) == ("in-use", "attached")
    detach(trio, "far", run="y")
    assert credentials(trio) == {} and trio.asked[-1] == ("absent", trio.volume("data").id)
    assert (trio.status("data"), trio.volume("data").attach_status) == ("available", "detached")
    assert trio.connections == set() and trio.live_attachments() == []


def test_a_second_instance_of_a_host_uses_the_session_of_the_first(trio: BootWorld) -> None:
    attach(trio, "web", run="v")
    attach(trio, "near", run="w")
    assert credentials(trio) == {H1: "v"} and len(trio.connections) == 1
    attach(trio, "far", run="x")
    detach(trio, "web", run="y")
    assert credentials(trio) == {H1: "v", H2: "x"}, "near still uses it"
    assert ("h1", trio.volume("data").id) in trio.connections
    attach(trio, "web", run="z")
    assert credentials(trio) == {H1: "v", H2: "x"}
    detach(trio, "near", "web", "far", run="q")
    assert credentials(trio) == {} and trio.status("data") == "available" and trio.connections == set()


def test_one_run_gives_it_to_all(trio: BootWorld) -> None:
    attach(trio, "web", "near", "far", run="v")
    assert credentials(trio) == {H1: "v", H2: "v"} and trio.status("data") == "in-use"
    detach(trio, "near", "far", run="w")
    assert credentials(trio) == {H1: "v"} and trio.status("data") == "in-use"


def test_where_qemu_logs_in_each_guest_has_a_name_of_its_own(trio: BootWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trio, "end", lambda host, facts: Connector(host, "iqn.test:" + host, "qemu"))
    attach(trio, "web", run="v")
    attach(trio, "near", run="w")
    names = {name: "iqn.2026-01.compute.bootflow:" + of(trio, name).id for name in ("web", "near")}
    assert credentials(trio) == {names["web"]: "v", names["near"]: "w"}
    detach(trio, "web", run="x")
    assert credentials(trio) == {names["near"]: "w"}


def test_two_instances_of_one_boot_share_a_volume(trio: BootWorld) -> None:
    uuids = trio.boot_of(
        volume_request("one", device(uuid="data", delete_on_termination=True), image=IMAGE, forced_host="h1"),
        volume_request("two", device(uuid="data"), image=IMAGE, forced_host="h2"),
        run="v",
    )
    assert credentials(trio) == {H1: "v", H2: "v"} and trio.status("data") == "in-use"
    trio.delete_all(uuids[0])
    assert credentials(trio) == {H2: "v"}, "not deleted with the first: the second has it"
    assert (trio.status("data"), trio.volume("data").attach_status) == ("in-use", "attached")
    trio.delete_all(uuids[1])
    assert trio.status("data") == "available" and credentials(trio) == {}


def test_a_boot_of_several_from_one_entry_is_refused_as_nova_does(trio: BootWorld) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        trio.accept(volume_request("many", device(uuid="data"), image=IMAGE, count=2))
    assert "Cannot attach one or more volumes to multiple instances" in str(caught.value.errors)


def test_an_instance_has_it_once(trio: BootWorld) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        trio.accept(volume_request("one", device(uuid="data"), device(uuid="data"), image=IMAGE))
    assert "already attached" in str(caught.value.errors)
    attach(trio, "web")
    assert trio.attach({"instance": "web", "volume": "data"}, run="w").unchanged == ["data"]
    twice = [{"instance": "far", "volume": "data"}] * 2
    assert "named twice" in refused(trio, trio.attach, *twice, run="w")[0][2]


def test_one_run_at_a_time(trio: BootWorld) -> None:
    attach(trio, "web", run="v")
    trio.attach({"instance": "near", "volume": "data"}, run="v")
    for step in (trio.attach, trio.detach):
        found = refused(trio, step, {"instance": "far" if step == trio.attach else "near", "volume": "data"}, run="w")
        assert [code for _path, code, _message in found] == ["VolumeLocked"]
    with pytest.raises(errors.InvalidRequest) as caught:
        trio.accept(volume_request("new", device(uuid="data"), image=IMAGE), run="w")
    assert [e["code"] for e in caught.value.errors] == ["VolumeLocked"]
    trio.storage_round("v")
    host_work(trio, "h1", "v")
    assert finish(trio, volume_attach.ATTACH)[1] == []
    trio.detach({"instance": "web", "volume": "data"}, run="v")
    found = refused(trio, trio.attach, {"instance": "far", "volume": "data"}, run="w")
    assert [code for _path, code, _message in found] == ["VolumeLocked"]


def test_what_a_dead_run_left_is_exported_anew_for_it_alone(trio: BootWorld) -> None:
    attach(trio, "web", run="v")
    trio.attach({"instance": "far", "volume": "data"}, run="w")
    trio.storage_round("w")
    assert credentials(trio) == {H1: "v", H2: "w"}
    trio.time += 1e6
    attach(trio, "far", run="x")
    assert credentials(trio) == {H1: "v", H2: "x"}


def test_one_that_cannot_be_attached_leaves_the_others(trio: BootWorld) -> None:
    attach(trio, "web", run="v")
    trio.attach({"instance": "near", "volume": "data"}, {"instance": "far", "volume": "data"}, run="w")
    trio.storage_round("w")
    host_work(trio, "h2", "w")
    error = errors.DeviceDetachFailed(device="vdb", reason="no")
    with trio.ledger.write() as tx:
        rows = volume_attach.to_attach(tx.for_run(trio.context("w")), "h1")
        volume_attach.failed(tx.for_run(trio.context("w")), {r.id: error for r in rows})
    trio.storage_round("w")
    done, left = finish(trio, volume_attach.ATTACH, "w")
    assert (done, left) == (["data"], [("data", "DeviceDetachFailed")])
    assert credentials(trio) == {H1: "v", H2: "w"} and trio.status("data") == "in-use"
    assert sorted(r.instance_uuid for r in trio.live_attachments()) == sorted(
        uuid_of(trio, name) for name in ("web", "far")
    )


def test_while_one_has_it_the_volume_cannot_be_deleted_and_grows_for_all(trio: BootWorld) -> None:
    attach(trio, "web", "far", run="v")
    detach(trio, "web", run="w")
    attach(trio, "near", run="x")
    with pytest.raises(errors.InvalidVolume, match="must not be migrating, attached"):
        trio.remove("data", run="y")
    extending = trio.extend("data", 3, run="z")
    assert sorted(extending.compute_hosts) == ["h1", "h2"]
    trio.storage_round("z")
    with trio.ledger.read() as tx:
        grown = [r for host in ("h1", "h2") for r in attachments.to_rescan(tx, host)]
    assert {r.instance_uuid for r in grown} == {uuid_of(trio, "near"), uuid_of(trio, "far")}
    assert (trio.status("data"), trio.volume("data").size) == ("in-use", 3)


def test_one_may_write_and_another_only_read(trio: BootWorld) -> None:
    attach(trio, "web", run="v")
    trio.attach({"instance": "far", "volume": "data", "mode": "ro"}, run="w")
    assert of(trio, "far").attach_mode == "ro" and of(trio, "web").attach_mode == "rw"
