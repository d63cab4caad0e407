# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Work in proportion: as many statements for many volumes as for a few, and no look at all that there is."""

from __future__ import annotations

import random
import re
import shutil
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import exports, life
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import attach as volume_attach
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import volume_leases
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import extend as volume_extension
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import schedule
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import work as volume_work
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.transaction import Transaction
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import (
    attachments,
    backends,
    volume_views,
    volumes,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import (
    BootWorld,
    device,
    from_image,
    volume_request,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.statements import counted
from ansible_collections.bootflow.compute.tests.unit.worlds.volume_world import VolumeWorld

FAILED = errors.VolumeBackendAPIException(data="lvcreate failed")


def each(words: str, count: int, **fields: t.Any) -> list[dict[str, t.Any]]:
    return [{"name": "%s-%d" % (words, i), "size": 1, **fields} for i in range(count)]


class Costs:
    """How many statements each step takes, for as many volumes as are asked for."""

    def __init__(self, world: VolumeWorld):
        self.world = world
        self.found: dict[str, int] = {}

    def of(self, step: str, function: t.Callable[[], t.Any]) -> t.Any:
        with counted(self.world.ledger) as statements:
            result = function()
        self.found[step] = len(statements)
        return result


def life_of(world: VolumeWorld, count: int, run: str) -> dict[str, int]:
    """Volumes from their acceptance to their end, on one host, with what may go wrong."""
    costs = Costs(world)
    good, bad = "good-%s" % run, "bad-%s" % run
    world.request(run=run)  # the run is entered
    entries = each(good, count, image_id="cirros") + each(bad, count)
    costs.of("accept", lambda: world.request(*entries, run=run))
    costs.of("schedule", lambda: world.choose(run))
    work = costs.of("begin", lambda: world.work_of("s1", run))
    failing = {world.volume("%s-%d" % (bad, i)).id: FAILED for i in range(count)}
    results = {w.backend: world.storage["s1"].do(w, failing) for w in work}
    costs.of("finish", lambda: world.worked("s1", results, run))
    world.max_attempts = 1
    costs.of("no backend", lambda: world.choose(run))
    world.max_attempts = 3
    costs.of("once more", lambda: world.request(*each(bad, count), run=run))
    world.choose(run)
    silence = errors.HostUnreachable(host="s1", reason="no route")
    work = world.work_of("s1", run)
    silent = {w.backend: volume_work.WorkResult(error=silence) for w in work}
    costs.of("finish of a silent host", lambda: world.worked("s1", silent, run))
    world.reported("s1")
    costs.of("list", lambda: shown(world))
    names = ["%s-%d" % (good, i) for i in range(count)]
    costs.of("extend", lambda: extend(world, names, 2, run))
    grown = {w.backend: world.storage["s1"].do(w) for w in world.work_of("s1", run)}
    costs.of("finish of extensions", lambda: world.worked("s1", grown, run))
    snapshots = [{"name": "snap-" + name, "volume": name} for name in names]
    costs.of("snapshots", lambda: world.snapshot(*snapshots, run=run))
    work = costs.of("begin of snapshots", lambda: world.work_of("s1", run))
    taken = {w.backend: world.storage["s1"].do(w) for w in work}
    costs.of("finish of snapshots", lambda: world.worked("s1", taken, run))
    costs.of("delete", lambda: world.remove(*names, run=run, cascade=True))
    staying = {world.volume(n).id for n in names[::2]}
    c = volume_tables.volume_snapshots.c
    staying |= {r.id for r in world.rows(volume_tables.volume_snapshots, c.volume_id.in_(staying))}
    fail = dict.fromkeys(staying, FAILED)
    gone = {w.backend: world.storage["s1"].do(w, fail) for w in world.work_of("s1", run)}
    costs.of("finish of deletions", lambda: world.worked("s1", gone, run))
    costs.of("end of deletions", lambda: world.removed_all(run=run))
    world.remove(*names, run=run, cascade=True)
    costs.of("end of what no host was asked for", lambda: world.removed_all(run=run))
    return costs.found


def extend(world: VolumeWorld, names: t.Sequence[str], size: int, run: str) -> t.Any:
    wishes = [{"volume": n, "size": size} for n in names]
    with world.ledger.write() as tx:
        return volume_extension.begin(tx.for_run(world.context(run)), wishes, world.settings(), world.volume_options())


def shown(world: VolumeWorld) -> list[dict[str, t.Any]]:
    with world.ledger.read() as tx:
        return volume_views.volumes(tx)


def test_many_volumes_take_as_many_statements_as_a_few(vworld: VolumeWorld) -> None:
    vworld.store("s1", lvm=10_000)
    vworld.make("first")
    few = life_of(vworld, 2, "a")
    many = life_of(vworld, 9, "b")
    assert many == few


def test_boots_take_no_statement_for_each_volume(bworld: BootWorld) -> None:
    bworld.report("h1", memory=100)
    bworld.store("s1", lvm=10_000)
    disks = (from_image(), device("blank", volume_size=3), device("blank", volume_size=3))
    costs = Costs(bworld)
    bworld.accept(volume_request("first", disks[0], networks=()))  # the run is entered with it
    costs.of("one", lambda: bworld.accept(volume_request("one", disks[0], count=2, networks=())))
    costs.of("three", lambda: bworld.accept(volume_request("three", *disks, count=2, networks=())))
    costs.of("ten", lambda: bworld.accept(volume_request("ten", *disks, count=10, networks=())))
    assert costs.found["one"] == costs.found["three"] == costs.found["ten"]


def test_a_guest_that_gets_many_volumes(bworld: BootWorld) -> None:
    bworld.report("h1", memory=100)
    bworld.store("s1", lvm=10_000)
    bworld.boot_of(volume_request("vm", from_image(), networks=()))

    def costs_of(count: int, run: str) -> dict[str, int]:
        costs = Costs(bworld)
        names = [e["name"] for e in each("data-" + run, count)]
        for name in names:
            bworld.make(name, size=1, run=run)
        context = bworld.context(run)
        wishes = [{"instance": "vm", "volume": n} for n in names]
        bworld.attach(*wishes, run=run)
        with bworld.ledger.write() as tx:
            costs.of("nothing to attach yet", lambda: volume_attach.to_attach(tx.for_run(context), "h1"))
        bworld.storage_round(run)
        with bworld.ledger.write() as tx:
            rows = costs.of("to attach", lambda: volume_attach.to_attach(tx.for_run(context), "h1"))
        assert len(rows) == count
        bworld.connect("h1", [r.instance_uuid for r in rows], run)
        with bworld.ledger.write() as tx:
            costs.of("attached", lambda: life.attached(tx.for_run(context), [r.id for r in rows]))
            done, left = costs.of("finish", lambda: volume_attach.finish(tx.for_run(context), volume_attach.ATTACH))
        assert (len(done), left) == (count, [])
        bworld.detach(*wishes, run=run)
        with bworld.ledger.write() as tx:
            assert len(costs.of("to detach", lambda: volume_attach.to_detach(tx.for_run(context), "h1"))) == count
            costs.of("detached by nobody", lambda: volume_attach.finish(tx.for_run(context), volume_attach.DETACH))
        return costs.found

    assert costs_of(7, "b") == costs_of(2, "a")


def test_a_boot_of_many_counts_what_it_made_itself_against_the_quota(bworld: BootWorld) -> None:
    bworld.report("h1", memory=100)
    bworld.quotas = {"volumes": 5, "gigabytes": -1, "snapshots": -1}
    requests = [volume_request("vm-%d" % i, from_image(), device("blank", volume_size=3)) for i in range(3)]
    (refusal,) = bworld.refusals(*requests)
    assert refusal["path"].startswith("instances[2].block_device_mapping")
    assert refusal["code"] == "VolumeLimitExceeded"
    assert len(bworld.accept(*requests[:2]).created) == 2


# --- nothing to do ---------------------------------------------------------------------------------------------------


def nothing_to_do(world: BootWorld, tx: Transaction) -> None:
    """What each boot asks for, whoever has volumes."""
    context = world.context("idle")
    volume_work.hosts_with_work(tx.for_run(context))
    attachments.hosts_to_export(tx.for_run(context))
    attachments.hosts_to_unexport(tx.for_run(context))
    volume_leases.find_leftovers(tx.for_run(context))
    volume_work.begin(tx.for_run(context), "s1")
    exports.to_unexport(tx.for_run(context), "s1")
    schedule.schedule(tx.for_run(context), world.volume_options())


@pytest.fixture
def used(bworld: BootWorld) -> BootWorld:
    """With instances that have volumes, and with deleted ones."""
    bworld.report("h1", memory=100)
    bworld.store("s1", lvm=10_000)
    bworld.boot_of(volume_request("vm", from_image(), count=3, networks=()))
    gone = bworld.boot_of(volume_request("gone", from_image(delete_on_termination=True), networks=()), run="b")
    bworld.delete_all(*gone)
    bworld.make("free", run="c")
    return bworld


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_nothing_to_do_reads_no_whole_table(used: BootWorld) -> None:
    with counted(used.ledger) as statements, used.ledger.write() as tx:
        nothing_to_do(used, tx)
        backends.pool_states(tx)
        volumes.usage(tx, "default")
    scans = set()
    with used.ledger.read() as tx:
        for statement, parameters in statements:
            if not statement.startswith(("SELECT", "UPDATE", "DELETE")):
                continue
            for row in tx.connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, parameters):
                scans.update(
                    re.findall(r"^SCAN (volumes|volume_attachments|volume_snapshots|volume_events)\b(.*)", row[3])
                )
    # Sums over all that lives are read off an index that has nothing else.
    assert scans <= {("volumes", " USING COVERING INDEX ix_volumes_pool_host")}


def test_nothing_to_do_takes_the_same_statements_whatever_there_is(used: BootWorld) -> None:
    costs = Costs(used)

    def look() -> None:
        with used.ledger.write() as tx:
            nothing_to_do(used, tx)

    look()  # the run is entered
    costs.of("used", look)
    used.boot_of(volume_request("more", from_image(), count=5, networks=()), run="e")
    costs.of("more", look)
    assert costs.found["used"] == costs.found["more"] <= 30


# --- all at once as one by one ---------------------------------------------------------------------------------------


def outcome(world: VolumeWorld, names: t.Sequence[str]) -> list[t.Any]:
    """What became of these volumes, without ids and runs."""
    found: list[t.Any] = []
    with world.ledger.read() as tx:
        pending = backends.promised(tx)
    for name in names:
        row = world.volume(name)
        faults = world.rows(volume_tables.volume_faults, volume_tables.volume_faults.c.volume_id == row.id)
        events = world.rows(volume_tables.volume_events, volume_tables.volume_events.c.volume_id == row.id)
        found.append(
            {
                "row": (row.status, row.pool_host, row.pending_gb, row.made, row.size, row.new_size, row.deleted != ""),
                "retry": row.retry,
                "worked on": row.run_id is not None,
                "events": sorted((e.event, e.host, e.result, e.details or "") for e in events),
                "faults": [(f.error_code, f.message, f.host, f.rescheduled) for f in faults],
                "notified": sorted(world.notified(row.id)),
                "cleanups": sorted((p, i == row.id) for p, i in world.pending_cleanups() if i == row.id),
            }
        )
    return [*found, sorted((p, vars(s)) for p, s in pending.items())]


def many_at_once(world: VolumeWorld, seed: int, together: bool) -> list[t.Any]:
    """Volumes made, extended and deleted on one host, some of which fail: in one run, or in one for each."""
    rng = random.Random(seed)
    names = ["v%d" % i for i in range(8)]
    world.store("s1", lvm=1000)
    runs = {n: "a" if together else "a" + n for n in names}

    def work(step: str, plans: t.Mapping[str, str]) -> None:
        """``plans``: name -> how it goes."""
        for run in dict.fromkeys(runs[n] for n in plans):
            mine = [n for n in plans if runs[n] == run]
            works = world.work_of("s1", run)
            fail = {}
            for name in mine:
                if plans[name] != "good":
                    fail[world.volume(name).id] = errors.VolumeBackendAPIException(data="%s of %s" % (step, name))
            results = {}
            for w in works:
                results[w.backend] = world.storage["s1"].do(w, fail)
            world.worked("s1", results, run)

    def ways(chosen: t.Iterable[str]) -> dict[str, str]:
        return {n: rng.choice(("good", "bad")) for n in chosen}

    entries = {n: {"name": n, "size": rng.randint(1, 9)} for n in names}
    if together:
        world.request(*entries.values(), run="a")
        world.choose("a")
    else:
        for n in names:
            world.request(entries[n], run=runs[n])
            world.choose(runs[n])
    work("create", ways(names))
    there = [n for n in names if world.status(n) == "available"]
    if together:
        extend(world, there, 20, "a")
    else:
        for n in there:
            extend(world, [n], 20, runs[n])
    work("extend", ways(there))
    going = [n for n in names if world.status(n) in ("available", "error", "error_extending")]
    for run in dict.fromkeys(runs[n] for n in going):
        world.remove(*[n for n in going if runs[n] == run], run=run)
    work("delete", ways(going))
    return outcome(world, names)


@pytest.mark.parametrize("seed", range(3))
def test_one_run_of_many_does_what_many_runs_of_one_do(
    vworld: VolumeWorld, sqlite_template: str, tmp_path: t.Any, seed: int
) -> None:
    other = VolumeWorld("sqlite:///%s" % shutil.copy(sqlite_template, tmp_path / "other.db"))
    try:
        assert many_at_once(vworld, seed, together=True) == many_at_once(other, seed, together=False)
    finally:
        other.ledger.close()
