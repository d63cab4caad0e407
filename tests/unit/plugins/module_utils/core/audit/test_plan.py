# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import plan as audit
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit.evidence import (
    DhcpNetwork,
    Domain,
    Evidence,
    Reservation,
    Snapshot,
    Unplugged,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit.ledger_state import (
    Claim,
    Cleanup,
    Device,
    Group,
    Instance,
    Ledger,
    Node,
    Port,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit.plan import Finding
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states

BEGAN = 1000.0
BEFORE = 900.0
AFTER = 1100.0
WANTED = (1024, 1, 1)


def node(number: int = 1, claims: int = 0, reserved: int = 512, **columns: t.Any) -> Node:
    values = {
        "memory_mb": 4096,
        "memory_mb_used": reserved + claims * WANTED[0],
        "local_gb_used": claims * WANTED[1],
        "vcpus_used": claims * WANTED[2],
        "num_instances": claims,
        "reserved_memory_mb": reserved,
        "reserved_disk_gb": 0,
        "reserved_vcpus": 0,
        "unreachable_reason": None,
        **columns,
    }
    return Node(number, "h%d" % number, "h%d" % number, values)


def instance(uuid: str = "u1", host: str | None = "h1", **fields: t.Any) -> Instance:
    values: dict[str, t.Any] = {
        "name": "web-" + uuid,
        "node": host,
        "vm_state": states.ACTIVE,
        "task_state": None,
        "deleted": False,
        "touched_at": BEFORE,
        "wanted": WANTED,
        **fields,
    }
    return Instance(uuid=uuid, host=host, **values)


def gone(uuid: str = "u1", at: float = BEFORE) -> Instance:
    return instance(uuid, None, vm_state=states.DELETED, deleted=True, touched_at=at)


def claim(uuid: str = "u1", node_id: int = 1, number: int = 1, amounts: t.Any = WANTED) -> Claim:
    return Claim(number, uuid, node_id, amounts)


def ledger(*found: Instance, **parts: t.Any) -> Ledger:
    return Ledger(instances={i.uuid: i for i in found}, **{"nodes": (node(), node(2)), **parts})


def snapshot(number: int = 1, *domains: Domain, folders: t.Sequence[str] = (), **columns: t.Any) -> Snapshot:
    host = "h%d" % number
    return Snapshot(host, host, BEGAN, domains, folders, columns)


def seen(*snapshots: Snapshot, **fields: t.Any) -> Evidence:
    return Evidence(snapshots={s.host: s for s in snapshots}, **fields)


def short(findings: t.Iterable[Finding]) -> list[tuple[str, str | None, str | None, str]]:
    return [(f.kind, f.host, f.instance, f.action) for f in findings]


DOMAIN = Domain("u1", "web-u1", 1024, ours=True)
FOREIGN = Domain("u9", "somebody", 2048, ours=False)
ACTIVE = ledger(instance(), nodes=(node(claims=1), node(2)), claims=(claim(),))


def test_all_is_well() -> None:
    assert audit.plan(ACTIVE, seen(snapshot(1, DOMAIN, folders=("u1",)), snapshot(2))) == []
    assert audit.plan(Ledger(), Evidence()) == []


# --- usage ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", audit.USAGE_COLUMNS)
@pytest.mark.parametrize("wrong", (-7, 0, 99999))
def test_usage_that_is_not_the_sum_of_the_claims(column: str, wrong: int) -> None:
    right = node(claims=1).columns[column]
    said = ledger(instance(), nodes=(node(claims=1, **{column: wrong}),), claims=(claim(),))
    (found,) = audit.plan(said, Evidence())
    assert (found.kind, found.what, found.old, found.new, found.action) == (
        audit.USAGE,
        column,
        wrong,
        right,
        audit.RECOUNT,
    )


@given(
    amounts=st.lists(st.tuples(*[st.integers(0, 10**6)] * 3), max_size=6),
    used=st.tuples(*[st.integers(-(10**6), 10**7)] * 4),
    reserved=st.integers(0, 10**5),
)
def test_usage_is_what_is_reserved_plus_the_claims(
    amounts: list[tuple[int, int, int]], used: tuple[int, ...], reserved: int
) -> None:
    columns = dict(zip(audit.USAGE_COLUMNS, used))
    found = [instance("u%d" % i, wanted=a) for i, a in enumerate(amounts)]
    held = [claim("u%d" % i, number=i, amounts=a) for i, a in enumerate(amounts)]
    said = ledger(*found, nodes=(node(reserved=reserved, **columns),), claims=held)
    mended = {**columns, **{f.what: f.new for f in audit.plan(said, Evidence())}}
    sums = [sum(a[i] for a in amounts) for i in range(3)]
    assert tuple(mended.values()) == (reserved + sums[0], sums[1], sums[2], len(amounts))
    again = ledger(*found, nodes=(node(reserved=reserved, **mended),), claims=held)
    assert audit.plan(again, Evidence()) == []


# --- claims ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "held", "cleanups", "kinds"),
    [
        (gone(), claim(), (), [audit.STALE_CLAIM]),
        (gone(), claim(), (Cleanup("h1", "u1", "x"),), []),
        (gone(), claim(), (Cleanup("h2", "u1", "x"),), [audit.STALE_CLAIM]),
        (instance(host="h2"), claim(), (), [audit.MISSING_CLAIM, audit.STALE_CLAIM]),
        (instance(host=None, vm_state=states.ERROR), claim(), (), [audit.STALE_CLAIM]),
        (instance(host=None, vm_state=states.ERROR), claim(), (Cleanup("h1", "u1", "x"),), []),
        (instance(vm_state=states.SHELVED_OFFLOADED), claim(), (), [audit.STALE_CLAIM]),
        (instance(vm_state=states.BUILDING), claim(), (), []),
        (instance(vm_state=states.STOPPED), claim(), (), []),
        (instance(task_state=states.DELETING), claim(), (), []),
        (instance(), claim(amounts=(1, 1, 1)), (), [audit.WRONG_CLAIM]),
        (instance(vm_state=states.RESIZED), claim(amounts=(1, 1, 1)), (), []),
        (instance(task_state=states.RESIZE_PREP), claim(amounts=(1, 1, 1)), (), []),
    ],
)
def test_claims(found: Instance, held: Claim, cleanups: t.Any, kinds: list[str]) -> None:
    said = ledger(found, claims=(held,), cleanups=cleanups)
    plan = [f for f in audit.plan(said, Evidence()) if f.kind not in (audit.USAGE, audit.CLEANUP)]
    assert sorted(f.kind for f in plan) == kinds


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ({}, True),
        ({"vm_state": states.BUILDING}, True),
        ({"vm_state": states.ERROR}, True),
        ({"vm_state": states.SHELVED_OFFLOADED}, False),
        ({"task_state": states.DELETING}, False),
        ({"host": None}, False),
        ({"host": "unheard-of"}, False),
    ],
)
def test_an_instance_without_a_claim_gets_one(fields: dict[str, t.Any], missing: bool) -> None:
    plan = audit.plan(ledger(instance(**fields)), Evidence())
    assert [(f.kind, f.action, f.key) for f in plan] == (
        [(audit.MISSING_CLAIM, audit.CLAIM, WANTED)] if missing else []
    )


