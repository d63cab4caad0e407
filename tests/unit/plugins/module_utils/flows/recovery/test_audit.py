# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import threading
import typing as t
from dataclasses import replace

import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import plan as rules
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit.evidence import Domain, Evidence, Snapshot
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit.plan import Finding
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import ServerGroup
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.claims import Overhead
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import audit
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery.audit import Todo
from ansible_collections.bootflow.compute.plugins.module_utils.ledger import database
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import groups, nodes, service_state
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema.tables import (
    claims,
    compute_nodes,
    device_claims,
    instances,
    ip_allocations,
    ports,
    server_groups,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.world import SMALL, World, request

STAGES = ("scheduled", "networking", "block_device_mapping", "spawning")


class Auditor:
    """One audit run against a world: what the hosts answered is told by the test."""

    def __init__(self, world: World, run: str = "audit"):
        self.world = world
        self.run = run

    @property
    def context(self) -> t.Any:
        return self.world.context(self.run)

    def seen(self, *hosts: str, domains: t.Mapping[str, t.Sequence[str]] | None = None, **fields: t.Any) -> Evidence:
        """``hosts`` answered just now, with those domains that the ledger has there, or ``domains``."""
        living = [r for r in self.world.rows(instances) if r.deleted == "" and r.vm_state != states.BUILDING]
        snapshots = {}
        for host in hosts:
            there = domains[host] if domains is not None else [r.uuid for r in living if r.host == host]
            own = [Domain(u, "d-" + u[:8], 1024, ours=True) for u in there]
            snapshots[host] = Snapshot(host, host, self.world.time + 1, own, list(there))
        return Evidence(snapshots=snapshots, **fields)

    def plan(self, evidence: Evidence) -> list[Finding]:
        return self.world.ledger.for_run(self.context).inspect(audit.plan, evidence)

    def repair(self, evidence: Evidence, planned: t.Sequence[Finding] | None = None) -> audit.Repaired:
        planned = self.plan(evidence) if planned is None else planned
        repaired = self.world.ledger.for_run(self.context).transact(audit.repair, planned, evidence)
        for host, uuids in repaired.abandoned.items():
            self.world.ledger.for_run(self.context).transact(audit.abandon, host, uuids, "no route", {})
        return repaired

    def clean(self, host: str, todo: Todo, problems: t.Mapping[str, errors.BootflowError] | None = None) -> list[str]:
        ledger = self.world.ledger
        wanted = ledger.for_run(self.context).inspect(audit.open_todo, host, todo)
        problems = {u: p for u, p in (problems or {}).items() if u in wanted}
        now = Todo(*([u for u in part if u in wanted] for part in (todo.builds, todo.deleting, todo.leftovers)))
        ledger.for_run(self.context).transact(audit.builds_cleaned, host, now, problems, {})
        ledger.for_run(self.context).transact(audit.deletes_cleaned, host, now, problems)
        ledger.transact(audit.leftovers_cleaned, host, [u for u in now.leftovers if u not in problems])
        return sorted(wanted)

    def all(self, *hosts: str, **fields: t.Any) -> list[Finding]:
        """A whole audit of hosts that answer and can be cleaned. Returns what it found."""
        repaired = self.repair(self.seen(*hosts, **fields))
        for host, todo in repaired.todo.items():
            self.clean(host, todo)
        self.world.finish(self.run)
        return repaired.findings


def kinds(findings: t.Iterable[Finding]) -> list[str]:
    return sorted({f.kind for f in findings})


def changing(findings: t.Iterable[Finding]) -> list[str]:
    return sorted({f.kind for f in findings if f.changes})


def spoil(world: World, statement: t.Any) -> None:
    with world.ledger.write() as tx:
        tx.execute(statement)


@pytest.fixture
def auditor(world: World) -> Auditor:
    return Auditor(world)


def die(world: World) -> None:
    """The leases of all runs run out."""
    world.time += 10_000


# --- usage ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", rules.USAGE_COLUMNS)
def test_usage_that_was_changed_behind_the_ledger(world: World, auditor: Auditor, column: str) -> None:
    world.report("h1")
    world.boot("web")
    right = world.used("h1")
    spoil(world, compute_nodes.update().values(**{column: 7}))
    found = auditor.all("h1")
    assert [(f.kind, f.what, f.old) for f in found] == [(rules.USAGE, column, 7)]
    assert world.used("h1") == right
    assert found[0].new == right[rules.USAGE_COLUMNS.index(column)]
    assert auditor.all("h1") == [], "a second audit has nothing to do"


def test_an_audit_of_what_is_right_writes_nothing(world: World, auditor: Auditor) -> None:
    world.report("h1")
    world.boot("web", count=3)
    before = world.everything()
    assert auditor.all("h1") == []
    assert world.everything() == before


def test_the_hypervisor_s_overhead_is_claimed_kept_and_given_back(world: World, auditor: Auditor) -> None:
    """It was always 0. An instance keeps what it was accepted with, whatever the setting is now."""
    world.report("h1")
    empty = world.used("h1")
    uuid = world.boot("web", overhead=Overhead(memory_mb=64, disk_gb=1, vcpus=2))
    (claim,) = world.rows(claims)
    expected = SMALL.memory_mb + 64, SMALL.root_gb + 1, SMALL.vcpus + 2
    assert (claim.memory_mb, claim.disk_gb, claim.vcpus) == expected
    assert world.used("h1")[:3] == tuple(before + more for before, more in zip(empty, expected))
    assert auditor.all("h1") == []
    spoil(world, claims.update().values(memory_mb=SMALL.memory_mb))
    assert changing(auditor.all("h1")) == [rules.WRONG_CLAIM]
    assert world.rows(claims)[0].memory_mb == expected[0]
    world.delete(uuids=[uuid])
    world.removed("h1", [uuid])
    assert world.used("h1") == empty


def test_a_plan_writes_nothing(world: World, auditor: Auditor) -> None:
    world.report("h1")
    world.boot("web")
    world.boot("half", until="spawning", run="b")
    die(world)
    spoil(world, compute_nodes.update().values(memory_mb_used=1))
    before = world.everything()
    found = auditor.plan(auditor.seen("h1", domains={"h1": []}))
    assert kinds(found) == [rules.DEAD_BUILD, rules.INSTANCE_WITHOUT_DOMAIN, rules.USAGE]
    assert world.everything() == before
    auditor.all("h1")


# --- runs that died -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", STAGES)
def test_claims_of_a_dead_run_go_back_after_its_host_was_cleaned(world: World, auditor: Auditor, until: str) -> None:
    world.report("h1")
    empty = world.used("h1")
    uuid = world.boot("web", until=until)
    die(world)
    repaired = auditor.repair(auditor.seen("h1"))
    assert repaired.todo["h1"].builds == [uuid]
    assert world.claims() == {(uuid, "h1")}, "not before the host is clean"
    assert auditor.clean("h1", repaired.todo["h1"]) == [uuid]
    assert world.state(uuid) == (states.ERROR, None, None)
    assert world.claims() == set() and world.used("h1") == empty and world.addresses() == []
    fault = world.fault(uuid)
    assert "run-a" not in fault.message or "died" in fault.message
    assert "boot" in fault.remedy
    assert auditor.all("h1") == []
    failed = world.rows(compute_nodes)[0].failed_builds
    assert failed == 0, "the host is not to blame"


def test_the_same_boot_builds_it_anew(world: World, auditor: Auditor) -> None:
    world.report("h1")
    uuid = world.boot("web", until="spawning")
    die(world)
    auditor.all("h1")
    assert world.accept(request("web"), run="b").resumed == [uuid]
    world.schedule("b")
    world.build("h1", run="b")
    assert world.state(uuid) == (states.ACTIVE, None, "h1")


def test_a_build_without_host_ends_at_once(world: World, auditor: Auditor) -> None:
    uuid = world.boot("web", until="accepted")
    die(world)
    found = auditor.all()
    assert [(f.kind, f.action) for f in found] == [(rules.DEAD_BUILD, rules.END)]
    assert world.state(uuid) == (states.ERROR, None, None) and world.addresses() == []
    assert "run run-a died" in world.fault(uuid).message


@pytest.mark.parametrize("until", ["accepted", *STAGES])
def test_a_run_that_lives_loses_nothing(world: World, auditor: Auditor, until: str) -> None:
    world.report("h1")
    uuid = world.boot("web", until=until)
    before = world.everything()
    assert auditor.all("h1") == [] and auditor.all("h1", remove_orphans=True) == []
    assert world.everything() == before
    if until != "accepted":
        stages = STAGES[1:] if until == "scheduled" else ()
        if stages:
            world.build("h1")
            assert world.state(uuid)[0] == states.ACTIVE


def test_a_run_that_renewed_after_the_plan_loses_nothing(world: World, auditor: Auditor) -> None:
    """The plan is older than the lease: what counts is what is there under the lock."""
    world.report("h1")
    uuid = world.boot("web", until="networking")
    die(world)
    evidence = auditor.seen("h1")
    planned = auditor.plan(evidence)
    assert changing(planned) == [rules.DEAD_BUILD]
    world.begin(audit_stage(), "h1", "a")  # renews
    repaired = auditor.repair(evidence, planned)
    assert repaired.todo == {} and repaired.findings == []
    assert world.row(uuid).run_id == "run-a" and world.claims() == {(uuid, "h1")}


def audit_stage() -> t.Any:
    from ansible_collections.bootflow.compute.plugins.module_utils.flows.boot import builds

    return builds.BLOCK_DEVICE_MAPPING


def test_a_late_worker_of_a_dead_run_loses_the_swap(world: World, auditor: Auditor) -> None:
    world.report("h1")
    uuid = world.boot("web", until="spawning")
    die(world)
    repaired = auditor.repair(auditor.seen("h1"))
    assert world.spawned("h1", [uuid], "a") == ([], [uuid])
    auditor.clean("h1", repaired.todo["h1"])
    assert world.state(uuid)[0] == states.ERROR


def test_a_host_that_does_not_answer_keeps_its_claims_until_it_is_cleaned(world: World, auditor: Auditor) -> None:
    world.report("h1")
    world.report("h2")
    uuid = world.boot("web", until="spawning")
    host = world.row(uuid).host
    other = {"h1": "h2", "h2": "h1"}[host]
    full = world.used(host)
    die(world)
    away = replace(auditor.seen(other), unreachable={host: "no route"})
    repaired = auditor.repair(away)
    assert changing(repaired.findings) == [rules.DEAD_BUILD, rules.HOST_UNREACHABLE]
    assert world.state(uuid) == (states.ERROR, None, None)
    assert world.cleanups() == {(uuid, host)} and world.claims() == {(uuid, host)} and world.used(host) == full
    (row,) = world.rows(compute_nodes, compute_nodes.c.host == host)
    assert row.unreachable_reason == "no route"
    waiting = auditor.repair(away).findings
    assert changing(waiting) == [] and kinds(waiting) == [rules.CLEANUP, rules.HOST_UNREACHABLE]
    found = auditor.all("h1", "h2")
    assert (rules.CLEANUP, rules.CLEAN) in {(f.kind, f.action) for f in found}
    assert world.claims() == set() and world.cleanups() == set() and world.addresses() == []


def test_a_host_that_could_not_be_cleaned(world: World, auditor: Auditor) -> None:
    world.report("h1")
    uuid = world.boot("web", until="spawning")
    die(world)
    repaired = auditor.repair(auditor.seen("h1"))
    auditor.clean("h1", repaired.todo["h1"], {uuid: errors.HostUnreachable(host="h1", reason="it went away")})
    assert world.state(uuid)[0] == states.ERROR
    assert world.cleanups() == {(uuid, "h1")} and world.claims() == {(uuid, "h1")}
    assert "it went away" in world.rows(compute_nodes)[0].unreachable_reason


def test_an_audit_that_dies_is_taken_over_by_the_next(world: World, auditor: Auditor) -> None:
    world.report("h1")
    uuid = world.boot("web", until="spawning")
    die(world)
    auditor.repair(auditor.seen("h1"))
    assert world.row(uuid).run_id == "run-audit"
    again = Auditor(world, "second")
    assert again.all("h1") == [], "the first audit lives and works on it"
    die(world)
    again.all("h1")
    assert world.state(uuid)[0] == states.ERROR and world.claims() == set()


def test_a_boot_is_refused_while_audit_cleans_its_instance(world: World, auditor: Auditor) -> None:
    world.report("h1")
    world.boot("web", until="spawning")
    die(world)
    repaired = auditor.repair(auditor.seen("h1"))
    (refusal,) = world.refusals(request("web"), run="b")
    assert refusal["code"] == "InstanceBusy"
    auditor.clean("h1", repaired.todo["h1"])
    assert len(world.accept(request("web"), run="b").resumed) == 1


def test_a_deletion_that_died_is_finished(world: World, auditor: Auditor) -> None:
    world.report("h1")
    uuid = world.boot("web")
    world.delete(names=["web"])
    assert auditor.all("h1") == [], "its run lives"
    die(world)
    found = auditor.all("h1", domains={"h1": [uuid]})
    assert changing(found) == [rules.DEAD_DELETE]
    assert world.state(uuid) == (states.DELETED, None, None)
    assert world.claims() == set() and world.addresses() == []


# --- what is left of the dead -----------------------------------------------------------------------------------------------


def test_what_deleted_instances_left(world: World, auditor: Auditor) -> None:
    world.report("h1")
    uuid = world.boot("web")
    kept_claim = world.rows(claims)[0]._mapping
    kept_ports = [dict(r._mapping) for r in world.rows(ports)]
    kept_addresses = [dict(r._mapping) for r in world.rows(ip_allocations)]
    world.delete(names=["web"])
    world.removed("h1", [uuid])
    world.finish()
    empty = world.used("h1")
    for table, rows in ((claims, [dict(kept_claim)]), (ports, kept_ports), (ip_allocations, kept_addresses)):
        spoil(world, table.insert().values(rows))
    node_id = kept_claim["compute_node_id"]
    for device in ("0000:01:00.0", "0000:02:00.0"):
        spoil(
            world,
            device_claims.insert().values(
                instance_uuid=uuid, compute_node_id=node_id, kind="pci", device=device, detail={}
            ),
        )
    world.time += 5
    found = auditor.all("h1")
    assert changing(found) == [rules.PORT, rules.STALE_CLAIM]
    assert world.claims() == set() and world.addresses() == [] and world.used("h1") == empty
    assert world.count(device_claims) == 0 and world.count(ports) == 0
    assert auditor.all("h1") == []


def test_devices_that_no_claim_stands_behind(world: World, auditor: Auditor) -> None:
    node_id = world.report("h1")
    uuid = world.boot("web")
    row = {"instance_uuid": uuid, "compute_node_id": node_id, "kind": "pci", "detail": {}}
    spoil(world, device_claims.insert().values(device="0000:01:00.0", claim_kind="move", **row))
    spoil(world, device_claims.insert().values(device="0000:02:00.0", **row))
    auditor.all("h1")
    assert [r.device for r in world.rows(device_claims)] == ["0000:02:00.0"]


def test_a_claim_that_got_lost_comes_back(world: World, auditor: Auditor) -> None:
    world.report("h1")
    uuid = world.boot("web")
    before, full = dict(world.rows(claims)[0]._mapping), world.used("h1")
    spoil(world, claims.delete())
    spoil(world, compute_nodes.update().values(memory_mb_used=0, local_gb_used=0, vcpus_used=0, num_instances=0))
    found = auditor.all("h1")
    assert changing(found) == [rules.MISSING_CLAIM]
    after = dict(world.rows(claims)[0]._mapping)
    for volatile in ("id", "created_at"):
        before.pop(volatile), after.pop(volatile)
    assert after == before and world.used("h1") == full
    assert world.claims() == {(uuid, "h1")}


def test_a_claim_of_other_amounts_is_corrected(world: World, auditor: Auditor) -> None:
    world.report("h1")
    world.boot("web")
    right = world.rows(claims)
    spoil(world, claims.update().values(memory_mb=1, vcpus=99))
    found = auditor.all("h1")
    assert changing(found) == [rules.WRONG_CLAIM]
    assert world.rows(claims) == right


def test_a_group_without_members_is_forgotten(world: World, auditor: Auditor) -> None:
    group = ServerGroup(id="6f" * 16, name="web", policy="anti-affinity", project="default")
    with world.ledger.write() as tx:
        groups.ensure(tx.for_run(world.context()), group)
    assert changing(auditor.all()) == [rules.SERVER_GROUP]
    assert world.count(server_groups) == 0
    with world.ledger.write() as tx:
        groups.ensure(tx.for_run(world.context()), group)
    planned = auditor.plan(Evidence())
    world.boot("web", until="accepted", server_group=group)
    assert auditor.repair(Evidence(), planned).findings == []
    assert world.count(server_groups) == 1, "somebody joined it meanwhile"


# --- orphans ------------------------------------------------------------------------------------------------------------------


def test_orphans_go_only_when_the_user_says_so(world: World, auditor: Auditor) -> None:
    world.report("h1")
    uuid = world.boot("web")
    world.delete(names=["web"])
    world.removed("h1", [uuid])
    world.finish()
    stranger = "0b" * 4 + "-0000-4000-8000-" + "0" * 12
    there = {"h1": [uuid, stranger]}
    told = auditor.repair(auditor.seen("h1", domains=there))
    assert kinds(told.findings) == [rules.ORPHAN_DOMAIN] and changing(told.findings) == [] and not told.todo
    gone = auditor.repair(auditor.seen("h1", domains=there, remove_orphans=True))
    assert sorted(gone.todo["h1"].leftovers) == sorted([uuid, stranger])
    assert auditor.clean("h1", gone.todo["h1"]) == sorted([uuid, stranger])
    assert world.cleanups() == set()


def test_disks_of_nobody_go_through_the_same_door(world: World, auditor: Auditor) -> None:
    world.report("h1")
    uuid = world.boot("web")
    world.delete(names=["web"])
    world.removed("h1", [uuid])
    world.finish()
    living = world.boot("db")
    there = {uuid: [uuid + "_disk"], living: [living + "_disk"]}

    def seen(volumes: t.Mapping[str, t.Sequence[str]], **fields: t.Any) -> Evidence:
        evidence = auditor.seen("h1", **fields)
        return replace(evidence, snapshots={h: replace(s, volumes=volumes) for h, s in evidence.snapshots.items()})

    told = auditor.repair(seen(there))
    assert kinds(told.findings) == [rules.ORPHAN_DISK] and not told.todo and world.cleanups() == set()
    gone = auditor.repair(seen(there, remove_orphans=True))
    assert gone.todo["h1"].leftovers == [uuid]
    assert auditor.clean("h1", gone.todo["h1"]) == [uuid] and world.cleanups() == set()
    assert kinds(auditor.repair(seen({living: there[living]}, remove_orphans=True)).findings) == []


def test_no_boot_builds_an_instance_where_its_orphan_is_being_removed(world: World, auditor: Auditor) -> None:
    world.report("h1")
    uuid = world.boot("web", until="spawning")
    world.fail("h1", uuid, errors.BuildAbortException(instance_uuid=uuid, reason="x"))
    world.time += 5
    gone = auditor.repair(auditor.seen("h1", domains={"h1": [uuid]}, remove_orphans=True))
    assert world.cleanups() == {(uuid, "h1")}
    world.accept(request("web"), run="b")
    assert world.schedule("b").failed == [uuid], "its only host is closed to it"
    auditor.clean("h1", gone.todo["h1"])
    world.accept(request("web"), run="b")
    assert world.schedule("b").placed[uuid].host == "h1"


def test_an_orphan_that_was_given_a_build_meanwhile_is_left_alone(world: World, auditor: Auditor) -> None:
    world.report("h1")
    uuid = world.boot("web", until="spawning")
    world.fail("h1", uuid, errors.BuildAbortException(instance_uuid=uuid, reason="x"))
    world.time += 5
    evidence = auditor.seen("h1", domains={"h1": [uuid]}, remove_orphans=True)
    planned = auditor.plan(evidence)
    assert changing(planned) == [rules.ORPHAN_DOMAIN]
    world.accept(request("web"), run="b")
    world.schedule("b")
    repaired = auditor.repair(evidence, planned)
    assert repaired.todo == {} and world.cleanups() == set()


# --- in competition -----------------------------------------------------------------------------------------------------------


def test_an_audit_follows_the_guests(world: World, auditor: Auditor) -> None:
    """What is off is stopped; a guest that should not run is told, for power_sync to stop it."""
    world.report("h1")
    off, on, same = (world.boot(name) for name in ("off", "on", "same"))
    spoil(world, instances.update().where(instances.c.uuid == on).values(vm_state=states.STOPPED, power_state=4))
    power = {off: states.SHUTDOWN, on: states.RUNNING, same: states.RUNNING}

    def follow() -> list[tuple[t.Any, ...]]:
        world.time += 1
        domains = [Domain(u, "d", 1024, ours=True, power_state=p) for u, p in power.items()]
        evidence = Evidence(snapshots={"h1": Snapshot("h1", "h1", world.time, domains)})
        found = world.ledger.for_run(auditor.context).transact(audit.record_power_states, evidence)
        assert {(f.kind, f.host) for f in found} <= {(rules.POWER_STATE, "h1")}
        return [(f.instance, f.what, f.old, f.new, f.action, bool(f.remedy)) for f in found]

    stopped = (off, "vm_state", "active", "stopped", rules.SETTLE, False)
    assert sorted(follow()) == sorted([stopped, (on, "power_state", "SHUTDOWN", "RUNNING", rules.RECORD, True)])
    assert [world.state(u)[:2] for u in (off, on, same)] == [("stopped", None), ("stopped", None), ("active", None)]
    assert follow() == [(on, "power_state", "RUNNING", "RUNNING", rules.REPORT, True)], "nothing is new"


def test_two_audits_at_once_take_turns(world: World, auditor: Auditor) -> None:
    world.report("h1", memory=20)
    uuids = world.accept(request("web", 8)).created
    world.schedule()
    die(world)
    evidence = auditor.seen("h1")
    results: list[audit.Repaired] = []
    problems: list[Exception] = []

    def one(name: str) -> None:
        ledger = database.open_ledger(world.url)
        try:
            context = world.context(name)
            planned = ledger.for_run(context).inspect(audit.plan, evidence)
            results.append(ledger.for_run(context).transact(audit.repair, planned, evidence))
        except Exception as e:
            problems.append(e)
        finally:
            ledger.close()

    threads = [threading.Thread(target=one, args=("audit%d" % i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
    adopted = [u for r in results for todo in r.todo.values() for u in todo.builds]
    assert sorted(adopted) == sorted(uuids), "each build is cleaned by one audit"


def test_audits_beside_boots_and_deletions(world: World, auditor: Auditor) -> None:
    """Nothing is lost and nothing is left, whoever comes first: the laws are checked at the end."""
    for number in range(1, 4):
        world.report("h%d" % number, memory=50)
    problems: list[Exception] = []
    over = threading.Event()

    def audits() -> None:
        mine = World(world.url)
        mine.time = world.time
        try:
            while not over.is_set():
                Auditor(mine, "audit").all("h1", "h2", "h3")
        except Exception as e:
            problems.append(e)
        finally:
            mine.ledger.close()

    def boots(name: str) -> None:
        mine = World(world.url)
        mine.time = world.time
        mine.rng.seed(name)
        try:
            for i in range(4):
                names = ["%s-%d-%d" % (name, i, j) for j in range(1, 4)]
                created = mine.accept(request("%s-%d" % (name, i), 3), run=name).created
                placed = mine.schedule(name).placed
                assert sorted(placed) == sorted(created)
                for host in sorted({p.host for p in placed.values()}):
                    mine.build(host, run=name)
                assert {mine.state(u)[0] for u in created} == {states.ACTIVE}
                if i % 2:
                    for host in mine.delete(name, names=names).hosts:
                        mine.removed(host, [d["uuid"] for d in mine.of_host(host, name)], name)
                    gone, left = mine.finish(name)
                    assert sorted(gone) == sorted(names) and left == []
        except Exception as e:
            problems.append(e)
        finally:
            mine.ledger.close()

    workers = [threading.Thread(target=boots, args=("b%d" % i,)) for i in range(3)]
    auditing = threading.Thread(target=audits)
    auditing.start()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    over.set()
    auditing.join(60)
    assert problems == []
    assert len(world.claims()) == 3 * 2 * 3
    assert changing(auditor.all("h1", "h2", "h3")) == []


# --- hosts --------------------------------------------------------------------------------------------------------------------


def set_state(world: World, host: str | list[str], state: str, reason: str = "") -> list[dict[str, t.Any]]:
    hosts = [host] if isinstance(host, str) else host
    return world.ledger.transact(service_state.set_state, hosts, state, reason)


def test_a_disabled_host_takes_nothing_until_it_is_enabled(world: World) -> None:
    world.report("h1")
    changes = set_state(world, "h1", "disabled", "new memory")
    assert changes == [
        {"host": "h1", "what": "service_disabled", "from": False, "to": True},
        {"host": "h1", "what": "service_disabled_reason", "from": "", "to": "new memory"},
    ]
    assert set_state(world, "h1", "disabled", "new memory") == []
    assert [c["what"] for c in set_state(world, "h1", "disabled", "fans")] == ["service_disabled_reason"]
    world.report("h1")  # a report does not enable it
    with world.ledger.read() as tx:
        (host,) = world.hosts(tx)
    assert host.disabled and host.disabled_reason == "fans"
    world.accept(request("web"))
    assert len(world.schedule().failed) == 1
    set_state(world, "h1", "enabled")
    world.accept(request("web"))
    assert len(world.schedule().placed) == 1


def test_a_host_that_is_forced_down_takes_nothing_until_it_is_up(world: World) -> None:
    world.report("h1")
    set_state(world, "h1", "forced_down", "it burns")
    set_state(world, "h1", "disabled")
    set_state(world, "h1", "up")
    assert world.ledger.inspect(service_state.states_of, ["h1"])["h1"] == {
        "disabled": True,
        "disabled_reason": "",
        "forced_down": False,
        "forced_down_reason": "",
        "by_inventory": False,
    }
    set_state(world, "h1", "enabled")
    set_state(world, "h1", "forced_down")
    world.accept(request("web"))
    assert len(world.schedule().failed) == 1
    set_state(world, "h1", "up")
    world.accept(request("web"))
    assert len(world.schedule().placed) == 1


def test_the_inventory_disables_beside_the_ledger(world: World) -> None:
    world.report("h1", disabled=True, disabled_reason="in the inventory")
    shown = world.ledger.inspect(service_state.states_of, ["h1"])["h1"]
    assert shown["by_inventory"] and shown["disabled"] and shown["disabled_reason"] == "in the inventory"


@pytest.mark.parametrize(
    ("hosts", "state", "reason", "error"),
    [
        (["h1"], "down", "", errors.InvalidInput),
        (["h1"], "enabled", "why", errors.InvalidInput),
        (["h1"], "up", "why", errors.InvalidInput),
        (["h1"], "disabled", "x" * 256, errors.InvalidInput),
        (["h1"], "disabled", "a\0b", errors.InvalidInput),
        ([], "disabled", "", errors.InvalidInput),
        (["h1", "h9"], "disabled", "", errors.ComputeHostNotFound),
    ],
)
def test_what_cannot_be_said_of_a_host(
    world: World, hosts: list[str], state: str, reason: str, error: type[errors.BootflowError]
) -> None:
    world.report("h1")
    before = world.everything()
    with pytest.raises(error) as raised:
        set_state(world, hosts, state, reason)
    assert raised.value.remedy and 400 <= raised.value.status < 500
    assert world.everything() == before


def test_a_report_is_what_the_audit_expects(world: World, auditor: Auditor) -> None:
    """What an audit compares is what a report writes: the audit after it finds nothing."""
    facts = {"hypervisor_hostname": "h1", "memory_mb": 4096, "local_gb": 10, "vcpus": 4, "hypervisor_version": 7002000}
    settings = {"ram_allocation_ratio": 2.0, "reserved_memory_mb": 99, "availability_zone": "a", "disabled": False}
    snapshot = Snapshot("h1", "h1", world.time, columns=audit.columns_of(facts, settings))
    found = auditor.plan(Evidence(snapshots={"h1": snapshot}))
    assert [(f.kind, f.what) for f in found] == [(rules.HOST_FACTS, "compute_node")]
    world.ledger.for_run(world.context()).transact(nodes.record_report, "h1", facts, settings)
    assert auditor.plan(Evidence(snapshots={"h1": snapshot})) == []
    grown = {**facts, "memory_mb": 8192}
    snapshot = replace(snapshot, columns=audit.columns_of(grown, {**settings, "reserved_memory_mb": 100}))
    found = auditor.plan(Evidence(snapshots={"h1": snapshot}))
    assert [(f.what, f.old, f.new) for f in found] == [
        ("memory_mb", 4096, 8192),
        ("reserved_memory_mb", 99, 100),
    ]


def test_the_hosts_that_the_ledger_has_something_on(world: World) -> None:
    world.report("h2")
    world.boot("web")
    spoil(world, instances.update().values(host="h1"))
    assert world.ledger.inspect(audit.hosts_named) == ["h1", "h2"]
    spoil(world, sa.update(instances).values(host="h2"))
