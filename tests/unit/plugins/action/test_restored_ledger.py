# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ledger that is older than its hosts has instances as builds that have run ever since. No playbook removes them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import audit, boot_accept, compute_report
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import power_states, states
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.audit.audit import Audit
from ansible_collections.bootflow.compute.plugins.plugin_utils.watch.host_report import HostReport
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of, run_stage
from ansible_collections.bootflow.compute.tests.unit.worlds.world import UNTIL, World, request

NAMES = ("h1", "h2")
IMAGE = {"name": "tiny", "disk_format": "qcow2", "allow_unverified": True, "url": "http://x.example/tiny.qcow2"}
VARIABLES: dict[str, t.Any] = {
    "bootflow_flavors": [{"name": "small", "memory_mb": 1024, "vcpus": 1, "root_gb": 1}],
    "bootflow_images": [IMAGE],
    "bootflow_machine_type": "q35",
}


class Hosts:
    """Hosts with guests, as their modules answer for them; ``silent`` ones do not. Each playbook is a run of its own."""

    def __init__(self, world: World):
        self.world = world
        self.guests: dict[str, tuple[str, bool]] = {}  # uuid -> its host, and whether it is built
        self.at_work: list[str] = []
        self.silent: set[str] = set()
        self.runs = 0
        self.more: dict[str, t.Any] = {}  # variables of the playbook
        self.requested = ""  # name of the instance that a boot requests; "": another one each time
        self.ports = WorldPorts(world, "none")
        self.registered: dict[str, dict[str, t.Any]] = {}

    def play(self) -> None:
        """Another playbook begins, some time later."""
        self.runs += 1
        self.world.time += 60.0
        self.registered = {name: {} for name in ("localhost", *NAMES)}

    def task(self, module: t.Any, host: str = "localhost", **options: t.Any) -> dict[str, t.Any]:
        groups = {"all": ["localhost", *NAMES], "bootflow_compute": list(NAMES)}
        other = {
            "name": self.requested or "other-%d" % self.runs,
            "flavor": "small",
            "image": "tiny",
            "networks": "none",
        }
        inventory = {n: {**VARIABLES, "bootflow_instances": [other], **more} for n, more in self.registered.items()}
        inventory["localhost"].update(self.more)
        variables = {"inventory_hostname": host, "groups": groups, "hostvars": inventory, **inventory[host]}
        self.ports = WorldPorts(self.world, "p%d" % self.runs, lambda *given: self._answer(host, *given))
        self.world.time += 1.0
        return run_stage(action_of(module, self.ports, variables, **options))

    def _answer(self, host: str, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        if host in self.silent:
            raise errors.HostUnreachable(host=host, reason="no route")
        return {"compute_node": self._facts(host)} if name == "compute_node_info" else self._cleanup(name, arguments)

    def _facts(self, host: str) -> dict[str, t.Any]:
        mine = {uuid: built for uuid, (of, built) in self.guests.items() if of == host}
        its = {"power_state": power_states.RUNNING, "memory_mb": 1024, "ours": True, "ledger": self.world.ledger.id}
        return {
            "hypervisor_hostname": host,
            "memory_mb": 4096,
            "local_gb": 40,
            "vcpus": 4,
            "machine_types": {"x86_64": ["q35"]},
            "domains": [{"uuid": uuid, "name": "d-%s" % uuid[:4], **its} for uuid in mine],
            "instance_folders": sorted(mine),
            "complete_guests": sorted(uuid for uuid, built in mine.items() if built),
            "at_work": self.at_work,
        }

    def _cleanup(self, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        assert name == "instance_cleanup"
        outcomes = {}
        for each in arguments["instances"]:
            refused = each.get("unfinished") and self.guests.get(each["uuid"], ("", False))[1]
            error = errors.Conflict(message="its build has ended", remedy="Delete it.").as_dict() if refused else None
            if not refused:
                self.guests.pop(each["uuid"], None)
            outcomes[each["uuid"]] = {"changed": not refused, "error": error}
        return {"outcomes": outcomes}

    # --- playbooks

    def boot(self) -> dict[str, t.Any]:
        """Up to the reports of the hosts: of somebody else, unless an instance is requested. Returns what was accepted."""
        self.play()
        accepted = self.task(boot_accept)
        for host in accepted["ask"]:
            self.task(compute_report, host)
        return accepted

    def heartbeat(self) -> None:
        self.play()
        for host in NAMES:
            self.task(compute_report, host)

    def audit(self) -> list[tuple[str, str]]:
        """(kind, action) of what it finds of instances."""
        self.play()
        self.task(audit)
        for host in NAMES:
            self.task(audit, host, phase="inspect")
        audited = self.task(audit, phase="repair")
        for host in audited["compute"]:
            self.task(audit, host, phase="clean")
        return [(f["kind"], f["action"]) for f in audited["findings"] if f["instance"]]


@pytest.fixture
def hosts(world: World) -> Hosts:
    for name in NAMES:
        world.report(name)
    return Hosts(world)


def half(hosts: Hosts, until: str = "spawning", built: bool = True, name: str = "web") -> str:
    """An instance that a ledger has as a build of a run whose lease has expired."""
    uuid = hosts.world.boot(name, until, run="dead")
    hosts.guests[uuid] = (hosts.world.row(uuid).host, built)
    hosts.world.time += 1e6
    return uuid


@pytest.mark.parametrize("until", [*UNTIL])
@pytest.mark.parametrize("playbook", ["boot", "heartbeat", "audit"])
def test_a_guest_that_has_run_ever_since_goes_on(world: World, hosts: Hosts, playbook: str, until: str) -> None:
    uuid = half(hosts, until)
    before = (world.claims(), world.addresses(uuid))
    getattr(hosts, playbook)()
    host = world.row(uuid).host
    assert world.state(uuid) == (states.ACTIVE, None, host) and hosts.guests == {uuid: (host, True)}
    assert (world.claims(), world.addresses(uuid)) == before and not world.cleanups()
    row = world.row(uuid)
    assert (row.power_state, row.domain_name) == (power_states.RUNNING, "d-%s" % uuid[:4])
    assert row.machine_type == "q35", "the next definition has it, too"
    settled = world.everything()["instances"]
    for again in ("audit", "heartbeat"):
        assert not getattr(hosts, again)()
    assert world.everything()["instances"] == settled and uuid in hosts.guests


@pytest.mark.parametrize("until", [*UNTIL])
@pytest.mark.parametrize("playbook", ["boot", "heartbeat", "audit"])
def test_what_a_killed_run_left_half_built_is_removed(world: World, hosts: Hosts, playbook: str, until: str) -> None:
    uuid = half(hosts, until, built=False)
    getattr(hosts, playbook)()
    assert world.state(uuid) == (states.ERROR, None, None) and "run-dead died" in world.fault(uuid).message
    assert not hosts.guests and not world.claims() and not world.cleanups() and not world.addresses(uuid)
    assert world.accept(request("web"), run="again").resumed == [uuid]


@pytest.mark.parametrize("playbook", ["boot", "heartbeat", "audit"])
def test_a_module_that_works_still_is_waited_for(world: World, hosts: Hosts, playbook: str) -> None:
    uuid = half(hosts, built=False)
    hosts.at_work = [uuid]
    getattr(hosts, playbook)()
    assert world.state(uuid)[0] == states.BUILDING and uuid in hosts.guests and world.claims()
    hosts.at_work, hosts.guests[uuid] = [], (hosts.guests[uuid][0], True)
    getattr(hosts, playbook)()
    assert world.state(uuid)[0] == states.ACTIVE


@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("first", ["boot", "heartbeat", "audit"])
@pytest.mark.parametrize("then", ["boot", "heartbeat", "audit"])
def test_nothing_is_removed_of_a_host_that_was_silent_unless_it_says_so(
    world: World, hosts: Hosts, first: str, then: str, built: bool
) -> None:
    uuid = half(hosts, built=built)
    host = world.row(uuid).host
    hosts.silent = {host}
    getattr(hosts, first)()
    assert world.state(uuid) == (states.ERROR, None, None) and world.cleanups() == world.claims() == {(uuid, host)}
    hosts.silent.clear()
    found = getattr(hosts, then)()
    assert (uuid in hosts.guests) is built is bool(world.claims()) is bool(world.addresses(uuid))
    assert ("cleanup", "report") in (found or ()) or not built or then != "audit"
    world.delete(uuids=[uuid])  # as a person says
    hosts.heartbeat()
    assert not hosts.guests and not world.claims() and not world.cleanups() and not world.addresses(uuid)
    assert world.finish() == (["web"], [])


def test_a_host_that_has_it_after_all_when_it_is_cleaned(world: World, hosts: Hosts, monkeypatch: t.Any) -> None:
    """Between its report and its cleanup: the host decides."""
    uuid = half(hosts, built=False)
    facts = hosts._facts

    def then(host: str) -> dict[str, t.Any]:
        found = facts(host)
        hosts.guests[uuid] = (hosts.guests[uuid][0], True)
        return found

    monkeypatch.setattr(hosts, "_facts", then)
    hosts.audit()
    assert uuid in hosts.guests and world.claims() and world.cleanups()
    hosts.boot()
    assert uuid in hosts.guests and world.claims() and world.cleanups()


def test_a_host_that_was_silent_has_it_after_all_when_an_audit_cleans_it(
    world: World, hosts: Hosts, monkeypatch: t.Any
) -> None:
    """The build ends between the report of the host and its pending cleanup: the host decides."""
    uuid = half(hosts, built=False)
    host = world.row(uuid).host
    hosts.silent = {host}
    hosts.heartbeat()
    assert world.state(uuid)[0] == states.ERROR and world.cleanups()
    hosts.silent = set()
    facts = hosts._facts

    def then(name: str) -> dict[str, t.Any]:
        found = facts(name)
        hosts.guests[uuid] = (host, True)
        return found

    monkeypatch.setattr(hosts, "_facts", then)
    assert ("cleanup", "clean") in hosts.audit()
    assert uuid in hosts.guests and world.claims() and world.cleanups()


@pytest.mark.parametrize("until", [*UNTIL])
@pytest.mark.parametrize("built", [True, False])
def test_the_same_boot_takes_over_what_is_not_built_only(world: World, hosts: Hosts, until: str, built: bool) -> None:
    """Where it built a guest again that has run ever since, its failure would remove the guest."""
    hosts.requested = "web"
    (uuid,) = hosts.boot()["created"]
    host = world.schedule("p1").placed[uuid].host
    if until != "scheduled":
        world.build(host, until, "p1")
    hosts.guests[uuid] = (host, built)
    world.time += 1e6
    for name in NAMES:
        world.report(name)  # no host has to report for the scheduler
    accepted = hosts.boot()
    assert accepted["resumed"] == [uuid] and accepted["ask"] == [host]
    assert uuid in hosts.guests and not world.cleanups() and (uuid, host) in world.claims()
    if built:
        assert world.state(uuid) == (states.ACTIVE, None, host)
        events = [e for e in world.rows(tables.instance_action_events) if e.event == "resume"]
        assert [e.details for e in events] == ["taken over from run run-p1"]
        world.build(host, run="p2")
        assert hosts.boot()["unchanged"] == [uuid]
    else:
        assert world.state(uuid) == (states.BUILDING, None, host) and world.row(uuid).run_id == "run-p2"
        assert world.build(host, run="p2") == [uuid]
        assert world.state(uuid) == (states.ACTIVE, None, host)


def test_a_boot_asks_hosts_where_it_places_nothing(world: World, hosts: Hosts) -> None:
    """What a dead run built there is active, and not in error."""
    uuid = half(hosts)
    host = world.row(uuid).host
    (other,) = {*NAMES} - {host}
    hosts.more = {"bootflow_hosts": [other]}
    hosts.boot()
    assert world.state(uuid) == (states.ACTIVE, None, host)


@pytest.mark.parametrize("dies", ["_settle_builds", "_clean_up"])
def test_a_playbook_that_dies_in_between(world: World, hosts: Hosts, monkeypatch: t.Any, dies: str) -> None:
    built, broken = half(hosts), half(hosts, built=False, name="db")

    def killed(*_arguments: t.Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(HostReport, dies, killed)
        for host in NAMES:
            with pytest.raises(KeyboardInterrupt):
                hosts.play(), hosts.task(compute_report, host)
    assert built in hosts.guests
    world.time += 1e6
    hosts.boot()
    assert world.state(built)[0] == states.ACTIVE and world.state(broken)[0] == states.ERROR
    assert [*hosts.guests] == [built] and {u for u, _host in world.claims()} == {built}


def test_an_audit_that_dies_in_between(world: World, hosts: Hosts, monkeypatch: t.Any) -> None:
    built, broken = half(hosts), half(hosts, built=False, name="db")

    def killed(*_arguments: t.Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Audit, "_settle_builds", killed)
        with pytest.raises(KeyboardInterrupt):
            hosts.audit()
    world.time += 1e6
    hosts.boot()
    assert world.state(built)[0] == states.ACTIVE and world.state(broken)[0] == states.ERROR
    assert [*hosts.guests] == [built]


def test_the_domain_of_another_ledger_is_no_guest_of_this_one(world: World, hosts: Hosts, monkeypatch: t.Any) -> None:
    """Its folder and its domain are not in the list of what is built for this ledger, and the cleanup is refused by the host."""
    uuid = half(hosts)
    facts = hosts._facts

    def of_another(host: str) -> dict[str, t.Any]:
        found = facts(host)
        domains = [{**d, "ledger": "0f000000-0000-4000-8000-000000000001"} for d in found["domains"]]
        return {**found, "domains": domains, "complete_guests": [], "instance_folders": []}

    monkeypatch.setattr(hosts, "_facts", of_another)
    hosts.boot()
    assert world.state(uuid) == (states.ERROR, None, None) and uuid in hosts.guests