def test_a_device_without_claim() -> None:
    device = Device(4, "u1", 1, "pci", "0000:01:00.0")
    (found,) = audit.plan(ledger(gone(), devices=(device,)), Evidence())
    assert (found.kind, found.action, found.key) == (audit.DEVICE_CLAIM, audit.RELEASE, 4)
    restored = audit.plan(ledger(instance(), devices=(device,)), Evidence())
    assert [f.kind for f in restored] == [audit.MISSING_CLAIM], "the claim comes back, so the device stays"


@pytest.mark.parametrize(
    ("found", "held", "cleanups", "released"),
    [
        (gone(), False, (), True),
        (gone(), True, (), True),
        (gone(), True, (Cleanup("h1", "u1", "x"),), False),
        (instance(), True, (), True),
        (instance(), False, (), False),
    ],
)
def test_ports(found: Instance, held: bool, cleanups: t.Any, released: bool) -> None:
    said = ledger(found, ports=(Port("p", "u1", "h1", held, ("10.0.0.9",)),), cleanups=cleanups)
    plan = [f for f in audit.plan(said, Evidence()) if f.kind == audit.PORT]
    assert [f.old for f in plan] == ([["10.0.0.9"]] if released else [])


def test_a_port_that_a_guest_is_losing() -> None:
    for found, action in ((instance(), audit.REPORT), (gone(), audit.RELEASE)):
        said = ledger(found, ports=(Port("p", "u1", "h1", False, ("10.0.0.9",), leaving=True),))
        (told,) = [f for f in audit.plan(said, Evidence()) if f.kind == audit.PORT]
        assert told.action == action and (action == audit.RELEASE or "port_id: p" in told.remedy)


