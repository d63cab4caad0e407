# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rebuilds that write root volumes again, in the ledger: their steps, each failure, and a run that is killed after each of them."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import evidence as host_evidence
from ansible_collections.bootflow.compute.plugins.module_utils.core.audit import plan as audit
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Image
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import moving
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import operation, rebuild
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operation import Outcome, Selection
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances.operations import OPERATIONS
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import volume_audit, volume_leases
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import reimage
from ansible_collections.bootflow.compute.plugins.module_utils.flows.volumes import work as volume_work
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.images import image_uses
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import volume_tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import attachments
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import (
    BootWorld,
    device,
    from_image,
    volume_request,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE

REBUILD = OPERATIONS["rebuild"]
BROKEN = errors.ImageCopyFailure(reason="the device is broken")
NEW = Image(
    name="debian",
    id="6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e",
    disk_format="raw",
    checksum="1" * 64,
    url="https://example.org/debian.raw",
    properties={"os_distro": "debian", "hw_video_model": "vga"},
    min_disk=2,
)


class Site:
    """An instance whose root is a volume of 5 GB, and another volume; the steps of the playbook."""

    def __init__(self, world: BootWorld):
        self.world = world
        world.moves = True
        world.report("h1")
        world.store()
        world.make("data", size=2)
        data = device("volume", world.volume("data").id)
        (self.uuid,) = world.boot_of(volume_request("web", from_image(), data))
        self.root = world.disks(self.uuid)[0]["volume_id"]
        self.run = "r"

    def ask(self, function: t.Callable[..., t.Any], *arguments: t.Any) -> t.Any:
        with self.world.ledger.write() as tx:
            result = function(tx.for_run(self.world.context(self.run)), *arguments)
            self.world.check(tx)
            return result

    def begin(self, image: Image | None = NEW, **wanted: t.Any) -> rebuild.Beginning:
        wish = rebuild.Wanted(image=image, **wanted)
        selection = Selection(uuids=[self.uuid])
        return t.cast(rebuild.Beginning, self.ask(rebuild.begin, REBUILD, selection, ["h1"], wish))

    def leave(self) -> None:
        with self.world.ledger.read() as tx:
            rows = attachments.select(tx, volume_ids=[self.root], connected=True)
        self.world.connections.discard(("h1", self.root))
        self.ask(moving.mark_disconnected, [r.id for r in rows])

    def storage(self, error: errors.BootflowError | None = None, untouched: bool = False) -> list[dict[str, t.Any]]:
        """What the playbook's storage_stage does. Returns what the host was to do."""
        self.world.unexport("s1", self.run)
        work = self.ask(volume_work.begin, "s1")
        wanted = [element for backend in work for element in backend.volumes]
        outcome = {"changed": not untouched, "error": error.as_dict() if error else None, "size": 5 * 1024**3}
        results = {w.backend: volume_work.WorkResult({e["id"]: outcome for e in w.volumes}) for w in work}
        self.ask(volume_work.finish, "s1", results)
        self.world.export("s1", self.run)
        return wanted

    def connect(self) -> None:
        with self.world.ledger.read() as tx:
            rows = moving.attachments_to_connect(tx.for_run(self.world.context(self.run)), "h1", [self.uuid])
        self.world.connect_rows("h1", rows, self.run)

    def outcome(self) -> reimage.Reimaged:
        return t.cast("dict[str, reimage.Reimaged]", self.ask(reimage.outcomes, {self.uuid: (self.root, NEW.id)}))[
            self.uuid
        ]

    def finish(self, outcome: Outcome, before: t.Mapping[str, rebuild.Before] | None = None) -> None:
        def write(tx: t.Any) -> None:
            if outcome.error is not None:
                error = outcome.error
                reimage.end_unbegun(tx, [self.uuid], lambda _uuid: error)
                if before:
                    rebuild.keep(tx, REBUILD, before)
            moving.release_moved(tx, [self.uuid])
            operation.finish(tx, REBUILD, {self.uuid: outcome})

        self.ask(write)

    def settle(self, power: int | None = states.RUNNING) -> dict[str, str]:
        self.world.time += 1
        self.run = "z"
        powers = {} if power is None else {self.uuid: power}
        return t.cast("dict[str, str]", self.ask(recovery.settle_operations, "h1", powers, self.world.time, []))

    @property
    def volume(self) -> t.Any:
        return self.world.volume(self.root)

    @property
    def state(self) -> tuple[str, str | None, str]:
        row = self.world.row(self.uuid)
        return row.vm_state, row.task_state, self.volume.status


@pytest.fixture
def site(bworld: BootWorld) -> Site:
    return Site(bworld)


def test_all_steps(site: Site) -> None:
    before = site.volume
    was = site.world.row(site.uuid)
    begun = site.begin()
    again = begun.reimages[site.uuid]
    assert (again.volume_id, again.image, again.former, again.storage_host) == (site.root, NEW, IMAGE.name, "s1")
    assert site.state == ("active", "rebuild_spawning", "reserved") and site.volume.previous_status == "in-use"
    assert site.storage() == [], "nothing is written while the host is connected"
    assert site.volume.status == "reserved"
    site.leave()
    assert site.world.ends(site.root) == ("attached", "ending", "none")
    assert site.storage() == [
        {"id": site.root, "kind": "volume", "project": "default", "state": "reimaged", "size_gb": 5, "image_id": NEW.id}
    ]
    assert site.outcome().done and site.world.ends(site.root) == ("attached", "done", "none")
    site.connect()
    site.finish(Outcome(states.RUNNING, vm_state="active"))
    after, row = site.volume, site.world.row(site.uuid)
    assert site.state == ("active", None, "in-use")
    assert site.world.attachment(site.root).run_id is None and after.run_id is None
    kept = ("id", "name", "size", "volume_type", "pool_host", "attach_status", "made", "digest", "pending_gb")
    assert [getattr(after, k) for k in kept] == [getattr(before, k) for k in kept]
    assert after.image_id == after.image_metadata["image_id"] == after.spec["image"]["id"] == NEW.id
    assert after.image_metadata["os_distro"] == "debian" and "reimage" not in after.spec and after.bootable
    assert [e[0] for e in site.world.events(site.root)].count("reimage") == 1
    assert {"volume.reimage.start", "volume.reimage.end"} <= set(site.world.notified(site.root))
    assert row.uuid == was.uuid and row.request_spec_id != was.request_spec_id
    with site.world.ledger.read() as tx:
        (instance,) = rebuild.instances.select_live(tx, uuids=[site.uuid])
    assert instance.spec["image"]["properties"] == dict(NEW.properties) and instance.spec["image"]["id"] == ""
    assert instance.digest["root_image"]["name"] == "debian"
    assert instance.digest["block_device_mapping"][0]["uuid"] == NEW.id
    assert site.world.disks(site.uuid)[0]["image_id"] == NEW.id
    assert site.world.volume("data").status == "in-use" and site.world.ends("data") == ("attached", "done", "done")


def test_what_leaves_the_volume_alone(site: Site) -> None:
    """No image, and the one that it has: as in Nova before 2.93. Its definition is made again."""
    for image in (None, IMAGE):
        begun = site.begin(image)
        assert begun.reimages == {} and site.volume.status == "in-use"
        site.finish(Outcome(states.RUNNING, vm_state="active"))


@pytest.mark.parametrize(
    ("image", "code"),
    [
        (replace(NEW, min_disk=6), "VolumeSmallerThanMinDisk"),
        (replace(NEW, size=6 * 1024**3), "InvalidInput"),
        (replace(NEW, min_ram=1024**2), "FlavorMemoryTooSmall"),
        (replace(NEW, status="queued"), "ImageNotActive"),
    ],
    ids=["min_disk", "size", "min_ram", "status"],
)
def test_an_image_that_does_not_fit_is_refused_before_anything(site: Site, image: Image, code: str) -> None:
    before = site.world.everything()
    with pytest.raises(errors.BootflowError) as caught:
        site.begin(image)
    assert caught.value.code == code and site.world.everything() == before


def test_an_image_that_is_deleted_meanwhile(site: Site) -> None:
    def gone(_tx: t.Any, ids: t.Collection[str]) -> None:
        raise errors.ImageNotActive(image_id=", ".join(sorted(ids)))

    before = site.world.everything()
    with pytest.raises(errors.ImageNotActive, match=NEW.id):
        site.begin(check_images=gone)
    assert site.world.everything() == before


def test_a_volume_of_two_instances(bworld: BootWorld) -> None:
    """Cinder refuses it, too."""
    bworld.moves = True
    bworld.report("h1")
    bworld.store()
    bworld.make("shared", image="cirros", multiattach=True)
    root = device("volume", bworld.volume("shared").id, 0)
    uuids = bworld.boot_of(volume_request("one", root), volume_request("two", root))
    wish, selection = rebuild.Wanted(image=NEW), Selection(uuids=uuids[:1])
    with bworld.ledger.write() as tx, pytest.raises(errors.Conflict, match="more than one server"):
        rebuild.begin(tx.for_run(bworld.context("r")), REBUILD, selection, ["h1"], wish)


def test_an_image_is_kept_while_it_is_written(site: Site) -> None:
    def uses() -> dict[str, list[str]]:
        with site.world.ledger.read() as tx:
            return image_uses.uses(tx, [NEW.id])

    assert uses() == {}
    site.begin()
    assert uses() == {NEW.id: ["volume %s is being written again from it" % site.root]}
    site.leave()
    site.world.unexport("s1", site.run)
    site.ask(volume_work.begin, "s1")
    assert site.volume.previous_status == "error" and list(uses()) == [NEW.id]


def test_a_failure_that_wrote_nothing_leaves_all_as_it_was(site: Site) -> None:
    before, was = site.volume, site.world.row(site.uuid)
    disks = site.world.disks(site.uuid)
    begun = site.begin()
    site.leave()
    site.storage(BROKEN, untouched=True)
    outcome = site.outcome()
    assert not outcome.done and not outcome.torn and "the device is broken" in str(outcome.error)
    site.connect()
    site.finish(Outcome(states.RUNNING, error=BROKEN), begun.before)
    row, after = site.world.row(site.uuid), site.volume
    assert site.state == ("active", None, "in-use") and row.request_spec_id == was.request_spec_id
    assert site.world.disks(site.uuid) == disks
    assert (after.spec, after.image_metadata, after.previous_status, after.run_id) == (
        before.spec,
        before.image_metadata,
        None,
        None,
    )


def test_a_host_that_does_not_let_go(site: Site) -> None:
    """Its guest cannot be shut down: the storage host writes nothing."""
    begun = site.begin()
    assert site.storage() == []
    assert not site.outcome().torn
    site.finish(Outcome(states.RUNNING, error=BROKEN), begun.before)
    assert site.state == ("active", None, "in-use") and "reimage" not in site.volume.spec


@pytest.mark.parametrize("image", [None, NEW, IMAGE], ids=["no image", "the same", "the former"])
def test_a_failure_in_the_middle_is_an_error_until_it_is_rebuilt(site: Site, image: Image | None) -> None:
    begun = site.begin()
    site.leave()
    site.storage(BROKEN)
    outcome = site.outcome()
    assert outcome.torn and not outcome.done
    assert site.world.ends(site.root) == ("attached", "none", "none"), "no guest boots from it"
    site.connect()
    site.finish(Outcome(error=BROKEN, vm_state="error"), begun.before)
    assert site.state == ("error", None, "error")

    site.run = "next"
    again = site.begin(image)
    assert again.reimages[site.uuid].image.id == (image or NEW).id
    assert site.volume.status == "reserved"
    (wanted,) = site.storage()
    assert wanted["image_id"] == (image or NEW).id
    site.connect()
    site.finish(Outcome(states.RUNNING, vm_state="active"))
    assert site.state == ("active", None, "in-use") and site.volume.image_id == (image or NEW).id


def test_a_second_failure_before_anything_is_written_keeps_the_error(site: Site) -> None:
    site.begin()
    site.leave()
    site.storage(BROKEN)
    site.finish(Outcome(error=BROKEN, vm_state="error"))
    site.run = "next"
    site.begin()
    site.storage(BROKEN, untouched=True)
    assert (
        site.volume.status == "error" and site.outcome().torn and site.volume.spec["reimage"]["image"]["id"] == NEW.id
    )
    site.finish(Outcome(error=BROKEN, vm_state="error"))


def test_an_instance_that_is_deleted_with_a_volume_that_is_torn(site: Site) -> None:
    site.begin()
    site.leave()
    site.storage(BROKEN)
    site.finish(Outcome(error=BROKEN, vm_state="error"))
    site.world.delete_all(site.uuid)
    assert (site.volume.status, site.volume.attach_status, site.volume.run_id) == ("error", "detached", None)


def test_others_wait(site: Site) -> None:
    """Another run extends, detaches or deletes nothing of it."""
    site.begin()
    with pytest.raises(errors.InvalidRequest, match="is being worked on by run run-r"):
        site.world.extend(site.root, 9, run="other")
    site.run = "other"
    with pytest.raises(errors.InstanceBusy):
        site.begin()


# --- a run is killed ------------------------------------------------------------------------------------------------------

KILLED = ["begun", "let go", "unexported", "being written", "written", "connected"]


def until(site: Site, step: str) -> None:
    site.begin()
    if step == "begun":
        return
    site.leave()
    if step == "let go":
        return
    site.world.unexport("s1", site.run)
    if step == "unexported":
        return
    if step == "being written":
        site.ask(volume_work.begin, "s1")
        return
    site.storage()
    if step == "connected":
        site.connect()


@pytest.mark.parametrize("by", ["report", "next rebuild", "lease"])
@pytest.mark.parametrize("step", KILLED)
def test_a_run_is_killed(site: Site, step: str, by: str) -> None:
    """What is left: a volume that is as it was, or was written, or one in error; rebuilt again with the same image all are well."""
    until(site, step)
    site.world.time += 601
    if by == "report":
        assert site.settle() == {site.uuid: "error"}
    elif by == "lease":
        site.run = "l"
        found = site.ask(volume_leases.find_leftovers)
        site.ask(volume_leases.expire, found)
    if by != "next rebuild":
        expected = "error" if step == "being written" else "in-use"
        assert site.volume.status == expected and site.volume.run_id in (None, "l")
        assert (site.volume.image_id == NEW.id) == (step in ("written", "connected"))
    site.run = "next"
    again = site.begin()
    assert (site.uuid in again.reimages) == (step not in ("written", "connected"))
    if step == "begun":
        site.leave()
    site.ask(moving.adopt_unconnected, {site.uuid: "h1"}, site.world.end)
    site.storage()
    site.connect()
    assert site.outcome().done
    site.finish(Outcome(states.RUNNING, vm_state="active"))
    assert site.state == ("active", None, "in-use")
    assert site.world.ends(site.root) == ("attached", "done", "done")
    events = site.world.rows(volume_tables.volume_events)
    assert not [e for e in events if e.event == "reimage" and e.finish_time is None], "the journal is closed"


@pytest.mark.parametrize(("step", "after"), [("begun", "in-use"), ("let go", "in-use"), ("being written", "error")])
def test_an_audit_reports_what_becomes_of_the_volume(site: Site, step: str, after: str) -> None:
    until(site, step)
    site.world.time += 601
    with site.world.ledger.read() as tx:
        findings = volume_audit.plan(tx.for_run(site.world.context("x")), host_evidence.Evidence())
    (finding,) = [f for f in findings if f.key[:2] == ("volume", site.root)]
    assert (finding.host, finding.old, finding.new) == ("s1", "reserved", after)
    assert (finding.action, finding.remedy) == (audit.END, "Rebuild its instance again.")


def test_a_late_answer_of_a_killed_run(site: Site) -> None:
    """The storage host ends it after another run has begun: that run writes it."""
    site.begin()
    site.leave()
    site.world.unexport("s1", site.run)
    work = site.ask(volume_work.begin, "s1")
    site.world.time += 601
    site.run = "next"
    site.begin()
    assert site.volume.status == "reserved"
    site.run = "r"
    outcome = {"changed": True, "error": None, "size": 5 * 1024**3}
    results = {w.backend: volume_work.WorkResult({e["id"]: outcome for e in w.volumes}) for w in work}
    finished = site.ask(volume_work.finish, "s1", results)
    assert finished.done == [] and site.volume.status == "reserved" and site.volume.image_id == IMAGE.id
    site.run = "next"
    site.storage()
    assert site.outcome().done
    site.connect()
    site.finish(Outcome(states.RUNNING, vm_state="active"))
