# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import json
import random
import typing as t
import uuid

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import (
    BlockDevice,
    Flavor,
    ImageAccess,
    InjectedFile,
    NetworkRequest,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue_images import find_image
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import accept, whatif
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances, ports, views
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.statements import counted
from ansible_collections.bootflow.compute.tests.unit.worlds.world import (
    IMAGE,
    NET,
    SMALL,
    STAGES,
    World,
    network,
    request,
    subnet,
)


def codes(refusals: list[dict[str, t.Any]]) -> list[tuple[str, str]]:
    return [(r["path"], r["code"]) for r in refusals]


def test_one_transaction_writes_all_of_an_instance(world: World) -> None:
    flavor = Flavor(name="big", memory_mb=2048, vcpus=2, root_gb=5, ephemeral_gb=3, swap=512)
    accepted = world.accept(request("web", flavor=flavor, key_name="me"), request("db", 2))
    assert (len(accepted.created), accepted.resumed, accepted.unchanged, accepted.changed) == (3, [], [], True)
    row = world.row(accepted.created[0])
    assert (row.display_name, row.project, row.vm_state, row.task_state, row.power_state) == (
        "web",
        "default",
        states.BUILDING,
        states.SCHEDULING,
        states.NOSTATE,
    )
    assert (row.memory_mb, row.vcpus, row.root_gb, row.ephemeral_gb, row.swap_mb) == (2048, 2, 5, 3, 512)
    assert (row.host, row.node, row.retry, row.limits, row.run_id) == (None, None, None, None, "run-a")
    assert (row.reservation_id, row.user_name, row.key_name) == (accepted.reservation_id, "ann", "me")
    disks = world.rows(tables.block_device_mappings, tables.block_device_mappings.c.instance_uuid == row.uuid)
    assert [d.device_name for d in disks] == [d.disk["device_name"] for d in disks]
    assert len(disks) == 3  # root, ephemeral, swap
    names = [world.row(u).display_name for u in accepted.created]
    assert names == ["web", "db-1", "db-2"]
    assert [world.row(u).launch_index for u in accepted.created] == [0, 0, 1]
    actions = world.rows(tables.instance_actions)
    assert [(a.action, a.request_id, a.user_name, a.project, a.finish_time) for a in actions] == [
        ("create", "req-a", "ann", "default", None)
    ] * 3
    assert world.addresses() == ["10.0.1.10", "10.0.1.11", "10.0.1.12"]
    assert world.count(tables.request_specs) == 2 and world.count(tables.reservations) == 1


def test_no_secret_is_stored(world: World) -> None:
    world.accept(
        request(
            "web",
            admin_password="pass-secret",
            user_data="user-secret",
            injected_files=(InjectedFile("/a", "ZmlsZS1zZWNyZXQ="),),
        )
    )
    stored = json.dumps({k: [list(r) for r in v] for k, v in world.everything().items()}, default=str)
    assert "cirros.qcow2" in stored
    for secret in ("pass-secret", "user-secret", "ZmlsZS1zZWNyZXQ=", "file-secret", "image-secret"):
        assert secret not in stored


def test_what_was_stored_comes_back_as_it_was(world: World) -> None:
    wish = NetworkRequest(network="net-1", subnet="subnet-1", tag="front")
    world.accept(request("web", networks=(wish,)))
    with world.ledger.read() as tx:
        row = accept.instances.select_live(tx, names=["web"])[0]
        stored = accept.requested_networks(row.spec)
        records = ports.ports_of(tx, [row.uuid])[row.uuid]
    assert stored == [(dataclasses.replace(wish, network=NET.id), NET)]
    assert [n for _p, n in records] == [NET]
    assert (records[0][0].tag, records[0][0].fixed_ips[0]["ip_address"]) == ("front", "10.0.1.10")
    found = find_image([IMAGE], row.spec["image"])
    assert found is IMAGE
    gone = find_image([], row.spec["image"])
    assert gone == dataclasses.replace(IMAGE, access=ImageAccess())


def test_views_tell_what_people_ask_for(world: World) -> None:
    world.report("h1")
    world.boot("web", metadata={"role": "front"}, description="a web server")
    world.accept(request("waits", networks=()))
    with world.ledger.read() as tx:
        active, waits = views.instance_views(tx.for_run(world.context()), accept.instances.select_live(tx))
    assert {k: active[k] for k in ("name", "vm_state", "host", "flavor", "image", "metadata", "description")} == {
        "name": "web", "vm_state": "active", "host": "h1", "flavor": "small", "image": "cirros", "metadata": {"role": "front"},
        "description": "a web server",
    }  # fmt: skip
    assert ([a["ip_address"] for a in active["addresses"]], active["launched_at"], active["seconds"]) == (
        ["10.0.1.10"],
        "2023-11-14T22:13:20Z",
        0.0,
    )
    assert active["ports"][0]["network"] == "net-1" and active["fault"] is None
    assert (waits["task_state"], waits["addresses"], waits["launched_at"], waits["seconds"]) == (
        "scheduling",
        [],
        None,
        None,
    )


def test_the_same_request_changes_nothing(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    before = world.everything()
    for run in ("a", "b"):
        accepted = world.accept(request("web"), run=run)
        assert (accepted.created, accepted.resumed, accepted.unchanged, accepted.changed) == ([], [], [uuid], False)
    assert world.everything() == before


def test_a_higher_count_adds_what_is_missing(world: World) -> None:
    world.report("h1", memory=9)
    first = world.accept(request("web", 2)).created
    world.schedule()
    world.build("h1")
    accepted = world.accept(request("web", 4))
    assert accepted.unchanged == first
    assert [world.row(u).display_name for u in accepted.created] == ["web-3", "web-4"]
    assert [world.row(u).launch_index for u in accepted.created] == [2, 3]


def test_another_definition_of_a_name_is_refused(world: World) -> None:
    world.accept(request("web"))
    before = world.everything()
    world.know(network(2))
    refusals = world.refusals(request("web", networks=("net-2",), flavor=BIG), request("new"))
    assert codes(refusals) == [("instances[0].name", "InstanceExists")]
    assert "networks[0].network: is net-1, requested net-2" in refusals[0]["message"]
    assert "flavor: is small, requested big" in refusals[0]["message"]
    assert refusals[0]["remedy"]
    assert world.everything() == before


BIG = dataclasses.replace(SMALL, name="big", memory_mb=9999)


def test_an_edited_catalogue_changes_no_instance_and_is_told(world: World) -> None:
    world.report("h1")
    uuids = [world.boot("web"), world.boot("db")]
    before = world.everything()
    wider = {"flavor": dataclasses.replace(SMALL, vcpus=2), "image": dataclasses.replace(IMAGE, checksum="1" * 64)}
    accepted = world.accept(request("web", **wider), request("db", **wider), run="b")
    assert (accepted.changed, accepted.unchanged) == (False, uuids)
    drift = ("flavor.vcpus: was 1, is 2", "image.checksum: was %s, is %s" % ("0" * 64, "1" * 64))
    assert accepted.drift == {drift: ["web", "db"]}
    assert world.everything() == before


def test_metadata_description_and_tags_change_in_place(world: World) -> None:
    world.report("h1", memory=9)
    first = world.accept(request("web", 2, metadata={"role": "front"}), request("db", metadata={"role": "front"}))
    world.schedule()
    world.build("h1")
    wanted = request("web", 2, metadata={"role": "back"}, description="the shop", tags=("shop",))
    accepted = world.accept(wanted, request("db", metadata={"role": "front"}), run="b")
    assert (accepted.updated, accepted.unchanged) == (first.created[:2], first.created[2:])
    assert accepted.changed and not accepted.builds
    assert {(c["name"], c["field"]) for c in accepted.changes} == {
        (name, field) for name in ("web-1", "web-2") for field in ("metadata", "description", "tags")
    }
    with world.ledger.read() as tx:
        found = {
            v["name"]: v for v in views.instance_views(tx.for_run(world.context()), accept.instances.select_live(tx))
        }
    assert (found["web-1"]["metadata"], found["web-2"]["description"]) == ({"role": "back"}, "the shop")
    assert (found["web-2"]["tags"], found["db"]["tags"]) == (["shop"], [])
    assert (found["db"]["metadata"], found["web-1"]["vm_state"]) == ({"role": "front"}, "active")
    before = world.everything()
    again = world.accept(wanted, run="c")
    assert (again.changed, again.unchanged) == (False, first.created[:2]) and world.everything() == before
    with world.ledger.write() as tx:
        accept.instances.write(tx, first.created[:1], locked_by="somebody")
    assert codes(world.refusals(request("web", 2), run="d")) == [("instances[0].name", "InstanceIsLocked")]


def test_a_request_of_a_version_without_tags_is_the_same_request(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    with world.ledger.write() as tx:
        (row,) = tx.execute(tables.request_specs.select()).all()
        old = {name: {k: v for k, v in getattr(row, name).items() if k != "tags"} for name in ("digest", "spec")}
        tx.execute(tables.request_specs.update().values(**old))
    before = world.everything()
    assert world.accept(request("web"), run="b").unchanged == [uuid] and world.everything() == before
    changed = world.accept(request("web", tags=("a",)), run="c")
    assert changed.changes == [{"name": "web", "uuid": uuid, "field": "tags", "from": None, "to": ["a"]}]


def test_what_never_had_a_host_gives_its_name_to_the_corrected_request(world: World) -> None:
    world.report("h1", memory=2)
    (failed,) = world.accept(request("web", flavor=BIG), run="a").created
    world.schedule()
    assert world.state(failed) == ("error", None, None)
    accepted = world.accept(request("web"), run="b", quotas={"instances": 1})
    assert accepted.replaced == ["web"] and len(accepted.created) == 1 and accepted.created != [failed]
    assert world.row(failed).vm_state == "deleted" and world.addresses(failed) == []
    assert world.schedule("b").placed
    same = world.boot("late", "accepted", run="c", flavor=BIG)
    world.schedule("c")
    smaller = dataclasses.replace(BIG, memory_mb=1024)
    assert world.accept(request("late", flavor=BIG), run="d").resumed == [same]
    world.schedule("d")
    assert world.accept(request("late", flavor=smaller), run="e").replaced == ["late"], "its flavor was corrected"


def test_a_corrected_request_of_more_instances_has_the_name_of_one_that_never_had_a_host(world: World) -> None:
    world.report("h1", memory=2)
    (failed,) = world.accept(request("web", flavor=BIG), run="a").created
    world.schedule()
    accepted = world.accept(request("web", 3), run="b")
    assert accepted.replaced == ["web"] and failed not in accepted.created
    names = [(world.row(u).display_name, world.row(u).launch_index) for u in accepted.created]
    assert names == [("web", 0), ("web-2", 1), ("web-3", 2)]


def test_what_had_a_host_keeps_its_name(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning")
    world.fail("h1", uuid, errors.InvalidInput(reason="broken"))
    assert world.state(uuid)[0] == "error"
    assert codes(world.refusals(request("web", flavor=BIG), run="b")) == [("instances[0].name", "InstanceExists")]


def test_a_name_is_its_projects(world: World) -> None:
    world.accept(request("web"), request("web", project="other"))
    assert sorted((r.project, r.display_name) for r in world.rows(tables.instances)) == [
        ("default", "web"),
        ("other", "web"),
    ]


@pytest.mark.parametrize("second", [("web", 1), ("web-1", 1), ("web", 2)])
def test_two_entries_with_the_same_name_are_refused(world: World, second: tuple[str, int]) -> None:
    first = request("web", 1 if second == ("web", 1) else 2)
    refusals = world.refusals(first, request(*second))
    assert {p for p, _c in codes(refusals)} == {"instances[1].name"}
    assert "twice" in refusals[0]["message"]
    assert world.count(tables.instances) == 0


def test_a_deleted_name_is_free(world: World) -> None:
    first = world.boot("web", "accepted")
    world.delete(names=["web"])
    assert world.finish() == (["web"], [])
    second = world.boot("web", "accepted", flavor=BIG)
    assert first != second
    world.delete(names=["web"])
    assert world.finish()[0] == ["web"]


def test_a_failure_in_the_last_entry_leaves_nothing(world: World) -> None:
    world.know(network(2, addresses=1))
    before = world.everything()
    refusals = world.refusals(request("a", 3), request("b"), request("c", 2, networks=("net-1", "net-2")))
    assert codes(refusals) == [("instances[2].networks", "NoMoreFixedIps")]
    assert world.everything() == before
    assert world.accept(request("a", 3)).changed


def test_all_refusals_are_told_at_once(world: World) -> None:
    world.accept(request("old"))
    wide = request("old", flavor=BIG)
    refusals = world.refusals(wide, request("x", 9), request("x", 9), quotas={"instances": 3})
    assert {c for _p, c in codes(refusals)} == {"InstanceExists", "InvalidInput", "OverQuota"}


def test_block_devices_are_refused_by_their_own_name(world: World) -> None:
    swap = BlockDevice(source_type="blank", destination_type="local", guest_format="swap", volume_size=9, boot_index=-1)
    root = BlockDevice(source_type="image", destination_type="local", boot_index=0, uuid=IMAGE.id)
    refusals = world.refusals(request("web", block_device_mapping=(root, swap)))
    assert codes(refusals) == [("instances[0].block_device_mapping", "InvalidBDMSwapSize")]


# --- quotas --------------------------------------------------------------------------------------------------------


def test_quotas_reduce_the_count(world: World) -> None:
    accepted = world.accept(request("web", min_count=2, max_count=5), quotas={"instances": 4})
    assert [world.row(u).display_name for u in accepted.created] == ["web-1", "web-2", "web-3", "web-4"]
    again = world.accept(request("web", min_count=2, max_count=5), quotas={"instances": 4})
    assert (again.created, len(again.resumed)) == ([], 4)


@pytest.mark.parametrize(
    ("quotas", "text"),
    [
        ({"instances": 2}, "Quota exceeded for instances: Requested 3, but already used 0 of 2 instances"),
        ({"cores": 2}, "Quota exceeded for cores: Requested 3, but already used 0 of 2 cores"),
        ({"ram": 2048}, "Quota exceeded for ram: Requested 3072, but already used 0 of 2048 ram"),
        (
            {"projects": {"default": {"instances": 0}}},
            "Quota exceeded for instances: Requested 3, but already used 0 of 0",
        ),
    ],
)
def test_less_than_the_minimum_is_over_quota(world: World, quotas: dict[str, t.Any], text: str) -> None:
    refusals = world.refusals(request("web", 3), quotas=quotas)
    assert codes(refusals) == [("instances[0].count", "OverQuota")]
    assert text in refusals[0]["message"]
    assert world.count(tables.instances) == 0


def test_quotas_count_what_lives_in_the_project_only(world: World) -> None:
    quotas = {"instances": 2, "ports": 2}
    world.accept(request("a", 2), quotas=quotas)
    world.accept(request("a", 2, project="other"), quotas=quotas)
    assert codes(world.refusals(request("b"), quotas=quotas)) == [("instances[0].count", "OverQuota")]
    world.delete(names=["a-1"], project="default")
    world.finish()
    assert len(world.accept(request("b"), quotas=quotas).created) == 1


# --- who has it ----------------------------------------------------------------------------------------------------


def test_a_build_of_a_live_run_is_locked(world: World) -> None:
    world.boot("web", "accepted", run="a")
    refusals = world.refusals(request("web"), run="b")
    assert codes(refusals) == [("instances[0].name", "InstanceBusy")]
    assert (
        "run run-a (of ann on controller-a, since 2023-11-14T22:13:20Z) until 2023-11-14T22:23:20Z"
        in refusals[0]["message"]
    )


@pytest.mark.parametrize("until", ["accepted", "scheduled", "networking", "block_device_mapping", "spawning"])
def test_a_dead_runs_build_goes_on_where_it_was(world: World, until: str) -> None:
    world.report("h1")
    uuid = world.boot("web", until, run="a")
    address = world.addresses(uuid)
    world.time += 601
    accepted = world.accept(request("web"), run="b")
    assert (accepted.resumed, accepted.created) == ([uuid], [])
    expected = (states.BUILDING, states.SCHEDULING, None) if until == "accepted" else (states.BUILDING, None, "h1")
    assert world.state(uuid) == expected
    assert world.row(uuid).run_id == "run-b"
    if until == "accepted":
        world.schedule("b")
    builds_found, _failed = world.begin(STAGES[0], "h1", "b")
    assert [b.resumed for b in builds_found] == [until != "accepted"]
    assert world.addresses(uuid) == address
    assert world.claims() == {(uuid, "h1")}


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(
    "task_state", [states.POWERING_OFF, states.REBOOT_STARTED_HARD, states.MIGRATING, states.SOFT_DELETING]
)
def test_a_guest_that_a_dead_run_left_in_an_operation_is_not_built_again(
    world: World, task_state: str, follow: bool
) -> None:
    """Its host did not answer, or libvirt still migrates it: it may run, and a second one must not."""
    world.report("h1")
    uuid = world.boot("web")
    with world.ledger.write() as tx:
        instances.write(tx, [uuid], task_state=task_state, run_id="run-gone")
    world.time += 601
    options = accept.AcceptOptions(networks=world.networks, keep_built_instances=follow)
    if follow:
        with world.ledger.write() as tx:
            assert accept.accept(tx.for_run(world.context("b")), [request("web")], options).unchanged == [uuid]
    else:
        with pytest.raises(errors.InvalidRequest) as refused, world.ledger.write() as tx:
            accept.accept(tx.for_run(world.context("b")), [request("web")], options)
        assert codes(refused.value.errors) == [("instances[0].name", "InstanceInvalidState")]
        assert ("bootflow.compute.delete" if task_state == states.SOFT_DELETING else "bootflow.compute.audit") in str(
            refused.value.errors[0]["remedy"]
        )
    assert world.state(uuid) == (states.ACTIVE, task_state, "h1")


def test_a_late_worker_of_the_dead_run_loses(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning", run="a")
    world.time += 601
    world.accept(request("web"), run="b")
    assert world.spawned("h1", [uuid], "a") == ([], [uuid])
    assert world.fail("h1", uuid, errors.RemoteError(reason="late"), "a") == "gone"
    assert world.state(uuid) == (states.BUILDING, None, "h1")
    assert world.claims() == {(uuid, "h1")}


def test_a_failed_instance_starts_anew(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web", "spawning")
    assert world.fail("h1", uuid, errors.ImageError(reason="broken")) == "error"
    accepted = world.accept(request("web"), run="b")
    assert accepted.resumed == [uuid]
    row = world.row(uuid)
    assert (row.vm_state, row.task_state, row.host, row.retry) == (states.BUILDING, states.SCHEDULING, None, None)
    world.schedule("b")
    world.build("h1", run="b")
    assert world.state(uuid) == (states.ACTIVE, None, "h1")
    assert len(world.addresses(uuid)) == 1


def test_a_failed_instance_that_ran_before_is_left_alone(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    with world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(vm_state=states.ERROR))
    assert world.accept(request("web"), run="b").unchanged == [uuid]


@pytest.mark.parametrize(("later", "code"), [(0, "InstanceBusy"), (601, "InstanceInvalidState")])
def test_what_is_being_deleted_is_refused(world: World, later: int, code: str) -> None:
    world.report("h1")
    world.boot("web")
    world.delete(names=["web"])
    world.time += later
    assert codes(world.refusals(request("web"))) == [("instances[0].name", code)]


# --- addresses -----------------------------------------------------------------------------------------------------


def test_a_wished_address(world: World) -> None:
    wish = NetworkRequest(network="net-1", fixed_ip="10.0.1.200")  # outside the pool: fine
    world.accept(request("a", networks=(wish,)))
    assert world.addresses() == ["10.0.1.200"]
    refusals = world.refusals(request("b", networks=(wish,)))
    assert codes(refusals) == [("instances[0].networks", "FixedIpAlreadyInUse")]
    assert "10.0.1.200 already allocated in subnet subnet-1" in refusals[0]["message"]


def test_the_same_address_twice_in_one_request(world: World) -> None:
    wish = NetworkRequest(network="net-1", fixed_ip="10.0.1.10")
    refusals = world.refusals(request("a", networks=(wish,)), request("b", networks=(wish,)))
    assert codes(refusals) == [("instances[1].networks", "FixedIpAlreadyInUse")]
    accepted = world.accept(
        request("a"), request("b", networks=(NetworkRequest(network="net-1", fixed_ip="10.0.1.11"),)), request("c")
    )
    assert [world.addresses(u) for u in accepted.created] == [["10.0.1.10"], ["10.0.1.11"], ["10.0.1.12"]]


@pytest.mark.parametrize(
    ("enforce", "address", "code"),
    [
        (False, "192.0.2.1", "InvalidIpForSubnet"),
        (False, "10.0.1.255", "InvalidIpForSubnet"),
        (True, "10.0.1.200", "InvalidIpForAllocationPools"),
        (True, "192.0.2.1", "InvalidIpForSubnet"),
    ],
)
def test_an_address_that_cannot_be(world: World, enforce: bool, address: str, code: str) -> None:
    world.know(network(1, enforce=enforce))
    refusals = world.refusals(request("a", networks=(NetworkRequest(network="net-1", fixed_ip=address),)))
    assert codes(refusals) == [("instances[0].networks", code)]


def test_one_address_of_each_version_from_the_first_subnet_that_has_one(world: World) -> None:
    full = subnet(1, addresses=1)
    next_one = subnet(2, addresses=9)
    six = subnet(6, cidr="2001:db8::/64", pool=("2001:db8::10", "2001:db8::ffff"))
    world.know(network(3, full, next_one, six))
    accepted = world.accept(request("a", 2, networks=("net-3",)))
    assert [world.addresses(u) for u in accepted.created] == [
        ["10.0.1.10", "2001:db8::10"],
        ["10.0.2.10", "2001:db8::11"],
    ]
    chosen = world.accept(request("b", networks=(NetworkRequest(network="net-3", subnet=next_one.name),)))
    assert world.addresses(chosen.created[0]) == ["10.0.2.11"]


def test_an_address_given_back_is_the_next_one_taken(world: World) -> None:
    world.accept(request("a", 3))
    world.delete(names=["a-2"])
    world.finish()
    assert world.addresses() == ["10.0.1.10", "10.0.1.12"]
    assert world.addresses(world.boot("b", "accepted")) == ["10.0.1.11"]


def test_the_lowest_free_addresses_whatever_came_and_went(world: World) -> None:
    """Instances with and without a wished address come and go: each gets the lowest address that nobody has."""
    draw = random.Random(5)
    low, high = 10, 59
    taken: dict[str, int] = {}
    for turn in range(60):
        if taken and draw.random() < 0.4:
            gone = sorted(draw.sample(sorted(taken), min(len(taken), draw.randrange(1, 12))))
            world.delete(names=gone)
            world.finish()
            for name in gone:
                del taken[name]
        used = set(taken.values())
        wishes = [n for n in (*range(low, high + 1), 200, 201) if n not in used]
        if wishes and draw.random() < 0.3:
            number = draw.choice(wishes)
            wish = NetworkRequest(network="net-1", fixed_ip="10.0.1.%d" % number)
            world.accept(request("w%d" % turn, networks=(wish,)))
            taken["w%d" % turn] = number
        count = draw.randrange(2, 5)
        free = [n for n in range(low, high + 1) if n not in set(taken.values())]
        if len(free) < count:
            assert codes(world.refusals(request("n%d" % turn, count))) == [("instances[0].networks", "NoMoreFixedIps")]
            continue
        accepted = world.accept(request("n%d" % turn, count))
        assert [world.addresses(u) for u in accepted.created] == [["10.0.1.%d" % n] for n in free[:count]]
        taken.update({"n%d-%d" % (turn, i + 1): n for i, n in enumerate(free[:count])})
    assert sorted(world.addresses()) == sorted("10.0.1.%d" % n for n in taken.values())


def test_pools_that_changed(world: World) -> None:
    world.know(network(1, subnet(1, pool=("10.0.1.20", "10.0.1.23"))))
    first = world.accept(request("a", 2))
    world.know(network(1, subnet(1, pool=("10.0.1.18", "10.0.1.21"))))
    second = world.accept(request("b", 2))
    assert [world.addresses(u) for u in second.created] == [["10.0.1.18"], ["10.0.1.19"]]
    assert codes(world.refusals(request("c"))) == [("instances[0].networks", "NoMoreFixedIps")]
    world.know(network(1, subnet(1, pool=("10.0.1.22", "10.0.1.23"))))
    world.delete(uuids=first.created)
    world.finish()
    third = world.accept(request("d", 2))
    assert [world.addresses(u) for u in third.created] == [["10.0.1.22"], ["10.0.1.23"]]
    assert codes(world.refusals(request("e"))) == [("instances[0].networks", "NoMoreFixedIps")]


def test_what_is_said_to_be_free_is_looked_up(world: World) -> None:
    """The rows of addresses decide: wrong ranges give no address twice, and none is lost for ever."""
    world.know(network(1, addresses=4))
    world.accept(request("a", 2))
    with world.ledger.write() as tx:
        tx.execute(tables.free_addresses.update().values(lowest="0a00010a"))
    assert world.addresses(world.accept(request("b")).created[0]) == ["10.0.1.12"]
    with world.ledger.write() as tx:
        tx.execute(tables.free_addresses.delete())
    assert world.addresses(world.accept(request("c")).created[0]) == ["10.0.1.13"]
    assert world.rows(tables.free_addresses) == []


def test_addresses_that_are_taken_are_not_read(world: World) -> None:
    """Neither statements nor what they read grow with the addresses and instances that there are."""
    six = subnet(6, cidr="2001:db8::/64", pool=("2001:db8::10", "2001:db8::ffff"))
    ten = subnet(5, cidr="10.5.0.0/16", pool=("10.5.0.10", "10.5.255.254"))
    world.know(network(3, ten, six))
    world.accept(request("first", 3, networks=("net-3",)))
    costs = []
    for number, more in enumerate((10, 400)):
        world.accept(request("more%d" % number, more, networks=("net-3",)))
        with counted(world.ledger) as statements:
            world.accept(request("n%d" % number, 3, networks=("net-3",)))
        costs.append([text for text, _parameters in statements])
    assert costs[0] == costs[1]
    assert not any("count(" in text for text in costs[1]), "without a quota nobody counts what the project has"


def test_a_quota_counts_what_it_limits(world: World) -> None:
    world.accept(request("a", 3))
    with counted(world.ledger) as statements:
        refusals = world.refusals(request("b", 2), quotas={"instances": 4})
    assert codes(refusals) == [("instances[0].count", "OverQuota")]
    assert not any("JOIN ports" in text for text, _parameters in statements)
    refusals = world.refusals(request("b", 2), quotas={"projects": {"default": {"ports": 4}}})
    assert codes(refusals) == [("instances[0].count", "PortLimitExceeded")]


def test_many_entries_take_as_many_statements_as_one(world: World) -> None:
    counts = []
    world.accept(request("first"))
    for number, entries in enumerate((1, 30)):
        with counted(world.ledger) as statements:
            world.accept(*[request("e%d-%d" % (number, i)) for i in range(entries)])
        counts.append(len(statements))
    # The ids of many entries are asked for when it is known how many are new; those of few come with another statement.
    assert counts[1] - counts[0] == (1 if world.ledger.is_server else 0)
    assert len(world.rows(tables.request_specs)) == 32


def test_every_port_has_a_mac_of_its_own(world: World) -> None:
    class Repeating:
        """Gives every number twice in a row where a MAC is drawn."""

        def __init__(self) -> None:
            self.drawn = 0

        def getrandbits(self, bits: int) -> int:
            if bits > 8:
                self.drawn += 1 << 60
                return self.drawn % (1 << bits)
            self.drawn += 1
            return (self.drawn // 6) % 256

        def choice(self, letters: str) -> str:
            return letters[0]

    world.accept(request("a", 5), rng=Repeating())
    macs = [p.mac_address for p in world.rows(tables.ports)]
    assert len(set(macs)) == 5 and all(m.startswith("fa:16:3e:") for m in macs)


@pytest.mark.parametrize("first", [0x7FFFFF00, 0xFFFFFFF0])
def test_the_rows_of_a_request_lie_side_by_side(world: World, first: int) -> None:
    """Their UUIDs count on, also beyond the last number, so that an index of them is written in one place."""

    class Beginning(random.Random):
        def getrandbits(self, bits: int) -> int:
            return first if bits == 32 else super().getrandbits(bits)

    world.accept(request("a", 20), rng=Beginning(1))
    ids = [r.uuid for r in world.rows(tables.instances)] + [r.id for r in world.rows(tables.ports)]
    assert sorted((int(i[:8], 16) - first) % 2**32 for i in ids) == list(range(len(ids))), "each number once"
    assert len({i[9:] for i in ids}) == len(ids) and all(uuid.UUID(i).version == 4 for i in ids)


def test_a_large_batch(world: World) -> None:
    """More than one slice of every IN list."""
    big = subnet(1, pool=("10.9.0.1", "10.9.9.250"), cidr="10.9.0.0/16")
    world.know(network(1, big))
    world.report("h1", memory=2000)
    accepted = world.accept(request("a", 600))
    assert world.count(tables.instances) == 600
    world.schedule(max_attempts=1)
    assert world.used("h1")[3] == 600
    assert len(world.accept(request("a", 600)).resumed) == 600
    assert len(world.delete(run="a", names=[world.row(u).display_name for u in accepted.created]).rows) == 600
    world.removed("h1", accepted.created, "a")
    assert len(world.finish("a")[0]) == 600
    assert (world.used("h1")[3], world.count(tables.ports)) == (0, 0)


def test_the_only_instance_is_the_first_of_several(world: World) -> None:
    """The count of an entry is that of its instances: raised from 1 to 3, two more are made, and lowered again none."""
    world.report("h1", memory=9)

    def names(count: int) -> list[str]:
        return [world.row(u).display_name for u in world.accept(request("web", count), request("web-other")).created]

    assert names(1) == ["web", "web-other"]
    assert names(3) == ["web-2", "web-3"]
    assert (names(3), names(1)) == ([], [])
    world.schedule()
    answers = world.ledger.inspect(whatif.ask, [request("web", n) for n in (1, 3, 4)], world.fleet, world.options())
    assert [(a.existing_count, a.count) for a in answers] == [(1, 0), (3, 0), (3, 1)]
    other = world.accept(request("db", 2)).created
    assert [world.row(u).display_name for u in other] == ["db-1", "db-2"]
    assert world.accept(request("db")).created == []


def test_an_instance_of_another_entry_is_not_the_first_of_several(world: World) -> None:
    """web-1 of the entry web-1 is in nobody's place: the entry web gets its own."""
    world.accept(request("web-1"))
    (uuid,) = world.accept(request("web")).created
    assert world.row(uuid).display_name == "web"