def test_addresses_without_port_and_groups_without_members() -> None:
    said = ledger(lost_addresses=((3, "10.0.0.9"),), groups=(Group("g", "web", "default"),))
    assert [(f.kind, f.action, f.key) for f in audit.plan(said, Evidence())] == [
        (audit.ADDRESS, audit.RELEASE, 3),
        (audit.SERVER_GROUP, audit.FORGET, ("g", "default")),
    ]


# --- runs that died ---------------------------------------------------------------------------------------------------------

BUILDING = instance(vm_state=states.BUILDING, task_state=states.SPAWNING, run="r1", run_dead=True)
DELETING = instance(task_state=states.DELETING, run="r1", run_dead=True)


@pytest.mark.parametrize(
    ("host", "evidence", "action"),
    [
        ("h1", seen(snapshot(1)), audit.CLEAN),
        ("h1", Evidence(unreachable={"h1": "no route"}), audit.END),
        ("h1", Evidence(strangers=("h1",)), audit.END),
        ("h1", seen(snapshot(2)), audit.WAIT),
        (None, seen(snapshot(1)), audit.END),
    ],
)
def test_a_build_of_a_dead_run(host: str | None, evidence: Evidence, action: str) -> None:
    said = ledger(replace(BUILDING, host=host, node=host), claims=(claim(),) if host else ())
    found = [f for f in audit.plan(said, evidence) if f.kind == audit.DEAD_BUILD]
    assert [(f.host, f.action, f.key) for f in found] == [(host, action, "r1")]
    assert "boot" in found[0].remedy or action == audit.WAIT


@pytest.mark.parametrize(
    ("complete", "at_work", "in_ledger", "touched_at", "action", "becomes"),
    [
        (True, False, True, BEFORE, audit.ADOPT, states.ACTIVE),
        (True, False, False, BEFORE, audit.KEEP, states.ERROR),
        (True, True, True, BEFORE, audit.WAIT, states.BUILDING),
        (True, False, True, AFTER, audit.WAIT, states.BUILDING),
        (False, False, True, BEFORE, audit.CLEAN, states.ERROR),
        (False, True, True, BEFORE, audit.WAIT, states.BUILDING),
    ],
)
def test_a_build_of_a_dead_run_that_may_have_ended(
    complete: bool, at_work: bool, in_ledger: bool, touched_at: float, action: str, becomes: str
) -> None:
    found = replace(BUILDING, in_ledger=in_ledger, touched_at=touched_at)
    said = ledger(found, nodes=(node(claims=1), node(2)), claims=(claim(),))
    there = replace(snapshot(1, DOMAIN, folders=("u1",)), complete=("u1",) * complete, at_work=("u1",) * at_work)
    (finding,) = audit.plan(said, seen(there, snapshot(2), remove_orphans=True))
    assert (finding.kind, finding.host, finding.action, finding.new) == (audit.DEAD_BUILD, "h1", action, becomes)
    assert finding.remedy


@pytest.mark.parametrize(
    ("unfinished", "complete", "action"),
    [(True, True, audit.REPORT), (True, False, audit.CLEAN), (False, True, audit.CLEAN)],
)
def test_what_is_left_of_a_dead_build_that_has_ended(unfinished: bool, complete: bool, action: str) -> None:
    failed = instance(host=None, vm_state=states.ERROR)
    due = Cleanup("h1", "u1", "x", "no route", unfinished=unfinished)
    said = ledger(failed, nodes=(node(claims=1), node(2)), claims=(claim(),), cleanups=(due,))
    there = replace(snapshot(1, DOMAIN, folders=("u1",)), complete=("u1",) * complete)
    (finding,) = audit.plan(said, seen(there, snapshot(2), remove_orphans=True))
    assert (finding.kind, finding.action) == (audit.CLEANUP, action)
    assert ("delete the instance" in finding.remedy) is (action == audit.REPORT)


def test_a_build_of_a_run_that_lives_is_left_alone() -> None:
    said = ledger(replace(BUILDING, run_dead=False), nodes=(node(claims=1),), claims=(claim(),))
    for evidence in (seen(snapshot(1)), seen(snapshot(1, DOMAIN)), seen(snapshot(1), remove_orphans=True)):
        assert audit.plan(said, evidence) == []


