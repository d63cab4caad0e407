# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A delete through its tasks, as the playbook runs them; the hosts' module is replaced."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import instance_delete, instance_remove
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import history
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request


class Play:
    """:arg bad: names of instances that their hosts cannot remove. :arg away: hosts whose tasks return nothing."""

    def __init__(self, world: World):
        self.world = world
        self.bad: set[str] = set()
        self.away: set[str] = set()
        self.broken = False
        self.hostvars: dict[str, dict[str, t.Any]] = {}

    def remove(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        assert name == "instance_cleanup"
        if self.broken:
            raise KeyError("disks")
        found = {}
        for item in arguments["instances"]:
            row = next(r for r in self.world.rows(tables.instances) if r.uuid == item["uuid"])
            bad = errors.RemoteError(reason="busy").as_dict() if row.display_name in self.bad else None
            found[item["uuid"]] = {"changed": bad is None, "error": bad}
        return {"outcomes": found}

    def __call__(self, run: str = "d", check_mode: bool = False, **options: t.Any) -> dict[str, t.Any]:
        hosts = ["h1", "h2"]
        hostvars = self.hostvars = {name: {} for name in ("localhost", *hosts)}
        variables = {
            "groups": {"all": ["localhost", *hosts], "bootflow_compute": hosts},
            "hostvars": hostvars,
            "inventory_hostname": "localhost",
        }
        ports = WorldPorts(self.world, run, modules=self.remove)

        def task(module: t.Any, **more: t.Any) -> dict[str, t.Any]:
            return t.cast("dict[str, t.Any]", action_of(module, ports, variables, check_mode, **more).act())

        begun = hostvars["localhost"]["bootflow_deleting"] = task(instance_delete, **options)
        for host in begun["hosts"]:
            if host not in self.away:
                variables["inventory_hostname"] = host
                hostvars[host]["bootflow_removed"] = task(instance_remove)
        variables["inventory_hostname"] = "localhost"
        task(instance_delete, phase="removed")
        return task(instance_delete, phase="finish")


@pytest.fixture
def play(world: World) -> Play:
    """web-1 and web-2, one on h1 and one on h2."""
    for host in ("h1", "h2"):
        world.report(host, memory=1)
    world.accept(request("web", 2))
    for host in sorted({p.host for p in world.schedule().placed.values()}):
        world.build(host)
    return Play(world)


def test_deleted_from_all_hosts(play: Play) -> None:
    before = play.world.everything()
    assert play(check_mode=True, names=["web-1", "web-2"])["skipped"] and play.world.everything() == before
    result = play(names=["web-1", "web-2"])
    assert (result["deleted"], result["left"]) == (["web-1", "web-2"], [])
    assert not play.world.claims() and not play.world.addresses()


def test_a_name_that_does_not_exist_deletes_nothing(play: Play) -> None:
    """U10."""
    before = play.world.everything()
    for check_mode in (True, False):
        with pytest.raises(errors.InstanceNotFound, match="wep-1") as caught:
            play(check_mode=check_mode, names=["web-2", "wep-1"])
        assert caught.value.remedy == "Did you mean web-1? The list of instances has: web-1, web-2."
    with pytest.raises(errors.InstanceNotFound, match="r-nothing"):
        play(reservation_ids=["r-nothing"])
    with pytest.raises(errors.InstanceNotFound) as caught:
        play(names=["web-2"], project="defalt")
    assert caught.value.remedy == "Did you mean default? The list of projects with instances has: default."
    assert play.world.everything() == before
    assert play(names=["web-2", "wep-1"], missing_ok=True)["deleted"] == ["web-2"]


def test_one_stays_with_its_fault_and_its_claim(play: Play) -> None:
    play.bad = {"web-2"}
    result = play(names=["web-1", "web-2"])
    assert (result["deleted"], result["error_code"]) == (["web-1"], "DeleteIncomplete")
    (left,) = result["left"]
    assert (left["name"], left["fault"]["code"]) == ("web-2", "RemoteError")
    assert play.world.claims() == {(left["uuid"], left["host"])}
    play.bad.clear()
    assert play(names=["web-2"])["deleted"] == ["web-2"] and not play.world.claims()


def test_a_host_whose_task_returned_nothing_keeps_what_it_has(play: Play) -> None:
    (host,) = {r.host for r in play.world.rows(tables.instances) if r.display_name == "web-1"}
    play.away = {host}
    result = play(names=["web-1", "web-2"])
    assert (result["deleted"], [v["name"] for v in result["left"]]) == (["web-2"], ["web-1"])
    assert {h for _uuid, h in play.world.claims()} == {host}


def test_the_traceback_of_an_unexpected_error_is_in_the_journal(play: Play) -> None:
    """G6: and the task of the host does not fail, so that the others are deleted."""
    play.broken = True
    result = play(names=["web-1"])
    (left,) = result["left"]
    assert (left["fault"]["message"], result["error_code"]) == ("KeyError: 'disks'", "DeleteIncomplete")
    assert ", in remove" not in str([result, play.hostvars]), "of what people and playbooks read"
    with play.world.ledger.read() as tx:
        (event,) = [e for e in history.events_of(tx, left["uuid"]) if e["event"] == "delete"]
    assert (event["result"], event["host"]) == ("Error", left["host"]) and event["finish_time"]
    assert event["details"].startswith("KeyError: 'disks'\n  File ") and ", in remove" in event["details"]
    play.broken = False
    assert play(names=["web-1"])["deleted"] == ["web-1"]
