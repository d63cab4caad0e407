# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import plan as audit
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit.storage import (
    Cable,
    Item,
    StorageLedger,
    plan,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit.storage_evidence import (
    Backend,
    CableSnapshot,
    LogicalVolume,
    Secret,
    Session,
    StorageEvidence,
    StorageSnapshot,
    Target,
    Unread,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes import states

PREFIX = "iqn.2010-10.org.openstack:"
PLACE, ELSEWHERE = "s1@lvm#lvm", "s2@lvm#lvm"
ASKED = 100.0
SNAP = "snap"


def iqn(volume: str = "v") -> str:
    return PREFIX + "volume-" + volume


def item(volume: str = "v", kind: str = "volume", **fields: t.Any) -> Item:
    values = {"name": "data", "pool_host": PLACE, "status": "available", "touched_at": 50.0, **fields}
    return Item(kind, volume, **values)


def lv(volume: str = "v", kind: str = "volume", **fields: t.Any) -> LogicalVolume:
    prefix = "volume-" if kind == "volume" else "_snapshot-"
    return LogicalVolume(kind, volume, prefix + volume, 2 * 1024**3, **fields)


def cable(volume: str = "v", **fields: t.Any) -> Cable:
    values = {"storage_host": "s1", "attached_host": "h1", "iqn": iqn(volume), "since": 50.0, **fields}
    return Cable("a-" + volume, volume, "web", **values)


def target(volume: str = "v", **fields: t.Any) -> Target:
    return Target(iqn(volume), volume, "lio", PREFIX, path="/dev/vg/volume-" + volume, **fields)


def session(volume: str = "v", **fields: t.Any) -> Session:
    return Session(iqn(volume), volume, **{"luns": (0,), "portals": ("192.0.2.1:3260",), **fields})


def ledger(*items: Item, cables: t.Sequence[Cable] = (), **fields: t.Any) -> StorageLedger:
    return StorageLedger(items={(i.kind, i.id): i for i in items}, cables=cables, **fields)


def seen(
    *volumes: LogicalVolume,
    targets: t.Sequence[Target] = (),
    sessions: t.Sequence[Session] = (),
    secrets: t.Sequence[Secret] = (),
    unread: t.Sequence[Unread] = (),
) -> StorageEvidence:
    storage = StorageSnapshot("s1", ASKED, [Backend(PLACE, volumes)], targets, unread, {PREFIX})
    return StorageEvidence({"s1": storage}, {}, {"h1": CableSnapshot("h1", ASKED, sessions, secrets)})


Found = t.List[t.Tuple[str, t.Optional[str], str, str]]


def short(findings: t.Iterable[audit.Finding]) -> Found:
    return [(f.kind, f.host, f.what, f.action) for f in findings]


def told(said: StorageLedger, evidence: StorageEvidence, remove: bool = False) -> Found:
    return short(plan(said, evidence, remove))


# --- logical volumes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "orphan"),
    [
        ((), True),
        ((item(),), False),
        ((item(pool_host=ELSEWHERE, made=False, status="error"),), True),
        ((item(pool_host=None, made=False, status="error"),), True),
        ((item(deleted=True),), True),
        ((item(deleted=True, touched_at=ASKED),), False),  # it went after the host was asked
        ((item(pool_host=ELSEWHERE, touched_at=ASKED),), False),  # it was rescheduled meanwhile
        ((item(pool_host=None, status="creating", worked_on=True),), False),
        ((item(kind="snapshot"),), True),  # another thing of the same number
    ],
)
def test_when_a_logical_volume_is_an_orphan(items: tuple[Item, ...], orphan: bool) -> None:
    found = [f for f in plan(ledger(*items), seen(lv())) if f.kind == audit.ORPHAN_VOLUME]
    assert short(found) == ([(audit.ORPHAN_VOLUME, "s1", "volume-v at " + PLACE, audit.REPORT)] if orphan else [])
    assert all("bootflow_audit_remove_orphans" in f.remedy and f.old["size_gb"] == 2.0 for f in found)
    removed = [f for f in plan(ledger(*items), seen(lv()), True) if f.kind == audit.ORPHAN_VOLUME]
    assert [(f.action, f.new, f.remedy, f.key) for f in removed] == (
        [(audit.REMOVE, None, "", (PLACE, "volume", "v"))] if orphan else []
    )


def test_where_the_ledger_has_it_is_said() -> None:
    for known, words in (
        (item(pool_host=ELSEWHERE), ELSEWHERE),
        (item(pool_host=None), "nowhere"),
        (item(deleted=True), "deleted"),
        (None, None),
    ):
        (found,) = plan(ledger(*([known] if known else [])), seen(lv()))
        assert found.old.get("ledger") == words


@pytest.mark.parametrize("kind", ["volume", "snapshot"])
def test_the_only_logical_volume_of_a_volume_stays(kind: str) -> None:
    """As after a backend was renamed: the ledger has all of its volumes in a pool that nobody has any more."""
    said = ledger(item(kind=kind, pool_host=ELSEWHERE))
    (found,) = plan(said, seen(lv(kind=kind)), True)
    assert (found.kind, found.action, ELSEWHERE in found.remedy) == (audit.ORPHAN_VOLUME, audit.REPORT, True)
    here = seen(lv(kind=kind)).storage["s1"]
    for there, action in (([lv(kind=kind)], audit.REMOVE), ([lv("other", kind=kind)], audit.REPORT)):
        both = {"s1": here, "s2": StorageSnapshot("s2", ASKED, [Backend(ELSEWHERE, there)])}
        found = [f for f in plan(said, StorageEvidence(both), True) if f.key == (PLACE, kind, "v")][0]
        assert found.action == action
    broken = {"s1": here, "s2": StorageSnapshot("s2", ASKED, [Backend(ELSEWHERE, (), "no volume group")])}
    assert [f.action for f in plan(said, StorageEvidence(broken), True) if f.host == "s1"] == [audit.REPORT]


def test_backends_of_one_volume_group_have_each_others_volumes() -> None:
    """Two pools of a group, or a host that is in the inventory twice: nothing of one is an orphan of the other."""
    second = "s1@thin#thin"
    backends = [Backend(PLACE, [lv()], group="g"), Backend(second, [lv("w"), lv("lost")], group="g")]
    evidence = StorageEvidence({"s1": StorageSnapshot("s1", ASKED, backends)})
    said = ledger(item(pool_host=second), item("w", pool_host=PLACE))
    assert told(said, evidence, True) == [(audit.ORPHAN_VOLUME, "s1", "volume-lost at " + second, audit.REMOVE)]
    apart = [Backend(b.pool_host, b.volumes, group=b.pool_host) for b in backends]
    evidence = StorageEvidence({"s1": StorageSnapshot("s1", ASKED, apart)})
    assert {(f.what, f.action) for f in plan(said, evidence, True) if f.kind == audit.ORPHAN_VOLUME} == {
        ("volume-lost at " + second, audit.REMOVE),
        ("volume-v at " + PLACE, audit.REPORT),
        ("volume-w at " + second, audit.REPORT),
    }
    known = ledger(item(pool_host=second), item("w", pool_host=PLACE), cleanups={(PLACE, "lost")})
    evidence = StorageEvidence({"s1": StorageSnapshot("s1", ASKED, backends)})
    assert told(known, evidence, True) == []


def test_what_is_to_be_removed_anyway_is_no_orphan() -> None:
    assert told(ledger(cleanups={(PLACE, "v")}), seen(lv())) == []
    assert len(told(ledger(cleanups={(ELSEWHERE, "v")}), seen(lv()))) == 1


def test_snapshots_go_before_their_volume_and_one_that_stays_keeps_it() -> None:
    there = (lv(), lv(SNAP, "snapshot", origin="volume-v"))
    assert told(ledger(), seen(*there), True) == [
        (audit.ORPHAN_VOLUME, "s1", "_snapshot-snap at " + PLACE, audit.REMOVE),
        (audit.ORPHAN_VOLUME, "s1", "volume-v at " + PLACE, audit.REMOVE),
    ]
    known = ledger(item(SNAP, "snapshot"))
    (found,) = plan(known, seen(*there), True)
    assert (found.what, found.action) == ("volume-v at " + PLACE, audit.REPORT)
    assert "_snapshot-snap" in found.remedy


def test_an_orphan_that_is_open_stays_unless_its_target_goes_first() -> None:
    (found,) = plan(ledger(), seen(lv(open=True)), True)
    assert (found.action, "open" in found.remedy) == (audit.REPORT, True)
    assert told(ledger(), seen(lv(open=True), targets=[target()]), True) == [
        (audit.ORPHAN_TARGET, "s1", "target " + iqn(), audit.REMOVE),
        (audit.ORPHAN_VOLUME, "s1", "volume-v at " + PLACE, audit.REMOVE),
    ]
    busy = [target(sessions=("iqn.who",))]
    assert {f.action for f in plan(ledger(), seen(lv(open=True), targets=busy), True)} == {audit.REPORT}
    foreign = [target(ours=False)]
    assert [f.kind for f in plan(ledger(), seen(lv(open=True), targets=foreign))] == [audit.ORPHAN_VOLUME]


@pytest.mark.parametrize("status", sorted(states.VOLUME_STATES))
def test_in_which_states_a_volume_can_be_missing(status: str) -> None:
    found = told(ledger(item(status=status)), seen())
    there = status in ("available", "reserved", "attaching", "in-use", "detaching", "uploading", "error_extending")
    assert found == ([(audit.MISSING_VOLUME, "s1", "volume v at " + PLACE, audit.REPORT)] if there else [])


@pytest.mark.parametrize(
    "fields",
    [
        {"worked_on": True},
        {"touched_at": ASKED},
        {"deleted": True},
        {"made": False},
        {"pool_host": ELSEWHERE},
        {"pool_host": None},
    ],
)
def test_what_is_not_believed_missing(fields: dict[str, t.Any]) -> None:
    assert told(ledger(item(**fields)), seen()) == []


def test_a_missing_volume_is_never_touched_and_a_snapshot_can_be_missing() -> None:
    (found,) = plan(ledger(item(SNAP, "snapshot")), seen(), True)
    assert (found.kind, found.what, found.changes) == (audit.MISSING_VOLUME, "snapshot snap at " + PLACE, False)
    assert found.remedy
    assert told(ledger(item(SNAP, "snapshot", status="creating")), seen()) == []


def test_of_a_backend_that_is_not_ready_nothing_is_missing() -> None:
    backend = Backend(PLACE, (), "no volume group", "vgcreate")
    evidence = StorageEvidence({"s1": StorageSnapshot("s1", ASKED, [backend])})
    (found,) = plan(ledger(item(), errors={PLACE: None}), evidence)
    assert (found.kind, found.what, found.action, found.remedy) == (audit.UNREAD, PLACE, audit.MARK, "vgcreate")
    (again,) = plan(ledger(item(), errors={PLACE: "no volume group"}), evidence)
    assert again.action == audit.REPORT
    ready = StorageEvidence({"s1": StorageSnapshot("s1", ASKED, [Backend(PLACE, [lv()])])})
    (back,) = plan(ledger(item(), errors={PLACE: "no volume group"}), ready)
    assert (back.kind, back.action, back.old, back.new) == (audit.HOST_FACTS, audit.RECORD, "no volume group", None)


def test_a_host_that_does_not_answer_is_marked_once() -> None:
    evidence = StorageEvidence(unreachable={"s1": "no route"})
    for before, action in ((None, audit.MARK), ("no route", audit.REPORT)):
        (found,) = plan(ledger(item(), errors={PLACE: before, ELSEWHERE: None}), evidence, True)
        assert (found.kind, found.host, found.action) == (audit.HOST_UNREACHABLE, "s1", action)


# --- targets --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "cables", "orphan"),
    [
        ((), (), True),
        ((item(),), (), True),
        ((item(),), (cable(),), False),
        ((item(),), (cable(stands=False),), False),  # it is on its way, or to end
        ((item(),), (cable(storage_host=None),), False),  # it may come here
        ((item(touched_at=ASKED),), (), False),  # it was detached meanwhile
        ((item(worked_on=True),), (), False),
        ((item(deleted=True),), (), True),
        ((item(deleted=True, touched_at=ASKED),), (), False),
    ],
)
def test_when_a_target_is_an_orphan(items: tuple[Item, ...], cables: tuple[Cable, ...], orphan: bool) -> None:
    said, evidence = ledger(*items, cables=cables), seen(lv(), targets=[target()])
    for remove, action in ((False, audit.REPORT), (True, audit.REMOVE)):
        found = [f for f in plan(said, evidence, remove) if f.kind == audit.ORPHAN_TARGET]
        assert short(found) == ([(audit.ORPHAN_TARGET, "s1", "target " + iqn(), action)] if orphan else [])
    assert not orphan or found[0].key == {"volume_id": "v", "iqn": iqn(), "target": "lio", "iqn_prefix": PREFIX}