@pytest.mark.parametrize(
    ("host", "cleanups", "evidence", "action"),
    [
        ("h1", (), seen(snapshot(1)), audit.FINISH),
        (None, (), Evidence(), audit.FINISH),
        ("h1", (), Evidence(unreachable={"h1": "x"}), audit.WAIT),
        ("h1", (Cleanup("h2", "u1", "x"),), seen(snapshot(1)), audit.WAIT),
        ("h1", (Cleanup("h2", "u1", "x"),), seen(snapshot(1), snapshot(2)), audit.FINISH),
    ],
)
def test_a_deletion_of_a_dead_run(host: str | None, cleanups: t.Any, evidence: Evidence, action: str) -> None:
    said = ledger(replace(DELETING, host=host, node=host), cleanups=cleanups)
    assert [f.action for f in audit.plan(said, evidence) if f.kind == audit.DEAD_DELETE] == [action]


def test_a_deletion_of_a_run_that_lives_is_left_alone() -> None:
    said = ledger(replace(DELETING, run_dead=False), cleanups=(Cleanup("h2", "u1", "x"),))
    assert audit.plan(said, seen(snapshot(1, DOMAIN), snapshot(2, DOMAIN))) == []


@pytest.mark.parametrize(
    ("found", "evidence", "actions"),
    [
        (gone(), seen(snapshot(1, DOMAIN)), [audit.CLEAN]),
        (gone(), Evidence(unreachable={"h1": "x"}), [audit.WAIT]),
        (instance(host="h2"), seen(snapshot(1, DOMAIN)), [audit.CLEAN]),
        (instance(host="h1"), seen(snapshot(1, DOMAIN)), []),
    ],
)
def test_remains(found: Instance, evidence: Evidence, actions: list[str]) -> None:
    said = ledger(found, cleanups=(Cleanup("h1", "u1", "x", "no route"),))
    plan = audit.plan(said, evidence)
    assert [f.action for f in plan if f.kind == audit.CLEANUP] == actions
    assert not [f for f in plan if f.kind == audit.ORPHAN_DOMAIN], "it is told once"


# --- orphans ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "domain", "kind"),
    [
        ((), DOMAIN, audit.ORPHAN_DOMAIN),
        ((), replace(DOMAIN, ours=False), audit.FOREIGN_DOMAIN),
        ((gone(),), DOMAIN, audit.ORPHAN_DOMAIN),
        ((gone(at=AFTER),), DOMAIN, None),
        ((gone(at=BEGAN),), DOMAIN, None),
        ((instance(host=None, vm_state=states.ERROR),), DOMAIN, audit.ORPHAN_DOMAIN),
        ((instance(host=None, vm_state=states.ERROR, touched_at=AFTER),), DOMAIN, None),
        ((instance(host=None, vm_state=states.BUILDING),), DOMAIN, None),
        ((instance(host="h2"),), DOMAIN, audit.INSTANCE_ELSEWHERE),
        ((instance(host="h2", task_state=states.MIGRATING),), DOMAIN, None),
        ((instance(host="h2", vm_state=states.RESIZED),), DOMAIN, None),
        ((instance(host="h2", touched_at=AFTER),), DOMAIN, None),
        ((instance(host="h1", touched_at=AFTER),), DOMAIN, None),
    ],
)
@pytest.mark.parametrize("remove", (False, True))
def test_domains(found: t.Any, domain: Domain, kind: str | None, remove: bool) -> None:
    plan = audit.plan(ledger(*found), seen(snapshot(1, domain), remove_orphans=remove))
    plan = [f for f in plan if f.kind not in (audit.MISSING_CLAIM, audit.DEAD_BUILD)]
    assert [f.kind for f in plan] == ([kind] if kind else [])
    removed = remove and kind == audit.ORPHAN_DOMAIN
    assert [f.action for f in plan] == ([audit.REMOVE if removed else audit.REPORT] if kind else [])
    assert all(f.remedy or f.action == audit.REMOVE for f in plan)


