# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Security groups of projects in the ledger, and the documents of hosts' packet filters."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.interfaces.security_entries import (
    read_group_changes,
    read_groups,
    read_rules,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.security_rules import default_group_id
from ansible_collections.bootflow.compute.plugins.module_utils.flows.networks import security_groups as flow
from ansible_collections.bootflow.compute.plugins.module_utils.flows.networks.port_filters import port_filters_of
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.networks import security_groups as rows
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

WEB = {"security_group": "web", "direction": "ingress"}


def call(world: World, function: t.Callable[..., t.Any], *arguments: t.Any) -> t.Any:
    with world.ledger.write() as tx:
        return function(tx.for_run(world.context("p", filters_ports=True)), *arguments)


def create(world: World, *names: str, **limits: int) -> flow.GroupsWritten:
    return call(world, flow.create, read_groups([{"name": name} for name in names]), "default", limits)


def add(world: World, *rules: dict[str, t.Any], project: str = "default", **limits: int) -> flow.GroupsWritten:
    return call(world, flow.create_rules, read_rules(list(rules)), project, limits)


def delete(world: World, *words: str) -> flow.GroupsWritten:
    return call(world, flow.delete, words, "default", False)


def refused(function: t.Callable[..., t.Any], *arguments: t.Any, **named: t.Any) -> list[tuple[str, int]]:
    with pytest.raises(errors.InvalidRequest) as caught:
        function(*arguments, **named)
    return [(e["code"], e["status"]) for e in caught.value.errors]


def test_a_group_has_the_rules_of_a_new_group_and_is_made_once(world: World) -> None:
    (group,) = create(world, "web").created
    assert create(world, "web").unchanged == [group]
    (view,) = call(world, rows.views, ["web"])
    assert [(r["direction"], r["ethertype"]) for r in view["security_group_rules"]] in (
        [("egress", "IPv4"), ("egress", "IPv6")],
        [("egress", "IPv6"), ("egress", "IPv4")],
    )


def test_rules_that_mean_the_same_are_there_once(world: World) -> None:
    create(world, "web")
    rule = {**WEB, "protocol": "tcp", "port_range_min": 80, "port_range_max": 80}
    (key,) = add(world, rule).created
    assert add(world, rule).unchanged == [key]
    assert refused(add, world, {**rule, "remote_ip_prefix": "0.0.0.0/0"}) == [("SecurityGroupRuleExists", 409)]
    assert refused(add, world, {**WEB}, {**WEB}) == [("DuplicateSecurityGroupRuleInPost", 409)]
    assert refused(add, world, {**WEB, "remote_group": "none"}) == [("SecurityGroupNotFound", 404)]
    assert call(world, flow.delete_rules, [key], "default", False).deleted == [key]
    assert refused(call, world, flow.delete_rules, [key], "default", False) == [("SecurityGroupRuleNotFound", 404)]


def test_the_default_group_stays_and_keeps_its_name(world: World) -> None:
    assert refused(delete, world, "default") == [("SecurityGroupCannotRemoveDefault", 409)]
    change = read_group_changes([{"security_group": "default", "name": "other"}])
    assert refused(call, world, flow.update, change, "default") == [("SecurityGroupCannotUpdateDefault", 409)]
    assert refused(read_groups, [{"name": "default"}]) == [("SecurityGroupDefaultAlreadyExists", 409)]


def test_quotas_count_groups_and_rules(world: World) -> None:
    assert refused(create, world, "a", security_groups=1) == [("OverQuota", 403)]
    create(world, "web", security_groups=2)
    assert refused(add, world, WEB, security_group_rules=6) == [("OverQuota", 403)]
    assert add(world, WEB, security_group_rules=7).created


def test_deleting_a_group_takes_along_the_rules_that_name_it(world: World) -> None:
    create(world, "web", "db")
    add(world, {"security_group": "db", "direction": "ingress", "remote_group": "web"})
    delete(world, "web")
    (view,) = call(world, rows.views, ["db"])
    assert [rule["direction"] for rule in view["security_group_rules"]] == ["egress", "egress"]


def test_the_document_of_a_host_has_its_ports_and_the_members_of_remote_groups(world: World) -> None:
    world.report("h1")
    uuid = world.boot("web")
    group = default_group_id("default")
    first = call(world, port_filters_of, ["h1"])["h1"]
    (port,) = first["ports"]
    assert (port["instance"], port["groups"], port["device"]) == (uuid, [group], "tap" + port["port_id"][:11])
    addresses = [a for members in first["groups"][group]["members"].values() for a in members]
    assert sorted(a.split("/")[0] for a in addresses) == sorted(port["addresses"]) and addresses
    assert sorted(
        (r["direction"], r["remote_group_id"]) for r in first["groups"][group]["rules"] if r["remote_group_id"]
    ) == [
        ("ingress", group),
        ("ingress", group),
    ]
    assert call(world, port_filters_of, ["h1", "h2"])["h1"]["revision"] == first["revision"] + 1
    rule = {"security_group": "default", "direction": "ingress", "protocol": 47}
    assert add(world, rule).hosts == ["h1"]
    document = call(world, port_filters_of, ["h1"])["h1"]
    assert 47 in [r["protocol"] for r in document["groups"][group]["rules"]]