def test_the_only_target_of_an_attachment_stays() -> None:
    """As after a storage host was renamed."""
    said = ledger(item(pool_host=ELSEWHERE), cables=[cable(storage_host="s2")])
    here = seen(targets=[target()]).storage["s1"]
    for there, action in (([target()], audit.REMOVE), ([target(running=False)], audit.REPORT), ([], audit.REPORT)):
        both = {"s1": here, "s2": StorageSnapshot("s2", ASKED, [Backend(ELSEWHERE, [lv()])], there, (), {PREFIX})}
        found = plan(said, StorageEvidence(both), True)
        assert [f.action for f in found if f.kind == audit.ORPHAN_TARGET] == [action]
    (alone,) = plan(said, StorageEvidence({"s1": here}), True)
    assert (alone.action, "exported by s2" in alone.remedy) == (audit.REPORT, True)
    one = [Backend(PLACE, [lv()], group="g")]
    twice = {h: StorageSnapshot(h, ASKED, one, [target()], (), {PREFIX}) for h in ("s1", "s2")}
    assert [f for f in plan(said, StorageEvidence(twice), True) if f.kind == audit.ORPHAN_TARGET] == []


def test_the_only_session_of_an_attachment_stays() -> None:
    """As after a compute host was renamed."""
    said = ledger(item(), cables=[cable(attached_host="h2")])
    here = CableSnapshot("h1", ASKED, [session()], [Secret(iqn(), "v")])
    found = plan(said, StorageEvidence(compute={"h1": here}), True)
    assert {f.action for f in found} == {audit.REPORT} and all("attached on h2" in f.remedy for f in found)
    both = {"h1": here, "h2": CableSnapshot("h2", ASKED)}
    assert {f.action for f in plan(said, StorageEvidence(compute=both), True)} == {audit.REMOVE}