def test_a_second_domain_of_an_instance_is_an_orphan_only_when_it_has_one_at_home() -> None:
    said = ledger(instance(host="h2"), nodes=(node(), node(2, claims=1)), claims=(claim(node_id=2),))
    evidence = seen(snapshot(1, DOMAIN), snapshot(2, DOMAIN), remove_orphans=True)
    assert short(audit.plan(said, evidence)) == [(audit.ORPHAN_DOMAIN, "h1", "u1", audit.REMOVE)]
    for power in (states.RUNNING, states.POWER_PAUSED, states.POWER_SUSPENDED):  # it may be the one with the data
        running = seen(snapshot(1, replace(DOMAIN, power_state=power)), snapshot(2, DOMAIN), remove_orphans=True)
        assert short(audit.plan(said, running)) == [(audit.INSTANCE_ELSEWHERE, "h1", "u1", audit.REPORT)]
        (told,) = audit.plan(said, running)
        assert told.remedy.startswith(
            "h2 and h1 both report the domain of the instance, and h1 reports that it runs there."
        )
        assert "If the report of h1 is wrong, force that host down" in told.remedy
    alone = seen(snapshot(1, DOMAIN), snapshot(2), remove_orphans=True)
    assert short(audit.plan(said, alone)) == [(audit.INSTANCE_ELSEWHERE, "h1", "u1", audit.REPORT)]
    unasked = seen(snapshot(1, DOMAIN), remove_orphans=True)
    assert short(audit.plan(said, unasked)) == [(audit.INSTANCE_ELSEWHERE, "h1", "u1", audit.REPORT)]


@pytest.mark.parametrize(
    ("found", "domains", "orphan"),
    [
        ((), (), True),
        ((gone(),), (), True),
        ((gone(at=AFTER),), (), False),
        ((instance(),), (DOMAIN,), False),
        ((instance(host="h2"),), (), True),
        ((instance(host=None, vm_state=states.BUILDING),), (), False),
        ((), (replace(FOREIGN, uuid="u1"),), False),
        ((), (DOMAIN,), False),
    ],
)
@pytest.mark.parametrize("remove", (False, True))
def test_folders(found: t.Any, domains: t.Any, orphan: bool, remove: bool) -> None:
    evidence = seen(snapshot(1, *domains, folders=("u1",)), remove_orphans=remove)
    plan = [f for f in audit.plan(ledger(*found), evidence) if f.kind == audit.ORPHAN_FOLDER]
    assert [f.action for f in plan] == ([audit.REMOVE if remove else audit.REPORT] if orphan else [])


@pytest.mark.parametrize(
    ("found", "there", "action"),
    [
        ((), {}, audit.REMOVE),
        ((gone(),), {}, audit.REMOVE),
        ((gone(at=AFTER),), {}, None),
        ((instance(),), {}, None),
        ((instance(host=None, vm_state=states.BUILDING),), {}, None),
        ((instance(host=None, vm_state=states.ERROR),), {}, audit.REMOVE),
        # With its folder, or its domain, they go.
        ((), {"folders": ("u1",)}, None),
        ((), {"domains": (DOMAIN,)}, None),
        # Only where it was seen at home are these more than the only ones.
        ((instance(host="h2"),), {}, audit.REPORT),
        ((instance(host="h2"),), {"home": True}, audit.REMOVE),
    ],
)
@pytest.mark.parametrize("remove", (False, True))
def test_disks_without_folder_and_domain(found: t.Any, there: t.Any, action: str | None, remove: bool) -> None:
    here = replace(
        snapshot(1, *there.get("domains", ()), folders=there.get("folders", ())), volumes={"u1": ["u1_disk"]}
    )
    home = (snapshot(2, DOMAIN),) if there.get("home") else ()
    plan = audit.plan(ledger(*found), seen(here, *home, remove_orphans=remove))
    told = [f for f in plan if f.kind == audit.ORPHAN_DISK]
    expected = audit.REPORT if action and not remove else action
    assert [f.action for f in told] == ([expected] if expected else [])
    for f in told:
        assert (f.instance, f.host, f.old) == ("u1", "h1", ["u1_disk"])
        assert bool(f.remedy) == (f.action == audit.REPORT) and (f.new is None) == (f.action == audit.REMOVE)


@pytest.mark.parametrize("vm_state", sorted(states.VM_STATES))
def test_instances_without_domain(vm_state: str) -> None:
    has_one = vm_state in audit.WITH_DOMAIN
    plan = audit.plan(ledger(instance(vm_state=vm_state)), seen(snapshot(1)))
    told = [f for f in plan if f.kind == audit.INSTANCE_WITHOUT_DOMAIN]
    assert [(f.host, f.action) for f in told] == ([("h1", audit.REPORT)] if has_one else [])
    leads_out = {
        states.RESCUED: "unrescue",
        states.SOFT_DELETED: "restore",
        states.RESIZED: "revert_resize",
        states.SHELVED: "shelve_offload",
    }
    assert all(leads_out.get(vm_state, "reboot the instance") in f.remedy for f in told)


