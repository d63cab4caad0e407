# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Groups that boots, ports and instances have, and the hosts that are due for filters after a change."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.entries import WantedInterface
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.port_entries import (
    read_port_changes,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.port_security import GivenSecurity
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.security_entries import (
    read_groups,
    read_rules,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import NetworkRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.security_rules import default_group_id
from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import builds, failure
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import interfaces
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.moves import cold, place
from ansible_collections.bootflow.compute.plugins.module_utils.flows.networks import ports as port_flow
from ansible_collections.bootflow.compute.plugins.module_utils.flows.networks import security_groups as group_flow
from ansible_collections.bootflow.compute.plugins.module_utils.flows.networks.port_filters import port_filters_of
from ansible_collections.bootflow.compute.plugins.module_utils.flows.port_security import instance_groups
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances, project_ports
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import views as instance_views
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute.instances import PlacedInstance
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.networks import filter_marks
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, network, request

DEFAULT = default_group_id("default")


def call(world: World, function: t.Callable[..., t.Any], *arguments: t.Any) -> t.Any:
    with world.ledger.write() as tx:
        return function(tx.for_run(world.context("p", filters_ports=True)), *arguments)


FILTERS = {"firewall_driver": "nftables"}


def report(world: World, host: str, **fields: t.Any) -> int:
    """A host that filters reports."""
    return world.report(host, stats=FILTERS, **fields)


def group(world: World, name: str = "web") -> str:
    (key,) = call(world, group_flow.create, read_groups([{"name": name}]), "default", {}).created
    return str(key)


def boot(world: World, name: str = "web", host: str = "h1", **fields: t.Any) -> str:
    """An active instance of a run that marks hosts."""
    (uuid,) = world.accept(request(name, **fields), filters_ports=True).created
    world.schedule()
    world.build(host)
    return uuid


def document(world: World, host: str = "h1") -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", call(world, port_filters_of, [host])[host])


def groups_of(world: World, uuid: str) -> list[list[str]]:
    return [view["security_groups"] for view in views(world) if view["instance_uuid"] == uuid]


def views(world: World) -> list[dict[str, t.Any]]:
    return t.cast("list[dict[str, t.Any]]", call(world, project_ports.views))


def applied(world: World, *hosts: str) -> None:
    """The hosts get their documents."""
    for host in hosts:
        call(world, filter_marks.confirm, {host: document(world, host)["revision"]})


def refusals(function: t.Callable[..., t.Any], *arguments: t.Any) -> list[tuple[str, int]]:
    with pytest.raises(errors.InvalidRequest) as caught:
        function(*arguments)
    return [(e["code"], e["status"]) for e in caught.value.errors]


# --- boots --------------------------------------------------------------------------------------------------------------


def test_ports_of_a_boot_have_the_groups_that_it_names(world: World) -> None:
    report(world, "h1")
    web = group(world)
    named, by_id = boot(world, security_groups=("web", "default")), boot(world, "other", security_groups=(web,))
    assert [sorted(keys) for keys in groups_of(world, named)] == [sorted([web, DEFAULT])]
    assert groups_of(world, by_id) == [[web]]
    assert groups_of(world, boot(world, "plain")) == [[DEFAULT]]
    assert {key for port in document(world)["ports"] for key in port["groups"]} == {web, DEFAULT}


def test_an_unknown_group_is_refused_before_anything_is_written(world: World) -> None:
    report(world, "h1")
    before = world.everything()
    asked = request("web", security_groups=("none",))
    refused = [(e["path"], e["code"], e["status"]) for e in world.refusals(asked)]
    assert refused == [("instances[0].security_groups", "SecurityGroupNotFound", 400)]
    assert world.everything() == before
    (other,) = call(world, group_flow.create, read_groups([{"name": "theirs"}]), "theirs", {}).created
    for word in ("theirs", other):
        (problem,) = world.refusals(request("web", security_groups=(word,)))
        assert problem["code"] == "SecurityGroupNotFound"


def test_given_ports_keep_their_groups_and_networks_without_port_security_have_none(world: World) -> None:
    report(world, "h1")
    world.networks["net-2"] = world.networks[network(2).id] = replace(network(2), port_security_enabled=False)
    web = group(world)
    front = world.make_port("front")
    uuid = boot(world, security_groups=("web",), networks=("net-1", "net-2", NetworkRequest(port=front)))
    assert sorted(groups_of(world, uuid)) == sorted([[web], [], [DEFAULT]])
    unsecured = [port for port in document(world)["ports"] if not port["port_security_enabled"]]
    assert [port["groups"] for port in unsecured] == [[]]


def test_a_build_without_its_group_is_not_rescheduled(world: World) -> None:
    report(world, "h1")
    web = group(world)
    call(world, group_flow.delete, [web], "default", False)
    with pytest.raises(errors.SecurityGroupNotFound):
        call(world, failure.existing_groups, {"security_groups": [web]})
    assert call(world, failure.existing_groups, {}) == []


# --- ports --------------------------------------------------------------------------------------------------------------


def test_a_port_has_what_its_entry_gives(world: World) -> None:
    web = group(world)
    pair = {"ip_address": "10.0.0.9", "mac_address": None}
    world.make_port("front", security=GivenSecurity(None, ("web",), (pair,)))
    world.make_port("open", security=GivenSecurity(enabled=False))
    front, unsecured = sorted(views(world), key=lambda view: str(view["name"]))
    assert (front["security_groups"], front["allowed_address_pairs"]) == ([web], [pair])
    assert front["port_security_enabled"]
    assert (unsecured["security_groups"], unsecured["port_security_enabled"]) == ([], False)
    with pytest.raises(errors.InvalidRequest) as caught:
        world.make_port("front", security=GivenSecurity(groups=()))
    assert "its security_groups are" in caught.value.errors[0]["message"]


@pytest.mark.parametrize(
    ("security", "code"),
    [
        (GivenSecurity(False, ("default",)), "PortSecurityPortHasSecurityGroup"),
        (
            GivenSecurity(False, None, ({"ip_address": "10.0.0.9", "mac_address": None},)),
            "AddressPairAndPortSecurityRequired",
        ),
    ],
)
def test_groups_and_pairs_need_port_security(world: World, security: GivenSecurity, code: str) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        world.make_port("front", security=security)
    assert [(e["code"], e["status"]) for e in caught.value.errors] == [(code, 409)]


def update(world: World, port: str, **fields: t.Any) -> port_flow.PortsWritten:
    changes = read_port_changes([{"port": port, **fields}], filters_ports=True)
    return t.cast(port_flow.PortsWritten, call(world, port_flow.update, changes, world.networks, None))


def test_ports_of_running_guests_change_and_their_hosts_are_due(world: World) -> None:
    report(world, "h1")
    web = group(world)
    uuid = boot(world)
    applied(world, "h1")
    (port,) = (view["id"] for view in views(world))
    assert list(update(world, port, security_groups=["web"]).changes[port]) == ["security_groups"]
    assert call(world, filter_marks.due) == ["h1"]
    assert update(world, port, security_groups=[web]).unchanged == [port]
    assert refusals(lambda: update(world, port, port_security_enabled=False)) == [
        ("PortSecurityPortHasSecurityGroup", 409)
    ]
    update(world, port, port_security_enabled=False, security_groups=[])
    (view,) = views(world)
    assert (view["security_groups"], view["port_security_enabled"], view["instance_uuid"]) == ([], False, uuid)
    assert refusals(lambda: update(world, port, name="front")) == [("PortInUse", 409)]


def test_disabling_port_security_takes_the_default_group_away(world: World) -> None:
    port = world.make_port("front")
    update(world, port, port_security_enabled=False)
    assert [(v["security_groups"], v["port_security_enabled"]) for v in views(world)] == [([], False)]


@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ({"allowed_address_pairs": [{"ip_address": "10.0.0.300"}]}, ["InvalidInput"]),
        ({"allowed_address_pairs": [{"ip_address": "10.0.0.3", "mac_address": "01:00:00:00:00:01"}]}, ["InvalidInput"]),
        (
            {"allowed_address_pairs": [{"ip_address": "10.0.0.3"}, {"ip_address": "10.0.0.3"}]},
            ["DuplicateAddressPairInRequest"],
        ),
        (
            {"allowed_address_pairs": [{"ip_address": "10.0.%d.0/24" % n} for n in range(11)]},
            ["AllowedAddressPairExhausted"],
        ),
    ],
)
def test_bad_address_pairs_are_refused(fields: dict[str, t.Any], codes: list[str]) -> None:
    assert [code for code, _status in refusals(read_port_changes, [{"port": "p", **fields}], True)] == codes