def test_a_target_that_somebody_else_made_is_nothing() -> None:
    assert told(ledger(), seen(targets=[target(ours=False)]), True) == []


def test_a_target_goes_after_its_session() -> None:
    here = [target(sessions=("iqn.h1",))]
    said = ledger(item())
    (found,) = plan(said, seen(lv(), targets=here), True)
    assert (found.action, "iqn.h1 is logged in" in found.remedy) == (audit.REPORT, True)
    both = plan(said, seen(lv(), targets=here, sessions=[session()]), True)
    assert {(f.kind, f.action) for f in both} == {
        (audit.ORPHAN_SESSION, audit.REMOVE),
        (audit.ORPHAN_TARGET, audit.REMOVE),
    }
    used = plan(said, seen(lv(), targets=here, sessions=[session(in_use=("sda is mounted",))]), True)
    assert {f.action for f in used} == {audit.REPORT}
    two = [target(sessions=("iqn.h1", "iqn.elsewhere"))]
    mixed = plan(said, seen(lv(), targets=two, sessions=[session()]), True)
    assert [f.action for f in mixed if f.kind == audit.ORPHAN_TARGET] == [audit.REPORT]
    record = plan(said, seen(lv(), targets=here, sessions=[session(session=False, luns=())]), True)
    assert [f.action for f in record if f.kind == audit.ORPHAN_TARGET] == [audit.REPORT]