def test_a_remedy_that_starts_a_guest_again_names_who_may_run_it() -> None:
    """With a restored ledger a guest may run where the ledger does not have it; a reboot makes a second one."""
    both = ledger(instance(vm_state=states.ACTIVE))
    unseen = "see first that no host that did not answer runs the guest: h2."
    for evidence in (seen(snapshot(1)), replace(seen(snapshot(1)), unreachable={"h2": "x"})):
        (told,) = [f for f in audit.plan(both, evidence) if f.kind == audit.INSTANCE_WITHOUT_DOMAIN]
        assert told.remedy.endswith(unseen)
    (told,) = [f for f in audit.plan(both, seen(snapshot(1), snapshot(2))) if f.kind == audit.INSTANCE_WITHOUT_DOMAIN]
    assert "restored" not in told.remedy


@pytest.mark.parametrize(
    ("fields", "evidence"),
    [
        ({"touched_at": AFTER}, seen(snapshot(1))),
        ({"task_state": states.REBOOTING}, seen(snapshot(1))),
        ({}, seen(snapshot(2))),
        ({}, Evidence(unreachable={"h1": "x"})),
        ({"host": "h2"}, seen(snapshot(1, DOMAIN), snapshot(2))),
    ],
)
def test_no_domain_is_missed_that_may_be_there(fields: dict[str, t.Any], evidence: Evidence) -> None:
    plan = audit.plan(ledger(instance(**fields)), evidence)
    assert not [f for f in plan if f.kind == audit.INSTANCE_WITHOUT_DOMAIN]


def test_memory_of_strangers_is_told_and_not_counted() -> None:
    plan = audit.plan(ACTIVE, seen(snapshot(1, DOMAIN, FOREIGN, replace(DOMAIN, uuid="u8")), snapshot(2)))
    assert {f.kind for f in plan} == {audit.FOREIGN_DOMAIN, audit.ORPHAN_DOMAIN}
    assert audit.foreign_memory(plan) == {"h1": 3072}


@pytest.mark.parametrize("kind", sorted({audit.DEAD_BUILD, audit.FOREIGN_DOMAIN, audit.INSTANCE_WITHOUT_DOMAIN}))
def test_builds_of_dead_runs_are_named_with_their_runs(kind: str) -> None:
    found = Finding(kind, "h1", "u1", "the build", None, None, audit.CLEAN, key="run-1")
    assert audit.runs_of_dead_builds([found]) == ({"u1": "run-1"} if kind == audit.DEAD_BUILD else {})


@pytest.mark.parametrize("remove", (False, True))
def test_guests_of_another_ledger_are_left_alone_and_seen(remove: bool) -> None:
    """Two ledgers on one host: what the other one has is one line, whatever was asked for, and its memory is told."""
    web = Domain("u7", "web", 1024, ours=True, ledger="B", vcpus=2, disk_gb=10)
    mine = replace(DOMAIN, ledger="A")
    plan = audit.plan(
        replace(ACTIVE, id="A"),
        seen(snapshot(1, mine, web, replace(web, uuid="u8")), snapshot(2), remove_orphans=remove),
    )
    (found,) = plan
    assert (found.kind, found.host, found.what) == (audit.OTHER_LEDGER, "h1", "guests of ledger B")
    assert found.action == audit.REPORT and found.old == found.new and "bootflow_reserved_memory_mb" in found.remedy
    assert found.old == {"guests": 2, "memory_mb": 2048, "vcpus": 4, "disk_gb": 20}
    assert audit.foreign_memory(plan) == {"h1": 2048}


# --- hosts ------------------------------------------------------------------------------------------------------------------


def test_a_host_that_grew() -> None:
    (found,) = audit.plan(ledger(), seen(snapshot(1, memory_mb=8192, unreachable_reason=None)))
    assert (found.kind, found.what, found.old, found.new, found.action) == (
        audit.HOST_FACTS,
        "memory_mb",
        4096,
        8192,
        audit.RECORD,
    )


def test_a_host_that_answers_again_and_a_new_one() -> None:
    said = ledger(nodes=(node(unreachable_reason="no route"),))
    plan = audit.plan(said, seen(snapshot(1), snapshot(2)))
    assert [(f.host, f.what, f.old, f.action) for f in plan] == [
        ("h1", "unreachable_reason", "no route", audit.RECORD),
        ("h2", "compute_node", None, audit.RECORD),
    ]


@pytest.mark.parametrize(("before", "action"), [(None, audit.MARK), ("no route", audit.REPORT)])
def test_a_host_that_does_not_answer_is_marked_once(before: str | None, action: str) -> None:
    said = ledger(nodes=(node(unreachable_reason=before),))
    (found,) = audit.plan(said, Evidence(unreachable={"h1": "timed out"}))
    assert (found.kind, found.action, found.old, found.new) == (
        audit.HOST_UNREACHABLE,
        action,
        before,
        "timed out",
    )