@pytest.mark.parametrize(
    "fields",
    [
        {"security_groups": ["web"]},
        {"allowed_address_pairs": [{"ip_address": "10.0.0.3"}]},
        {"port_security_enabled": True},
    ],
)
def test_what_no_host_would_filter_by_is_refused(fields: dict[str, t.Any]) -> None:
    assert refusals(read_port_changes, [{"port": "p", **fields}]) == [("NotSupportedYet", 400)]


# --- instances ----------------------------------------------------------------------------------------------------------


def change(world: World, adds: bool, *words: str, name: str = "web") -> instance_groups.Changed:
    selection = Selection(names=[name])
    return t.cast(instance_groups.Changed, call(world, instance_groups.change, selection, words, adds))


def test_an_instance_gets_and_loses_a_group(world: World) -> None:
    report(world, "h1")
    web = group(world)
    uuid = boot(world)
    applied(world, "h1")
    assert change(world, True, "web").groups[uuid] == ([DEFAULT], sorted([web, DEFAULT]))
    assert call(world, filter_marks.due) == ["h1"]
    assert [sorted(keys) for keys in groups_of(world, uuid)] == [sorted([web, DEFAULT])]
    assert [row.uuid for row in change(world, True, web).unchanged] == [uuid]
    assert refusals(lambda: call(world, group_flow.delete, [web], "default", False)) == [("SecurityGroupInUse", 409)]
    change(world, False, "default", "web")
    assert groups_of(world, uuid) == [[]]
    assert not change(world, False, "web").rows
    assert refusals(lambda: change(world, True, "none")) == [("SecurityGroupNotFound", 404)]