@pytest.mark.parametrize(
    ("fields", "items", "missing"),
    [
        ({}, (item(status="in-use"),), True),
        ({"stands": False}, (item(status="in-use"),), False),
        ({"since": ASKED}, (item(status="in-use"),), False),  # made after the host was asked
        ({"storage_host": "s2"}, (item(status="in-use"),), False),
        ({"iqn": "iqn.2026-01.org.example:volume-v"}, (item(status="in-use"),), False),  # nobody asked for those
        ({}, (item(status="detaching", worked_on=True),), False),
        ({}, (item(status="in-use", touched_at=ASKED),), False),
    ],
)
def test_when_a_target_is_missing(fields: dict[str, t.Any], items: tuple[Item, ...], missing: bool) -> None:
    said = ledger(*items, cables=[cable(**fields)])
    expected = [(audit.MISSING_TARGET, "s1", "target " + iqn(), audit.REPORT)] if missing else []
    for targets, wanted in (((), expected), ([target(running=False)], expected), ([target()], [])):
        found = plan(said, seen(lv(), targets=targets), True)
        assert short(f for f in found if f.kind == audit.MISSING_TARGET) == wanted


@pytest.mark.parametrize(
    ("targets", "root", "off", "words", "never"),
    [
        # Nothing but its service is needed, whatever the guest does.
        ((target(running=False),), False, False, ("systemctl restart rtslib-fb-targetctl",), "detach"),
        ((target(running=False),), True, True, ("systemctl restart rtslib-fb-targetctl",), "source_volid"),
        ((), False, False, ("backup", "attach it again", "guest is running"), "source_volid"),
        ((), False, True, ("backup", "attach it again", "is not running"), "guest is running"),
        ((), True, True, ("backup", "source_volid"), "attach it again"),
    ],
)
def test_what_is_done_about_a_missing_target(
    targets: t.Any, root: bool, off: bool, words: tuple[str, ...], never: str
) -> None:
    said = ledger(item(status="in-use"), cables=[cable(root=root)])
    evidence = replace(seen(lv(), targets=targets), off={"web"} if off else set())
    (found,) = [f for f in plan(said, evidence) if f.kind == audit.MISSING_TARGET]
    assert found.action == audit.REPORT and not found.changes
    assert all(word in found.remedy for word in words) and never not in found.remedy


