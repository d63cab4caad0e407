# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What storage hosts have against a real ledger: what is planned, what is repaired, and what nobody can take meanwhile."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest
import sqlalchemy as sa

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import plan as rules
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit.evidence import Evidence
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit.plan import Finding
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit.storage_evidence import (
    Backend,
    CableSnapshot,
    LogicalVolume,
    Secret,
    Session,
    StorageEvidence,
    StorageSnapshot,
    Target,
)
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import attach as volume_attach
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import audit, storage_audit
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import volumes
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import (
    BootWorld,
    device,
    from_image,
    volume_request,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE

from ..instances.test_attach import attach, finish, host_work

PREFIX = "iqn.2010-10.org.openstack:"
LOST = "6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d5e"
OTHER = "6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d5f"
WISH = {"instance": "web", "volume": "data"}


class StorageAuditor:
    """Audits of a world. What the hosts told is what the test says, or what they are to have."""

    def __init__(self, world: BootWorld, run: str = "audit") -> None:
        self.world = world
        self.run = run

    @property
    def context(self) -> t.Any:
        return self.world.context(self.run)

    def told(
        self,
        host: str = "s1",
        kinds: t.Mapping[str, str] | None = None,
        targets: t.Sequence[str] | None = None,
        sessions: t.Sequence[str] = (),
        secrets: t.Sequence[str] = (),
        ago: float = 0,
        remove: bool = True,
        **fields: t.Any,
    ) -> Evidence:
        """``host`` answered just now, or ``ago`` seconds before; compute host h1 with it.

        :arg kinds: id -> snapshot. :arg targets: volumes; None: those that the ledger exports there.
        """
        storage = self.world.storage[host]
        rows = self.world.live_attachments()
        if targets is None:
            targets = [r.volume_id for r in rows if r.storage_host == host and r.export == "done"]
        began_at = self.world.time + 1 - ago
        backends = [
            Backend(
                storage.pool_host(backend),
                [
                    LogicalVolume(kind, i, ("volume-" if kind == "volume" else "_snapshot-") + i, size * 1024**3)
                    for i, size in there.items()
                    for kind in [(kinds or {}).get(i, "volume")]
                ],
            )
            for backend, there in storage.there.items()
        ]
        seen = [Target(PREFIX + "volume-" + v, v, "lio", PREFIX, "/dev/x/volume-" + v) for v in targets]
        cables = CableSnapshot(
            "h1",
            began_at,
            [Session(PREFIX + "volume-" + v, v, True, (0,), ("192.0.2.1:3260",)) for v in sessions],
            [Secret(PREFIX + "volume-" + v, v) for v in secrets],
        )
        snapshot = StorageSnapshot(host, began_at, backends, seen, (), {PREFIX})
        known = StorageEvidence({host: snapshot}, {}, {"h1": cables})
        return Evidence(storage=known, remove_orphans=remove, **fields)

    def both(self, **fields: t.Any) -> Evidence:
        """s1 and s2 answered."""
        found, other = self.told(**fields), self.told("s2", **fields)
        storage = {**found.storage.storage, **other.storage.storage}
        return replace(found, storage=replace(found.storage, storage=storage))

    def plan(self, evidence: Evidence) -> list[Finding]:
        return self.world.ledger.for_run(self.context).inspect(audit.plan, evidence)

    def repair(self, evidence: Evidence, planned: t.Sequence[Finding] | None = None) -> audit.Repaired:
        planned = self.plan(evidence) if planned is None else planned
        return self.world.ledger.for_run(self.context).transact(audit.repair, planned, evidence)

    def hold(self, host: str, side: str, *volume_ids: str) -> list[str]:
        ends = [{"volume_id": v, "iqn": PREFIX + "volume-" + v} for v in volume_ids]
        found = self.world.ledger.for_run(self.context).transact(storage_audit.hold, host, side, ends)
        return [e["volume_id"] for e in found]

    def release(self) -> list[str]:
        return self.world.ledger.for_run(self.context).transact(storage_audit.release)


@pytest.fixture
def one(bworld: BootWorld) -> BootWorld:
    """Storage host s1 with the volume "data", and an instance "web" on h1."""
    bworld.report("h1", memory=9)
    bworld.store()
    bworld.make("data", size=2)
    bworld.boot_of(volume_request("web", image=IMAGE))
    bworld.time += 10
    return bworld


@pytest.fixture
def auditor(one: BootWorld) -> StorageAuditor:
    return StorageAuditor(one)


def short(findings: t.Iterable[Finding]) -> list[tuple[str, str | None, str]]:
    return [(f.kind, f.host, f.action) for f in findings]


def id_of(world: BootWorld, name: str = "data") -> str:
    return str(world.volume(name).id)


def lose(world: BootWorld, *ids: str, size: int = 3, host: str = "s1") -> None:
    """Logical volumes that are there, and that nobody knows of."""
    world.storage[host].there["lvm"].update(dict.fromkeys(ids, size))


# --- reading --------------------------------------------------------------------------------------------------------------


def test_what_is_as_it_should_be_is_no_finding_and_nothing_is_written(auditor: StorageAuditor, one: BootWorld) -> None:
    attach(one, WISH)
    one.time += 10
    before = one.everything()
    used = id_of(one)
    assert auditor.plan(auditor.told(sessions=[used], secrets=[used])) == []
    assert auditor.repair(auditor.told(), []).findings == []
    assert one.everything() == before


def test_everything_that_is_wrong_is_told_at_once_and_a_plan_writes_nothing(
    auditor: StorageAuditor, one: BootWorld
) -> None:
    attach(one, WISH)
    missing = one.make("gone")
    del one.storage["s1"].there["lvm"][missing]
    one.time += 10
    lose(one, LOST)
    evidence = auditor.told(targets=[LOST], sessions=[LOST], secrets=[OTHER], remove=False)
    before = one.everything()
    assert short(auditor.plan(evidence)) == [
        (rules.ORPHAN_SECRET, "h1", rules.REPORT),
        (rules.ORPHAN_SESSION, "h1", rules.REPORT),
        (rules.MISSING_TARGET, "s1", rules.REPORT),
        (rules.MISSING_VOLUME, "s1", rules.REPORT),
        (rules.ORPHAN_TARGET, "s1", rules.REPORT),
        (rules.ORPHAN_VOLUME, "s1", rules.REPORT),
    ]
    (target,) = [f for f in auditor.plan(evidence) if f.kind == rules.MISSING_TARGET]
    assert target.instance == one.attachment("data").instance_uuid
    assert one.everything() == before
    del one.storage["s1"].there["lvm"][LOST]


def test_what_a_missing_target_takes_depends_on_the_disk_and_on_the_guest(
    auditor: StorageAuditor, one: BootWorld
) -> None:
    attach(one, WISH)
    one.boot_of(volume_request("db", from_image(size=2)))
    one.time += 10
    evidence = auditor.told(targets=[])
    off = replace(evidence, storage=replace(evidence.storage, off={r.instance_uuid for r in one.live_attachments()}))
    for seen, word in ((evidence, "The guest is running"), (off, "is not running")):
        found = {f.instance: f.remedy for f in auditor.plan(seen) if f.kind == rules.MISSING_TARGET}
        root = found.pop(next(r.instance_uuid for r in one.live_attachments() if r.mountpoint == "/dev/vda"))
        (data,) = found.values()
        assert "attach it again" in data and word in data and "source_volid" not in data
        assert "source_volid" in root and "attach it again" not in root


def test_a_target_that_goes_before_anybody_is_connected_is_made_anew(auditor: StorageAuditor, one: BootWorld) -> None:
    one.attach(WISH, run="v")
    one.storage_round("v")
    assert one.ends("data")[1] == "done"
    one.time += 10_000  # and the run is dead
    (found,) = [f for f in auditor.plan(auditor.told(targets=[])) if f.changes]
    assert (found.kind, found.action) == (rules.ATTACHMENT, rules.RELEASE)
    # The same again, before an audit: with credentials of its own.
    one.attach(WISH, run="w")
    assert one.ends("data")[1] == "begun"
    one.storage_round("w")
    host_work(one, run="w")
    one.time += 10
    assert one.status("data") == "in-use" and auditor.plan(auditor.told()) == []


def test_only_the_hosts_that_were_named(auditor: StorageAuditor, one: BootWorld) -> None:
    evidence = auditor.told(targets=[LOST], sessions=[LOST], hosts=frozenset(["h1"]))
    assert short(auditor.plan(evidence)) == [(rules.ORPHAN_SESSION, "h1", rules.REMOVE)]


def test_a_volume_that_the_ledger_has_elsewhere_is_an_orphan_here(auditor: StorageAuditor, one: BootWorld) -> None:
    one.store("s2")
    one.time += 10
    lose(one, id_of(one), host="s2")
    (found,) = auditor.plan(auditor.told("s2"))
    assert (found.kind, found.host, found.old["ledger"]) == (rules.ORPHAN_VOLUME, "s2", "s1@lvm#lvm")
    assert found.action == rules.REPORT, "s1 was not asked: it may be the only one"
    (found,) = auditor.plan(auditor.both())
    assert (found.host, found.action) == ("s2", rules.REMOVE)
    del one.storage["s2"].there["lvm"][id_of(one)]


def test_snapshots_of_the_ledger_are_known_and_others_are_orphans(auditor: StorageAuditor, one: BootWorld) -> None:
    one.snapshot({"name": "snap", "volume": "data"})
    one.work()
    one.time += 10
    c = volume_tables.volume_snapshots.c
    (row,) = one.rows(volume_tables.volume_snapshots, c.name == "snap")
    assert auditor.plan(auditor.told(kinds={row.id: "snapshot"})) == []
    there = one.storage["s1"].there["lvm"].pop(row.id)
    (found,) = auditor.plan(auditor.told())
    assert (found.kind, found.what) == (rules.MISSING_VOLUME, "snapshot %s at s1@lvm#lvm" % row.id)
    one.storage["s1"].there["lvm"][row.id] = there
    lose(one, LOST)
    (found,) = auditor.plan(auditor.told(kinds={row.id: "snapshot", LOST: "snapshot"}))
    assert (found.kind, found.key) == (rules.ORPHAN_VOLUME, ("s1@lvm#lvm", "snapshot", LOST))
    del one.storage["s1"].there["lvm"][LOST]


# --- what happened since the host was asked -------------------------------------------------------------------------------


def test_a_volume_that_is_made_while_the_host_is_asked(auditor: StorageAuditor, one: BootWorld) -> None:
    before = auditor.told()
    one.time += 10
    made = one.make("new")
    assert auditor.plan(before) == [], "its row is there, and the answer is older"
    early = auditor.told(ago=one.time)
    assert auditor.plan(early) == [], "the logical volume was there before the row says so"
    one.time += 10
    del one.storage["s1"].there["lvm"][made]
    assert short(auditor.plan(auditor.told())) == [(rules.MISSING_VOLUME, "s1", rules.REPORT)]
    one.storage["s1"].there["lvm"][made] = 10


def test_a_volume_that_a_live_run_makes_or_deletes_is_left_alone(auditor: StorageAuditor, one: BootWorld) -> None:
    one.request({"name": "slow", "size": 1}, run="b")
    one.choose("b")
    works = one.work_of("s1", "b")
    slow = id_of(one, "slow")
    one.time += 10
    assert auditor.plan(auditor.told()) == [], "not there yet"
    lose(one, slow)
    assert auditor.plan(auditor.told()) == [], "half made"
    one.worked("s1", {w.backend: one.storage["s1"].do(w) for w in works}, "b")
    one.remove("slow", run="c")
    del one.storage["s1"].there["lvm"][slow]
    one.time += 10
    assert auditor.plan(auditor.told()) == []
    one.work("s1", "c")


def test_a_volume_that_was_deleted_while_the_host_was_asked(auditor: StorageAuditor, one: BootWorld) -> None:
    evidence = auditor.told()
    one.remove("data")
    one.time += 5
    one.work("s1", "d")
    assert auditor.plan(evidence) == []
    one.time += 10
    lose(one, id_of(one))
    (found,) = auditor.plan(auditor.told())
    assert (found.kind, found.old["ledger"]) == (rules.ORPHAN_VOLUME, "deleted")
    one.storage["s1"].there["lvm"].clear()


def test_an_export_that_is_begun_or_ended_while_the_host_is_asked(auditor: StorageAuditor, one: BootWorld) -> None:
    data = id_of(one)
    one.attach(WISH, run="v")
    one.time += 10
    assert auditor.plan(auditor.told(targets=[data])) == [], "reserved: the target may be there any moment"
    one.storage_round("v")
    one.time += 10
    assert auditor.plan(auditor.told(targets=[])) == [], "exported by a run that is still at work"
    host_work(one)
    evidence = auditor.told(targets=[], ago=5)
    assert auditor.plan(evidence) == [], "attached after the host was asked"
    one.time += 10
    assert short(auditor.plan(auditor.told(targets=[]))) == [(rules.MISSING_TARGET, "s1", rules.REPORT)]
    asked = auditor.told(targets=[data], sessions=[data])
    one.time += 10
    one.detach({"volume": "data"}, run="w")
    host_work(one, run="w")
    one.storage_round("w")
    assert one.status("data") == "available"
    assert auditor.plan(asked) == [], "detached after the host was asked"


# --- repairing ------------------------------------------------------------------------------------------------------------


def test_an_orphan_goes_with_the_next_work_on_its_host(auditor: StorageAuditor, one: BootWorld) -> None:
    lose(one, LOST, OTHER)
    one.reported()
    free = one.pools()["s1@lvm#lvm"].free_capacity_gb
    evidence = auditor.told(kinds={OTHER: "snapshot"})
    repaired = auditor.repair(evidence)
    assert short(repaired.findings) == [(rules.ORPHAN_VOLUME, "s1", rules.REMOVE)] * 2
    assert repaired.ends == {} and repaired.todo == {}
    assert one.pending_cleanups() == {("s1@lvm#lvm", LOST), ("s1@lvm#lvm", OTHER)}
    assert one.pools()["s1@lvm#lvm"].free_capacity_gb == free, "the report has their room already"
    assert auditor.plan(evidence) == [], "they are to go anyway"
    (work,) = one.work_of("s1", "audit")
    assert work.volumes == [
        {"id": OTHER, "kind": "snapshot", "state": "absent"},
        {"id": LOST, "kind": "volume", "state": "absent"},
    ]
    one.worked("s1", {"lvm": one.storage["s1"].do(work)}, "audit")
    assert one.pending_cleanups() == set() and sorted(one.storage["s1"].there["lvm"]) == [id_of(one)]
    assert auditor.plan(auditor.told()) == [], "a second audit has nothing to do"
    assert one.pools()["s1@lvm#lvm"].free_capacity_gb == free + 6


def test_an_orphan_that_could_not_be_removed_is_not_forgotten(auditor: StorageAuditor, one: BootWorld) -> None:
    lose(one, LOST)
    auditor.repair(auditor.told())
    (work,) = one.work_of("s1", "audit")
    busy = errors.VolumeIsBusy(message="it is in use")
    finished = one.worked("s1", {"lvm": one.storage["s1"].do(work, {LOST: busy})}, "audit")
    assert list(finished.failed) == [LOST] and one.pending_cleanups() == {("s1@lvm#lvm", LOST)}


def test_without_the_word_nothing_is_removed(auditor: StorageAuditor, one: BootWorld) -> None:
    lose(one, LOST)
    repaired = auditor.repair(auditor.told(targets=[LOST], sessions=[LOST], remove=False))
    assert {f.action for f in repaired.findings} == {rules.REPORT}
    assert repaired.ends == {} and one.pending_cleanups() == set()
    one.storage["s1"].there["lvm"].clear()


def test_the_plan_is_read_again_under_the_locks(auditor: StorageAuditor, one: BootWorld) -> None:
    """What somebody else did between plan and repair is left alone: here the volume came to live where its orphan is."""
    data = id_of(one)
    one.store("s2")
    one.time += 10
    lose(one, data, host="s2")
    evidence = auditor.both(targets=[data], sessions=[data])
    planned = auditor.plan(evidence)
    assert {f.kind for f in planned} == {rules.ORPHAN_VOLUME, rules.ORPHAN_TARGET, rules.ORPHAN_SESSION}
    assert {f.action for f in planned} == {rules.REMOVE}
    del one.storage["s1"].there["lvm"][data]
    one.time += 10
    with one.ledger.write() as tx:
        c = volume_tables.volumes.c
        tx.execute(
            volume_tables.volumes.update().where(c.id == data).values(pool_host="s2@lvm#lvm", updated_at=one.time)
        )
    repaired = auditor.repair(evidence, planned)
    assert [f for f in repaired.findings if f.changes] == [] and repaired.ends == {} and one.pending_cleanups() == set()


def test_what_a_host_is_to_be_rid_of(auditor: StorageAuditor, one: BootWorld) -> None:
    ends = auditor.repair(auditor.told(targets=[LOST], sessions=[LOST], secrets=[OTHER])).ends
    assert ends["s1"].as_dict() == {
        "sessions": [],
        "secrets": [],
        "targets": [
            {"volume_id": LOST, "iqn": PREFIX + "volume-" + LOST, "target": "lio", "iqn_prefix": PREFIX},
        ],
    }
    assert [e["volume_id"] for e in ends["h1"].sessions] == [LOST]
    assert ends["h1"].sessions[0]["lun"] == 0 and ends["h1"].sessions[0]["portals"] == ["192.0.2.1:3260"]
    assert ends["h1"].secrets == [{"iqn": PREFIX + "volume-" + OTHER, "volume_id": OTHER}]


# --- holding --------------------------------------------------------------------------------------------------------------


def test_a_volume_that_is_held_can_be_attached_by_nobody_until_it_is_released(
    auditor: StorageAuditor, one: BootWorld
) -> None:
    data = id_of(one)
    assert auditor.hold("s1", storage_audit.STORAGE, data, LOST) == [data, LOST]
    assert one.status("data") == "detaching"
    with pytest.raises(errors.InvalidRequest) as caught:
        one.attach(WISH, run="v")
    assert [e["code"] for e in caught.value.errors] == ["InvalidVolume"]
    other = StorageAuditor(one, "another")
    assert other.plan(other.told()) == [], "another audit leaves it to the one that lives"
    assert auditor.hold("h1", storage_audit.COMPUTE, data) == [data], "the same audit goes on with it"
    assert auditor.release() == [data] and auditor.release() == []
    assert (one.status("data"), one.volume("data").run_id) == ("available", None)
    attach(one, WISH)


def test_what_an_audit_that_died_held_is_free_after_the_next(auditor: StorageAuditor, one: BootWorld) -> None:
    auditor.hold("s1", storage_audit.STORAGE, id_of(one))
    one.time += 10_000
    other = StorageAuditor(one, "another")
    assert [(f.kind, f.action, f.new) for f in other.repair(other.told()).findings] == [
        (rules.VOLUME, rules.CORRECT, "available")
    ]
    assert one.status("data") == "available"


def test_what_became_somebodys_is_not_removed(auditor: StorageAuditor, one: BootWorld) -> None:
    data = id_of(one)
    one.attach(WISH, run="v")
    before = one.volume("data")
    assert auditor.hold("s1", storage_audit.STORAGE, data) == []
    assert auditor.hold("h1", storage_audit.COMPUTE, data) == []
    assert one.volume("data") == before and auditor.release() == []
    one.storage_round("v")
    host_work(one)
    assert auditor.hold("s1", storage_audit.STORAGE, data) == []
    assert auditor.hold("h2", storage_audit.COMPUTE, data) == [data], "a session on a host that it is not attached to"
    assert one.status("data") == "in-use"
    assert finish(one, volume_attach.ATTACH) == (["data"], [])


# --- what waits for its storage host ---------------------------------------------------------------------------------------


def test_exports_that_end_and_volumes_that_go_with_the_next_work_are_told(
    auditor: StorageAuditor, one: BootWorld
) -> None:
    made = device("blank", volume_size=3, delete_on_termination=True)
    (uuid,) = one.boot_of(volume_request("db", made, device("volume", "data"), image=IMAGE))
    (own,) = {r.volume_id for r in one.live_attachments()} - {id_of(one)}
    one.delete("d", uuids=[uuid])
    one.disconnect("h1", [uuid], "d")
    one.removed("h1", [uuid], "d")
    one.finish("d", force=True)
    one.time += 10
    due = [(rules.ATTACHMENT, "volume %s" % own, "deleted"), (rules.ATTACHMENT, "volume data", None)]
    before = one.everything()
    for evidence, action in ((auditor.told(), rules.RELEASE), (Evidence(), rules.WAIT)):
        found = auditor.plan(evidence)
        assert sorted((f.kind, f.what, f.new) for f in found) == sorted(due, key=str)
        assert {(f.host, f.instance, f.action) for f in found} == {("s1", uuid, action)}
    assert one.everything() == before
    auditor.repair(auditor.told())
    one.storage_round("audit")
    assert auditor.plan(auditor.told()) == [] and one.status("data") == "available"


# --- what the hosts are asked for -----------------------------------------------------------------------------------------


def test_what_hosts_are_asked_for(auditor: StorageAuditor, one: BootWorld) -> None:
    attach(one, WISH)
    one.store("s2", configuration={"target": "tgt", "iqn_prefix": "iqn.2026-01.org.example:"})
    inspect = one.ledger.inspect
    own = "ledger-%s." % one.ledger.id[:8]
    assert inspect(storage_audit.iqn_prefixes) == [
        prefix + whose for prefix in ("iqn.2010-10.org.openstack:", "iqn.2026-01.org.example:") for whose in ("", own)
    ]
    assert inspect(storage_audit.targets_of, "s1") == {("lio", "iqn.2010-10.org.openstack:")}
    assert inspect(storage_audit.targets_of, "s2") == {("tgt", "iqn.2026-01.org.example:")}
    assert inspect(storage_audit.known_targets) == {"h1": [PREFIX + "volume-" + id_of(one)]}


def test_many_at_once(auditor: StorageAuditor, one: BootWorld) -> None:
    """More than a statement's list may have."""
    ids = ["6a2c1f0e-3c5e-4d7b-8d3f-%012x" % n for n in range(1500)]
    lose(one, *ids, size=0)
    repaired = auditor.repair(auditor.told(targets=ids[:700]))
    assert len(one.pending_cleanups()) == 1500 and len(repaired.ends["s1"].targets) == 700
    with one.ledger.read() as tx:
        assert volumes.select(tx, pool_hosts=["s1@lvm#lvm"])
        assert tx.execute(sa.select(sa.func.count()).select_from(volume_tables.volume_cleanups)).scalar() == 1500