def test_an_instance_that_cannot_have_groups_gets_none(world: World) -> None:
    report(world, "h1")
    group(world)
    boot(world, networks=())
    assert refusals(lambda: change(world, True, "web")) == [("SecurityGroupCannotBeApplied", 400)]


# --- hosts that filter nothing ----------------------------------------------------------------------------------------


def attach(world: World, name: str, **requested: t.Any) -> interfaces.Begun:
    entry = WantedInterface("interfaces[0]", name, NetworkRequest(**requested))
    by_id = {n.id: n for n in world.networks.values()}
    return t.cast(interfaces.Begun, call(world, interfaces.begin_attach, [entry], by_id, None, ["h1", "h2"], {}))


def test_no_interface_with_groups_comes_to_a_host_that_filters_nothing(world: World) -> None:
    other = network(2)
    world.know(other)
    report(world, "h1")
    group(world)
    boot(world, security_groups=("web",))
    boot(world, "plain")
    front, inside = world.make_port("front", security=GivenSecurity(groups=("web",))), world.make_port("inside")
    world.report("h1")  # bootflow_firewall_driver is noop now
    before = world.everything()
    refused = [("HostDoesNotFilter", 409)]
    assert refusals(lambda: attach(world, "web", network=other.id)) == refused
    assert refusals(lambda: attach(world, "plain", port=front)) == refused
    (port,) = (view["id"] for view in views(world) if view["instance"] == "plain")
    assert refusals(lambda: update(world, port, security_groups=["web"])) == refused
    assert refusals(lambda: change(world, True, "web", name="plain")) == refused
    assert world.everything() == before
    assert attach(world, "plain", port=inside).new == {inside}
    change(world, False, "web")
    assert attach(world, "web", network=other.id).new


def mover(world: World, uuid: str) -> place.Mover:
    with world.ledger.read() as tx:
        (row,) = instances.select_live(tx, uuids=[uuid])
    return place.Mover(t.cast(PlacedInstance, row), row.spec)