def test_where_targets_could_not_be_read_none_is_missing() -> None:
    said = ledger(item(status="in-use"), cables=[cable()])
    (found,) = plan(said, seen(lv(), unread=[Unread("lio", PREFIX, "no rtslib", "install it")]))
    assert (found.kind, found.old, found.action, found.remedy) == (
        audit.UNREAD,
        "no rtslib",
        audit.REPORT,
        "install it",
    )


# --- compute hosts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "cables", "orphan"),
    [
        ((), (), True),
        ((item(),), (), True),
        ((item(),), (cable(),), False),
        ((item(),), (cable(attached_host=None),), False),
        ((item(touched_at=ASKED),), (), False),
        ((item(worked_on=True),), (), False),
        ((item(deleted=True),), (), True),
    ],
)
def test_when_sessions_and_secrets_are_orphans(
    items: tuple[Item, ...], cables: tuple[Cable, ...], orphan: bool
) -> None:
    evidence = StorageEvidence(
        compute={"h1": CableSnapshot("h1", ASKED, [session(session=False)], [Secret(iqn(), "v")])}
    )
    for remove, action in ((False, audit.REPORT), (True, audit.REMOVE)):
        expected = [
            (audit.ORPHAN_SECRET, "h1", "secret of " + iqn(), action),
            (audit.ORPHAN_SESSION, "h1", "record of " + iqn(), action),
        ]
        assert told(ledger(*items, cables=cables), evidence, remove) == (expected if orphan else [])


def test_what_is_told_of_a_session_is_enough_to_end_it() -> None:
    found = plan(ledger(), seen(sessions=[session(luns=(1,))]), True)[0]
    assert (found.what, found.key) == (
        "session with " + iqn(),
        {"volume_id": "v", "iqn": iqn(), "lun": 1, "portals": ["192.0.2.1:3260"]},
    )


@pytest.mark.parametrize(
    ("fields", "words"), [({"in_use": ("sda is mounted at /srv",)}, "mounted at /srv"), ({"luns": (1, 2)}, "several")]
)
def test_a_session_that_stays(fields: dict[str, t.Any], words: str) -> None:
    found = plan(ledger(), seen(sessions=[session(**fields)]), True)[0]
    assert found.action == audit.REPORT and words in found.remedy


def test_what_could_not_be_read_of_a_compute_host() -> None:
    evidence = StorageEvidence(compute={"h1": CableSnapshot("h1", ASKED, error="iscsid is gone", remedy="start it")})
    (found,) = plan(ledger(), evidence)
    assert (found.kind, found.host, found.changes, found.remedy) == (audit.UNREAD, "h1", False, "start it")


def test_only_what_is_on_the_hosts_that_were_named() -> None:
    evidence = seen(lv(), sessions=[session()])
    assert {f.host for f in plan(ledger(), evidence, hosts=["s1"])} == {"s1"}
    assert {f.host for f in plan(ledger(), evidence, hosts=["h1"])} == {"h1"}
    assert plan(ledger(), evidence, hosts=["h9"]) == []
    assert len(plan(ledger(), evidence)) == 2


def test_sessions_of_a_machine_with_two_names_are_those_of_either() -> None:
    """The audit ended the session, and removed the secret, that the guest needs: its second name has no attachment."""
    mine = CableSnapshot("h1", ASKED, [session()], [Secret(iqn(), "v")], machine=("same", "m"))

    def found(**other: t.Any) -> set[str]:
        its = StorageEvidence({}, {}, {"h1": mine, "h2": replace(mine, host="h2", **other)})
        return {f.kind for f in plan(ledger(item(), cables=[cable()]), its, remove_orphans=True)}

    assert found() == set()
    copies = {audit.ORPHAN_SESSION, audit.ORPHAN_SECRET}
    assert found(machine=("same", "n")) == found(machine=("h2", "m")) == copies