def test_only_the_hosts_that_are_asked_about() -> None:
    said = ledger(
        replace(BUILDING, host="h1", node="h1"),
        instance("u2", "h2"),
        replace(BUILDING, uuid="u3", host=None, node=None),
        nodes=(node(memory_mb_used=1), node(2, memory_mb_used=1)),
    )
    plan = audit.plan(said, seen(snapshot(1), snapshot(2), hosts=("h2",)))
    assert {f.host for f in plan} == {"h2"}


def test_findings_are_plain_data() -> None:
    (found,) = audit.plan(ledger(gone()), seen(snapshot(1, DOMAIN)))
    assert set(found.as_dict()) == {"kind", "host", "instance", "what", "from", "to", "action", "remedy"}
    assert found.as_dict()["from"] == {"name": "web-u1", "memory_mb": 1024}


UUIDS = st.sampled_from(["u1", "u2", "u3"])
HOSTS = st.sampled_from(["h1", "h2"])
INSTANCES = st.builds(
    instance,
    uuid=UUIDS,
    host=st.none() | HOSTS,
    vm_state=st.sampled_from(sorted(set(states.VM_STATES) - {states.DELETED})),
    task_state=st.none() | st.sampled_from([states.SPAWNING, states.DELETING, states.MIGRATING]),
    touched_at=st.sampled_from([BEFORE, BEGAN, AFTER]),
    run_dead=st.booleans(),
)
DOMAINS = st.lists(st.builds(Domain, UUIDS, st.just("d"), st.just(64), st.booleans()), max_size=3)


@given(
    found=st.lists(INSTANCES | st.builds(gone, UUIDS), max_size=3),
    first=DOMAINS,
    second=DOMAINS,
    folders=st.lists(UUIDS, max_size=3),
    cleanups=st.lists(st.builds(Cleanup, HOSTS, UUIDS, st.just("c")), max_size=2),
)
def test_nothing_of_a_living_run_or_of_others_is_ever_removed(
    found: list[Instance],
    first: list[Domain],
    second: list[Domain],
    folders: list[str],
    cleanups: list[Cleanup],
) -> None:
    said = ledger(*found, cleanups=cleanups)
    evidence = seen(snapshot(1, *first, folders=folders), snapshot(2, *second), remove_orphans=True)
    for f in audit.plan(said, evidence):
        of = said.instances.get(f.instance or "")
        if f.action == audit.REMOVE:
            on_host = [d for d in (first if f.host == "h1" else second) if d.uuid == f.instance]
            assert all(d.ours for d in on_host) or f.kind == audit.ORPHAN_DOMAIN and any(d.ours for d in on_host)
            assert of is None or of.deleted or (of.host != f.host and not of.busy and of.touched_at < BEGAN)
        if f.action in (audit.CLEAN, audit.END, audit.FINISH) and f.kind != audit.CLEANUP:
            assert of is not None and of.run_dead and not of.deleted


# --- DHCP -----------------------------------------------------------------------------------------------------------------

MAC, OTHER = "fa:16:3e:00:00:01", "52:54:00:00:00:02"
NEEDED = {"network": "bf-n", "mac": MAC.upper(), "address": "10.3.0.5", "name": "web"}
SERVED = replace(ACTIVE, reservations={"u1": [NEEDED]})


def dhcp(*found: Reservation, ours: bool = True, **fields: t.Any) -> list[Finding]:
    """What an audit finds where a host has these reservations in the network."""
    answer = replace(snapshot(1, DOMAIN), **{"networks": {"bf-n": DhcpNetwork(ours, found)}, **fields})
    return audit.plan(SERVED, seen(answer, snapshot(2)))


def test_a_guest_has_its_reservation() -> None:
    assert dhcp(Reservation(MAC, "10.3.0.5", True, True)) == []


@pytest.mark.parametrize(
    ("found", "old"),
    [
        ((), None),
        ((Reservation(MAC, "10.3.0.5", False, True),), None),  # in one definition of the network only
        ((Reservation(MAC, "10.3.0.9", True, True), Reservation(OTHER, "10.3.0.6", True, True)), "10.3.0.9"),
    ],
)
def test_a_missing_reservation_is_made(found: tuple[Reservation, ...], old: str | None) -> None:
    """A network that was removed and defined again by hand: its guests lost their addresses at the next renewal."""
    (missing,) = dhcp(*found)
    assert (missing.kind, missing.host, missing.instance) == (audit.MISSING_RESERVATION, "h1", "u1")
    assert (missing.old, missing.new, missing.action) == (old, "10.3.0.5", audit.RESERVE) and missing.changes