def test_an_instance_with_groups_moves_to_a_host_that_filters_and_shows_its_groups(world: World) -> None:
    report(world, "h1")
    group(world)
    uuid, plain = boot(world, security_groups=("web", "default")), boot(world, "plain")
    world.report("h2")
    for filters_ports in (True, False):  # whatever the controller has
        with world.ledger.write() as tx:
            here = tx.for_run(world.context("p", filters_ports=filters_ports))
            places = place.claim(here, [mover(world, uuid)], world.fleet, world.options())
            error = places[uuid]
            assert isinstance(error, errors.NoValidHost) and "filters no ports" in error.message
    shown = call(world, lambda tx: instance_views.details(tx, instances.select_live(tx, uuids=[uuid, plain])))
    assert {view["uuid"]: view["security_groups"] for view in shown} == {uuid: ["default", "web"], plain: ["default"]}


# --- hosts that are due -------------------------------------------------------------------------------------------------


def test_hosts_are_due_while_what_they_filter_by_has_changed(world: World) -> None:
    report(world, "h1", memory=1)
    report(world, "h2", memory=1)
    for name in ("a", "b"):
        world.accept(request(name), filters_ports=True)
    world.schedule()
    hosts = sorted(host for _uuid, host in world.claims())
    assert hosts == ["h1", "h2"]
    assert call(world, filter_marks.due) == hosts  # neither has ever had a document
    applied(world, *hosts)
    assert call(world, filter_marks.due) == []
    before = document(world, "h1")
    assert call(world, filter_marks.due) == ["h1"]  # it did not confirm the last one
    call(world, filter_marks.confirm, {"h1": before["revision"]})
    rule = read_rules([{"security_group": "default", "direction": "ingress", "protocol": "icmp"}])
    assert call(world, group_flow.create_rules, rule, "default", {}).hosts == hosts
    assert call(world, filter_marks.due) == hosts
    applied(world, "h1")
    assert call(world, filter_marks.due) == ["h2"]  # it was silent
    applied(world, "h2")
    world.accept(request("c"), run="c", filters_ports=True)  # a new member of the default group
    assert call(world, filter_marks.due) == hosts


def test_a_host_to_which_a_guest_moves_learns_of_new_members(world: World) -> None:
    report(world, "h1")
    uuid = boot(world)
    report(world, "h2")
    wanted = cold.Wanted(
        Selection(uuids=[uuid]), ("h1", "h2"), dict.fromkeys(("h1", "h2"), "qcow2"), None, {}, quotas={}
    )
    assert not call(world, cold.begin, wanted, world.fleet, world.options()).failed
    applied(world, "h1", "h2")  # the filters that come before the guest
    world.accept(request("more"), run="more", filters_ports=True)
    assert call(world, filter_marks.due) == ["h1", "h2"]


def test_numbers_go_on_from_those_of_a_host_that_has_later_ones(world: World) -> None:
    report(world, "h1")
    boot(world)
    number = document(world)["revision"]
    assert not call(world, filter_marks.catch_up, "h1", number)  # another run's document of this ledger
    assert call(world, filter_marks.catch_up, "h1", number + 40)  # of the ledger before it was restored
    assert call(world, filter_marks.due) == ["h1"]
    assert document(world)["revision"] == number + 41


def test_a_document_that_is_older_than_a_change_leaves_its_host_due(world: World) -> None:
    report(world, "h1")
    boot(world)
    old = document(world)
    call(world, filter_marks.mark, ["h1"])
    call(world, filter_marks.confirm, {"h1": old["revision"]})
    assert call(world, filter_marks.due) == ["h1"]


def test_runs_whose_hosts_filter_nothing_mark_nobody(world: World) -> None:
    report(world, "h1")
    world.boot()
    with world.ledger.read() as tx:
        assert filter_marks.hosts_with_filters(tx) == ["h1"]
    world.delete(names=["web"])
    assert world.rows(filter_marks.port_filter_revisions) == []


def test_the_build_of_a_guest_knows_the_groups_for_its_drive(world: World) -> None:
    report(world, "h1")
    group(world)
    for name, groups in {"both": ("web", "default"), "one": ("web",), "plain": ()}.items():
        boot(world, name, security_groups=groups)
    rows = t.cast("list[PlacedInstance]", call(world, instances.select_live))
    found = {build.row.display_name: list(build.security_groups) for build in call(world, builds.load, rows)}
    assert found == {"both": ["default", "web"], "one": ["web"], "plain": ["default"]}
