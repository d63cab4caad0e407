# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook console: what is asked of which host, and what a person sees."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import instance_console
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of, run_stage
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World, request

VNC = {"listen": "127.0.0.1", "port": 5901}


class Fleet:
    """web-1 and web-2 on h1 and h2, and the playbook console.yml over them."""

    def __init__(self, world: World):
        self.world = world
        for host in ("h1", "h2"):
            world.report(host, memory=1)
        world.accept(request("web", 2))
        for host in sorted({p.host for p in world.schedule().placed.values()}):
            world.build(host)
        self.uuid = {str(r.display_name): str(r.uuid) for r in world.rows(tables.instances)}
        self.host = {str(r.display_name): str(r.host) for r in world.rows(tables.instances)}
        self.hostvars: dict[str, dict[str, t.Any]] = {"localhost": {}, "h1": {}, "h2": {}}
        self.asked: list[tuple[str, t.Any, int]] = []
        self.answers: dict[str, dict[str, t.Any]] = {}
        self.away: set[str] = set()
        self.shown = ""

    def play(self, **options: t.Any) -> dict[str, t.Any]:
        chosen = self.task("localhost", "begin", **options)
        lines = {k: options[k] for k in ("lines",) if k in options}
        for host in chosen["compute"]:
            self.task(host, "work", **lines)
        return self.task("localhost", "finish")

    def task(self, host: str, phase: str, **options: t.Any) -> dict[str, t.Any]:
        ports = WorldPorts(self.world, "o", lambda name, arguments: self.answer(host, name, arguments))
        hosts = {"hostvars": self.hostvars, "groups": {"bootflow_compute": ["h1", "h2"]}}
        variables = {**self.hostvars[host], **hosts, "inventory_hostname": host}
        result = run_stage(action_of(instance_console, ports, variables, phase=phase, **options))
        self.shown = ports.shown[-1] if ports.shown else ""
        return t.cast("dict[str, t.Any]", result)

    def answer(self, host: str, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        assert name == "domain_console"
        if host in self.away:
            return {"unreachable": True, "msg": "no route"}
        self.asked.append((host, list(arguments["uuids"]), arguments["lines"]))
        good = {"changed": False, "error": None, "power_state": 1, "console": ["boot", "login: \x1b[2J"], "vnc": VNC}
        return {"outcomes": {u: self.answers.get(u, good) for u in arguments["uuids"]}}


@pytest.fixture
def fleet(world: World) -> Fleet:
    return Fleet(world)


def test_the_consoles_of_many_hosts(fleet: Fleet) -> None:
    before = fleet.world.everything()
    fleet.hostvars[fleet.host["web-1"]].update(ansible_host="192.0.2.7", ansible_user="root", ansible_port=2222)
    fleet.hostvars[fleet.host["web-2"]]["ansible_connection"] = "local"
    result = fleet.play(names=["web-1", "web-2"], lines=7)
    assert sorted(fleet.asked) == sorted((fleet.host[n], [fleet.uuid[n]], 7) for n in ("web-1", "web-2"))
    assert not result["changed"] and fleet.world.everything() == before
    found = {i["name"]: i for i in result["instances"]}
    tunnel = "ssh -N -L 5901:127.0.0.1:5901 -p 2222 root@192.0.2.7"
    assert found["web-1"]["vnc"] == {**VNC, "tunnel": tunnel} and found["web-2"]["vnc"] == {**VNC, "tunnel": None}
    assert found["web-1"]["console"] == ["boot", "login: \x1b[2J"]
    assert "web-1 on %s: active, RUNNING" % fleet.host["web-1"] in fleet.shown and tunnel in fleet.shown
    assert "  | boot\n  | login: \\x1b[2J" in fleet.shown, "a guest does not write on the terminal of people"
    left = WorldPorts(fleet.world, "o").folder().glob("instance_console.*")
    assert list(left) == [], "what guests print may be secret"


@pytest.mark.parametrize(
    ("vnc", "variables", "tunnel"),
    [
        ({"listen": "0.0.0.0", "port": 5900}, {}, "ssh -N -L 5900:127.0.0.1:5900 h"),
        ({"listen": "::", "port": 5900}, {}, "ssh -N -L '5900:[::1]:5900' h"),
        ({"listen": "10.0.0.1", "port": 5900}, {"ansible_ssh_host": "x; y"}, "ssh -N -L 5900:10.0.0.1:5900 'x; y'"),
        (None, {}, None),
    ],
)
def test_the_tunnel(fleet: Fleet, vnc: t.Any, variables: dict[str, t.Any], tunnel: str | None) -> None:
    uuid, host = fleet.uuid["web-1"], fleet.host["web-1"]
    fleet.hostvars[host].update(variables)
    fleet.answers[uuid] = {"error": None, "power_state": 1, "console": [], "vnc": vnc}
    (found,) = fleet.play(names=["web-1"])["instances"]
    assert "The log of its serial console is empty." in fleet.shown
    told = None if found["vnc"] is None else found["vnc"]["tunnel"]
    assert told == (None if tunnel is None else tunnel.replace(" h", " " + host) if tunnel.endswith(" h") else tunnel)


def test_one_that_fails_does_not_hide_the_others(fleet: Fleet) -> None:
    fleet.away = {fleet.host["web-2"]}
    result = fleet.play(names=["web-1", "web-2"])
    (item,) = result["failed_items"]
    assert (item["name"], item["error"]["code"], result["error_code"]) == (
        "web-2",
        "HostUnreachable",
        "OperationFailed",
    )
    assert "| boot" in fleet.shown and "web-2: HostUnreachable" in fleet.shown


def test_what_has_no_host(fleet: Fleet) -> None:
    with fleet.world.ledger.write() as tx:
        mine = tables.instances.c.display_name == "web-1"
        tx.execute(tables.instances.update().where(mine).values(host=None, vm_state=states.ERROR, locked_by="bob"))
        tx.execute(tables.instances.update().where(~mine).values(host="gone"))
    result = fleet.play(project="default", all=True)
    assert {i["name"]: i["error"]["code"] for i in result["failed_items"]} == {
        "web-1": "InstanceNotReady",
        "web-2": "ComputeHostNotFound",
    }
    assert fleet.asked == []
    with fleet.world.ledger.write() as tx:
        for name, host in fleet.host.items():
            mine = tables.instances.c.display_name == name
            tx.execute(tables.instances.update().where(mine).values(host=host, vm_state=states.ACTIVE, locked_by=None))


def test_a_selection_that_selects_nothing(fleet: Fleet) -> None:
    with pytest.raises(errors.InvalidInput, match="no instance is selected"):
        fleet.play()
    with pytest.raises(errors.InstanceNotFound, match="nobody"):
        fleet.play(names=["web-1", "nobody"])