def test_a_reservation_that_the_audit_cannot_make_is_reported() -> None:
    (taken,) = dhcp(Reservation(OTHER, "10.3.0.5", True, True))
    assert taken.action == audit.REPORT
    assert "10.3.0.5 in libvirt network bf-n on h1 is reserved for " + OTHER in taken.remedy
    (lost,) = dhcp(networks={})
    assert lost.action == audit.REPORT and "defines it again" in lost.remedy


def test_reservations_are_compared_only_where_guest_and_networks_are_known() -> None:
    assert dhcp(networks=None) == []
    (unread,) = dhcp(networks=None, networks_error={"message": "virtnetworkd is off", "remedy": "Start it."})
    assert (unread.kind, unread.old, unread.remedy) == (audit.UNREAD, "virtnetworkd is off", "Start it.")
    assert [f.kind for f in dhcp(domains=())] == [audit.INSTANCE_WITHOUT_DOMAIN]
    assert dhcp(began_at=BEFORE) == []  # changed since the host was asked


def test_a_reservation_that_no_guest_uses_is_reported_with_the_command_that_removes_it() -> None:
    own = Reservation(MAC, "10.3.0.5", True, True)
    (left,) = dhcp(own, Reservation(OTHER, "10.3.0.6", True, False))
    assert (left.kind, left.host, left.instance, left.old) == (audit.ORPHAN_RESERVATION, "h1", None, "10.3.0.6")
    assert left.action == audit.REPORT and "virsh net-update bf-n delete ip-dhcp-host" in left.remedy
    assert dhcp(own, Reservation(OTHER, "10.3.0.6", True, True)) == []  # of another ledger's guest
    assert dhcp(own, Reservation(OTHER, "10.3.0.6", True, False), ours=False) == []


def test_a_guest_whose_interface_is_on_no_bridge_is_reported_with_the_command_that_plugs_it_in() -> None:
    own = Reservation(MAC, "10.3.0.5", True, True)
    (found,) = dhcp(own, unplugged=[Unplugged("u1", "vnet3", MAC, "bf-n", "virbr1")])
    assert (found.kind, found.host, found.instance, found.action) == (audit.UNPLUGGED, "h1", "u1", audit.REPORT)
    assert "%s (vnet3) in bf-n" % MAC == found.what and "ip link set dev vnet3 master virbr1" in found.remedy
    (stopped,) = dhcp(own, unplugged=[Unplugged("u1", "vnet3", MAC, "bf-n", "")])
    assert "virsh net-start bf-n" in stopped.remedy
    assert dhcp(own, unplugged=[Unplugged("not-of-this-ledger", "vnet3", MAC, "bf-n", "")]) == []


# --- one machine under two names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power_state", [states.RUNNING, states.SHUTDOWN])
def test_a_machine_with_two_names_has_no_orphans_of_its_own(power_state: int) -> None:
    """The audit removed the only domain and disks of a stopped instance: what the second name showed seemed to be a copy."""
    own = Domain("u1", "web", 1024, ours=True, power_state=power_state)
    one = Snapshot("h1", "same", BEGAN, [own], ["u1"], volumes={"u1": ["u1_disk"]}, machine="m")
    nodes = [replace(node(1, claims=1), node="same"), replace(node(2), node="same")]
    has = ledger(instance(node="same", vm_state=states.STOPPED), claims=[claim()], nodes=nodes)

    def found(**other: t.Any) -> list[tuple[str, str | None]]:
        seen = Evidence(snapshots={"h1": one, "h2": replace(one, host="h2", **other)}, remove_orphans=True)
        return [(f.kind, f.host) for f in audit.plan(has, seen) if f.kind != audit.HOST_FACTS]

    assert found() == []
    one = replace(one, boot_id="b1")
    assert found(node="new") == [], "its hostname changed between the two reports"
    assert found(node="new", boot_id="b2") and found(node="new", machine="n")
    one = replace(one, boot_id="")
    copy = audit.INSTANCE_ELSEWHERE if power_state == states.RUNNING else audit.ORPHAN_DOMAIN
    assert found(machine="n") == found(node="h2") == [(copy, "h2")], "some makers give one UUID to several machines"
