# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rebuilds, all three phases on a real ledger, with hosts whose modules answer as the real ones do."""

from __future__ import annotations

import typing as t
from dataclasses import asdict

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.drive_files import unpack_files
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.request import expand
from ansible_collections.bootflow.compute.plugins.module_utils.flows.instances import redefine
from ansible_collections.bootflow.compute.plugins.module_utils.flows.recovery import operations as recovery
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.compute import instances
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.plugin_utils.operations.rebuilds.rebuild import Rebuild
from ansible_collections.bootflow.compute.plugins.plugin_utils.volumes import attached_volumes
from ansible_collections.bootflow.compute.tests.unit.worlds.stored_images import STORES, delete_image, store_image
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE, World, request

from .test_instance_operation import Fleet, vm_states

GIB = 1024**3
OTHER = {
    "name": "debian",
    "disk_format": "qcow2",
    "checksum": "1" * 64,
    "url": "https://example.org/debian.qcow2",
    "properties": {"hw_disk_bus": "scsi"},
}


def catalogue(*others: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    own = {k: v for k, v in asdict(IMAGE).items() if k not in ("access", "size", "path")}
    return [own, *(others or (OTHER,))]


class Rebuilding(Fleet):
    """Hosts that rebuild: what they were told to remove and to make."""

    def __init__(self, world: World):
        super().__init__(world)
        self.removed: list[str] = []
        self.off: set[str] = set()  # those that were asked to shut down before
        self.disks: dict[str, list[dict[str, t.Any]]] = {}
        self.domains: dict[str, dict[str, t.Any]] = {}
        self.drives: dict[str, dict[str, t.Any]] = {}
        self.image_size = GIB
        self.fails: dict[str, str] = {}  # module -> uuid
        self.by_another: t.Callable[[], None] = lambda: None  # what another run does when a host is asked
        self.variables: dict[str, t.Any] = {"bootflow_images": catalogue(), "bootflow_virt_type": "qemu"}

    def task(self, host: str, operation: str, phase: str, **options: t.Any) -> dict[str, t.Any]:
        self.hostvars[host].update(self.variables)
        return super().task(host, operation, phase, **options)

    def answer(self, host: str, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.by_another()
        if host in self.away:
            return {"unreachable": True, "msg": "no route"}
        if name == "instance_disks" and not arguments["instances"]:
            size = {"changed": True, "virtual_size": self.image_size, "path": "/x", "error": None}
            return {
                "outcomes": {},
                "image_outcomes": {i["id"]: size for i in arguments["images"]},
                "missing_images": [],
            }
        found = {
            "instance_cleanup": self.removes,
            "instance_disks": self.makes_disks,
            "config_drive": self.makes_drives,
            "domain": self.makes_domains,
        }.get(name)
        return super().answer(host, name, arguments) if found is None else {"outcomes": found(arguments)}

    def outcome(self, name: str, uuid: str, **more: t.Any) -> dict[str, t.Any]:
        bad = errors.RemoteError(reason="no space left").as_dict()
        return {"changed": True, "error": bad if self.fails.get(name) == uuid else None, **more}

    def removes(self, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.removed += [i["uuid"] for i in arguments["instances"]]
        self.off |= {d["uuid"] for _host, state, d in self.asked if state == "shutdown"} & set(self.removed)
        return {i["uuid"]: self.outcome("instance_cleanup", i["uuid"], removed=[]) for i in arguments["instances"]}

    def makes_disks(self, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        assert {i["uuid"] for i in arguments["instances"]} <= set(self.removed)
        assert all(i["made_at"] > 0 for i in arguments["instances"]), "no cleanup that was due before removes them"
        self.disks.update({i["uuid"]: i["disks"] for i in arguments["instances"]})
        return {
            i["uuid"]: self.outcome("instance_disks", i["uuid"], disks=[], pending=[]) for i in arguments["instances"]
        }

    def makes_drives(self, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.drives.update({d["uuid"]: d for d in arguments["drives"]})
        return {d["uuid"]: self.outcome("config_drive", d["uuid"]) for d in arguments["drives"]}

    def makes_domains(self, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        self.domains.update({d["uuid"]: d for d in arguments["domains"]})
        power = {"running": states.RUNNING, "defined": states.SHUTDOWN}
        return {
            d["uuid"]: self.outcome("domain", d["uuid"], power_state=power[d["state"]]) for d in arguments["domains"]
        }


@pytest.fixture
def fleet(world: World) -> Rebuilding:
    """web-1 and web-2, one on h1 and one on h2."""
    world.report("h1", memory=1)
    world.report("h2", memory=1)
    world.accept(request("web", 2))
    for host in sorted({p.host for p in world.schedule().placed.values()}):
        world.build(host)
    return Rebuilding(world)


def row_of(world: World, name: str) -> instances.Instance:
    with world.ledger.read() as tx:
        (row,) = instances.select_live(tx.for_run(world.context()), names=[name])
    return row


def disks_of(world: World, uuid: str) -> list[dict[str, t.Any]]:
    with world.ledger.read() as tx:
        return instances.disks_of(tx.for_run(world.context()), [uuid])[uuid]


def test_with_another_image(fleet: Rebuilding) -> None:
    before, was = fleet.world.rows(tables.ports), fleet.world.rows(tables.claims)
    done = fleet.play("rebuild", names=["web-1"], rebuild_image="debian")
    row, other = row_of(fleet.world, "web-1"), row_of(fleet.world, "web-2")
    assert done["changed"] and [(i["vm_state"], i["power_state"]) for i in done["instances"]] == [("active", 1)]
    assert fleet.removed == [row.uuid] and fleet.disks[row.uuid][0]["image_id"] == row.spec["image"]["id"]
    assert row.spec["image"]["name"] == row.digest["image"]["name"] == "debian" and "bus='scsi'" in xml(fleet, row)
    assert other.spec["image"]["name"] == "cirros", "the other instance of the same request keeps its own"
    assert fleet.world.rows(tables.ports) == before and fleet.world.rows(tables.claims) == was
    assert row.launched_at == fleet.world.time and row.task_state is None
    actions = [(a.action, a.message) for a in fleet.world.rows(tables.instance_actions) if a.instance_uuid == row.uuid]
    assert actions[-1] == ("rebuild", None)


def xml(fleet: Rebuilding, row: instances.Instance) -> str:
    return str(fleet.domains[row.uuid]["xml"]).replace('"', "'")


def test_a_guest_is_asked_to_shut_down_before_it_loses_its_disks(fleet: Rebuilding) -> None:
    """As in Nova: what it has in memory belongs on its volumes. One that is deaf loses its power, and one that is gone is made again."""
    fleet.deaf, fleet.gone = {row_of(fleet.world, "web-1").uuid}, {row_of(fleet.world, "web-2").uuid}
    done = fleet.play("rebuild", names=["web-1", "web-2"])
    assert {d["shutdown_timeout"] for _host, _state, d in fleet.asked} == {60.0} and fleet.off == set(fleet.removed)
    assert [i["forced"] for i in done["instances"]] == [True, False] and not done.get("failed")
    (line,) = [text for text in fleet.shown[-1].splitlines() if text.startswith("web-1")]
    assert "lost its power" in line and vm_states(fleet.world)["web-2"] == (states.ACTIVE, None)


def test_the_host_is_told_which_volumes_the_guest_has(fleet: Rebuilding, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not shut down a guest that has the overlay of a snapshot, or a copy, in place of one."""
    uuid = row_of(fleet.world, "web-1").uuid
    volumes = {uuid: {"6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d01": "/dev/disk/by-path/x"}}
    monkeypatch.setattr(attached_volumes, "sources_of_rows", lambda _rows: volumes)
    fleet.play("rebuild", names=["web-1"])
    assert [d["volumes"] for _host, state, d in fleet.asked if state == "shutdown"] == [volumes[uuid]]


def test_a_guest_whose_host_cannot_shut_it_down_keeps_its_disks(fleet: Rebuilding) -> None:
    fleet.broken = "host"
    done = fleet.play("rebuild", names=["web-1"], rebuild_image="debian")
    assert [i["error"]["code"] for i in done["failed_items"]] == ["RemoteError"] and not fleet.removed
    row = row_of(fleet.world, "web-1")
    assert (row.vm_state, row.task_state, row.spec["image"]["name"]) == (states.ACTIVE, None, "cirros")


def test_one_that_is_taken_over_while_its_guest_shuts_down_keeps_its_disks(fleet: Rebuilding) -> None:
    def take_over() -> None:
        if fleet.asked:
            with fleet.world.ledger.write() as tx:
                tx.execute(tables.instances.update().values(run_id="other"))

    own = fleet.answer

    def answer(host: str, name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        said = own(host, name, arguments)
        take_over()
        return said

    fleet.answer = answer  # type: ignore[method-assign]
    done = fleet.play("rebuild", names=["web-1"])
    assert [i["error"]["code"] for i in done["failed_items"]] == ["UnexpectedTaskStateError"]
    assert not fleet.removed and not fleet.disks


def test_the_diff_has_the_images(fleet: Rebuilding) -> None:
    fleet.check_mode = True
    begun = fleet.task("localhost", "rebuild", "begin", names=["web-1"], rebuild_image="debian")
    assert begun["diff"]["before"].endswith(": active, image cirros\n")
    assert begun["diff"]["after"].endswith(": active, image debian\n")


def test_the_table_has_the_images(fleet: Rebuilding) -> None:
    fleet.check_mode = True
    fleet.play("rebuild", names=["web-1"], rebuild_image="debian")
    assert "image cirros -> debian" in fleet.shown[-1]
    fleet.play("rebuild", names=["web-1"])
    assert fleet.shown[-1].rstrip().endswith("image cirros")


@pytest.mark.parametrize(
    ("operation", "meant"), [("rebuild", "bootflow_rebuild_image"), ("rescue", "bootflow_rescue_image_ref")]
)
def test_an_image_that_nothing_reads_is_refused(fleet: Rebuilding, operation: str, meant: str) -> None:
    """The disks would be made from the instance's own."""
    fleet.variables["bootflow_image"] = "debian"
    before = fleet.world.everything()
    with pytest.raises(errors.InvalidInput) as refused:
        fleet.play(operation, names=["web-1"])
    assert meant in refused.value.remedy and fleet.world.everything() == before and not fleet.removed


@pytest.mark.parametrize(
    ("setting", "properties", "machine", "kept"),
    [
        ({}, {}, "pc", "pc"),
        ({"bootflow_machine_type": "q35"}, {}, "q35", "q35"),
        ({}, {"hw_machine_type": "q35"}, "q35", None),
    ],
)
def test_the_machine_type_is_that_of_the_image_or_the_host_now(
    fleet: Rebuilding, setting: dict[str, str], properties: dict[str, str], machine: str, kept: str | None
) -> None:
    """As Nova forgets with a rebuild what it had kept."""
    image = {**OTHER, "properties": properties}
    fleet.variables.update(bootflow_images=catalogue(image), **setting)
    assert fleet.play("rebuild", names=["web-1"], rebuild_image="debian")["changed"]
    row = row_of(fleet.world, "web-1")
    assert "machine='%s'" % machine in xml(fleet, row)
    assert row.machine_type == kept and row_of(fleet.world, "web-2").machine_type == "pc"


def test_an_image_of_the_ledger_that_is_deleted_meanwhile(fleet: Rebuilding, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked up before the transaction that begins. From then on it is kept."""
    image_id = store_image(fleet.world)
    fleet.variables["bootflow_image_stores"] = STORES
    prepare = Rebuild.prepare
    others = [lambda: delete_image(fleet.world)]

    def meanwhile(work: Rebuild) -> None:
        prepare(work)
        for another in others:
            another()

    monkeypatch.setattr(Rebuild, "prepare", meanwhile)
    with pytest.raises(errors.ImageNotActive):
        fleet.play("rebuild", names=["web-1"], rebuild_image="stored")
    assert vm_states(fleet.world)["web-1"] == ("active", None) and fleet.removed == []
    others.clear()
    store_image(fleet.world, image_id[:-1] + "b")
    fleet.task("localhost", "rebuild", "begin", names=["web-1"], rebuild_image="stored")
    with pytest.raises(errors.InvalidRequest, match="is in use"):
        delete_image(fleet.world, "stored")


def test_with_its_own_image(fleet: Rebuilding) -> None:
    spec_id = row_of(fleet.world, "web-1").request_spec_id
    assert fleet.play("rebuild", names=["web-1", "web-2"])["changed"]
    assert row_of(fleet.world, "web-1").request_spec_id == spec_id and len(fleet.disks) == 2
    assert vm_states(fleet.world) == dict.fromkeys(("web-1", "web-2"), (states.ACTIVE, None))


def test_each_as_its_file_has_it(fleet: Rebuilding) -> None:
    """What the playbook apply rebuilds: images and user data are those of the entries."""
    entry = {"name": "web", "count": 2, "image": "debian", "user_data": "#cloud-config"}
    fleet.variables["bootflow_instances"] = [entry]
    fleet.play("rebuild", names=["web-1", "web-2"], follow_file=True)
    rows = [row_of(fleet.world, name) for name in ("web-1", "web-2")]
    assert {r.digest["image"]["name"] for r in rows} == {"debian"} and all(r.digest["user_data"] for r in rows)
    assert all(fleet.disks[r.uuid][0]["image_id"] == r.spec["image"]["id"] for r in rows)
    entry["image"] = IMAGE.id
    fleet.play("rebuild", names=["web-2"])
    assert row_of(fleet.world, "web-2").digest["image"]["name"] == "debian", "without apply it keeps its own"


def test_the_key_pair_is_that_of_the_file(fleet: Rebuilding) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKnMZ7zpKone94Qf1WdxfLIwlVeHizLtLkO1VfU4fAVz ops"
    fleet.variables["bootflow_keypairs"] = {"ops": key}
    fleet.variables["bootflow_instances"] = [{"name": "web", "count": 2, "image": IMAGE.id, "key_name": "ops"}]
    fleet.play("rebuild", names=["web-1"])
    assert row_of(fleet.world, "web-1").key_name is None, "without apply it keeps its own"
    fleet.fails = {"domain": row_of(fleet.world, "web-2").uuid}
    fleet.play("rebuild", names=["web-1", "web-2"], follow_file=True)
    row = row_of(fleet.world, "web-1")
    assert (row.key_name, row.spec["key_data"], row.digest["key_name"]) == ("ops", key, "ops")
    drive = unpack_files(fleet.drives[row.uuid]["files"])
    assert key in drive["openstack/latest/meta_data.json"].decode()


def test_a_key_pair_is_kept_where_nothing_was_touched(fleet: Rebuilding) -> None:
    fleet.variables["bootflow_keypairs"] = {
        "ops": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKnMZ7zpKone94Qf1WdxfLIwlVeHizLtLkO1VfU4fAVz"
    }
    fleet.variables["bootflow_instances"] = [{"name": "web", "count": 2, "image": IMAGE.id, "key_name": "ops"}]
    fleet.image_size = 9 * GIB
    assert fleet.play("rebuild", names=["web-1"], follow_file=True)["failed_items"]
    row = row_of(fleet.world, "web-1")
    assert (row.key_name, row.spec["key_name"], row.digest["key_name"]) == (None, None, None)


def test_a_file_of_an_image_that_is_not_there_is_found_before_anything_is_touched(fleet: Rebuilding) -> None:
    fleet.variables["bootflow_images"] = catalogue({**OTHER, "url": None, "path": "/nowhere/debian.qcow2"})
    fleet.variables["bootflow_instances"] = [{"name": "web", "count": 2, "image": "debian"}]
    before = fleet.world.everything()
    with pytest.raises(errors.ImageUnacceptable, match="/nowhere/debian.qcow2"):
        fleet.play("rebuild", names=["web-1"], follow_file=True)
    assert fleet.world.everything() == before


def test_one_that_was_off_stays_off(fleet: Rebuilding) -> None:
    fleet.play("stop", names=["web-2"])
    done = fleet.play("rebuild", names=["web-1", "web-2"])
    assert {i["name"]: (i["vm_state"], i["power_state"]) for i in done["instances"]} == {
        "web-1": ("active", 1), "web-2": ("stopped", 4),
    }  # fmt: skip
    assert fleet.domains[row_of(fleet.world, "web-2").uuid]["state"] == "defined"


def test_check_mode_touches_nothing(fleet: Rebuilding) -> None:
    fleet.check_mode = True
    before = fleet.world.everything()
    done = fleet.play("rebuild", names=["web-1"], rebuild_image="debian")
    assert done["changed"] and fleet.world.everything() == before and not fleet.removed and not fleet.disks


@pytest.mark.parametrize("how", ["too large", "away"])
def test_what_fails_before_anything_is_touched_leaves_it_as_it_was(fleet: Rebuilding, how: str) -> None:
    before = row_of(fleet.world, "web-1")
    fleet.image_size = 9 * GIB if how == "too large" else GIB
    fleet.away = {str(before.host)} if how == "away" else set()
    done = fleet.play("rebuild", names=["web-1"], rebuild_image="debian")
    codes = [i["error"]["code"] for i in done["failed_items"]]
    assert codes == ["FlavorDiskSmallerThanImage" if how == "too large" else "HostUnreachable"]
    row = row_of(fleet.world, "web-1")
    assert (row.vm_state, row.task_state, row.request_spec_id) == (states.ACTIVE, None, before.request_spec_id)
    assert not fleet.removed and disks_of(fleet.world, row.uuid)[0]["image_id"] == IMAGE.id


def test_what_was_changed_in_place_meanwhile_stays(fleet: Rebuilding) -> None:
    """The rebuild fails before anything is touched; another run describes the instance in the middle of it."""
    before = row_of(fleet.world, "web-1")
    entry = request("web", description="the shop")

    def describe() -> None:
        with fleet.world.ledger.write() as tx:
            new = redefine.New(row_of(fleet.world, "web-1"), 0, entry, expand.request_digest(entry), ("description",))
            redefine.write(tx.for_run(fleet.world.context("other")), [new])

    fleet.by_another, fleet.away = describe, {str(before.host)}
    assert fleet.play("rebuild", names=["web-1"], rebuild_image="debian")["failed"]
    row = row_of(fleet.world, "web-1")
    assert (row.vm_state, row.task_state, row.spec["image"]) == (states.ACTIVE, None, before.spec["image"])
    assert (row.spec["description"], row.digest["description"]) == ("the shop", "the shop")


@pytest.mark.parametrize("module", ["instance_cleanup", "instance_disks", "domain"])
def test_what_fails_later_is_in_error_and_can_be_rebuilt(fleet: Rebuilding, module: str) -> None:
    uuid = row_of(fleet.world, "web-1").uuid
    fleet.fails = {module: uuid}
    done = fleet.play("rebuild", names=["web-1", "web-2"], rebuild_image="debian")
    assert [i["name"] for i in done["failed_items"]] == ["web-1"]
    assert vm_states(fleet.world) == {"web-1": (states.ERROR, None), "web-2": (states.ACTIVE, None)}
    assert row_of(fleet.world, "web-1").spec["image"]["name"] == "debian"
    fleet.fails = {}
    assert fleet.play("rebuild", names=["web-1"])["changed"]
    assert vm_states(fleet.world)["web-1"] == (states.ACTIVE, None)


def test_a_dead_run_leaves_it_in_error(fleet: Rebuilding) -> None:
    fleet.task("localhost", "rebuild", "begin", names=["web-1"], rebuild_image="debian")
    assert vm_states(fleet.world)["web-1"] == (states.ACTIVE, states.REBUILD_SPAWNING)
    row = row_of(fleet.world, "web-1")
    fleet.world.time += 10_000
    with fleet.world.ledger.write() as tx:
        settled = recovery.settle_operations(
            tx.for_run(fleet.world.context("z")), str(row.host), {row.uuid: states.RUNNING}, fleet.world.time
        )
    assert settled == {row.uuid: states.ERROR}, "what is on its disk, nobody knows"
    fleet.away = {str(row.host)}
    assert fleet.play("rebuild", names=["web-1"])["failed"]
    assert vm_states(fleet.world)["web-1"] == (states.ERROR, None)
    fleet.away = set()
    assert fleet.play("rebuild", names=["web-1"])["changed"]


def test_a_rebuild_that_takes_over_from_a_dead_run_never_says_that_nothing_was_touched(fleet: Rebuilding) -> None:
    fleet.task("localhost", "rebuild", "begin", names=["web-1"], rebuild_image="debian")
    fleet.away = {str(row_of(fleet.world, "web-1").host)}
    fleet.world.time += 10_000
    assert fleet.play("rebuild", names=["web-1"])["failed"]
    assert vm_states(fleet.world)["web-1"] == (states.ERROR, None)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"min_ram": 4096}, errors.FlavorMemoryTooSmall),
        ({"min_disk": 2}, errors.FlavorDiskSmallerThanMinDisk),
        ({"status": "queued"}, errors.ImageNotActive),
        ({"properties": {"hw_numa_nodes": "1"}}, errors.ImageNUMATopologyRebuildConflict),
        ({"url": "", "path": "/nowhere/image.qcow2"}, errors.ImageUnacceptable),
    ],
)
def test_an_image_that_does_not_fit(fleet: Rebuilding, fields: dict[str, t.Any], error: type[Exception]) -> None:
    fleet.variables["bootflow_images"] = catalogue({**OTHER, **fields})
    before = fleet.world.everything()
    with pytest.raises(error):
        fleet.play("rebuild", names=["web-1"], rebuild_image="debian")
    assert fleet.world.everything() == before
    with pytest.raises(errors.ImageNotFound, match="debain"):
        fleet.play("rebuild", names=["web-1"], rebuild_image="debain")


def test_user_data_comes_from_the_request(world: World) -> None:
    world.report("h1")
    world.accept(request("one", user_data="#!/bin/sh\n"))
    world.schedule()
    world.build("h1")
    fleet = Rebuilding(world)
    with pytest.raises(errors.InvalidInput, match="booted with user_data, which the ledger does not keep"):
        fleet.play("rebuild", names=["one"])
    fleet.variables["bootflow_instances"] = [{"name": "one", "user_data": "#!/bin/sh\necho new\n"}]
    assert fleet.play("rebuild", names=["one"])["changed"]
    drive = fleet.drives[row_of(world, "one").uuid]
    assert "echo new" in str(unpack_files(drive["files"]))


@pytest.mark.parametrize("refused", [True, False])
def test_its_host_must_be_one_for_the_image(fleet: Rebuilding, refused: bool) -> None:
    """By filters that look at images; that the host is full of instances, or disabled, does not count."""
    image = {**OTHER, "properties": {"hw_architecture": "aarch64"}} if refused else OTHER
    fleet.variables["bootflow_images"] = catalogue(image)
    fleet.world.report("h1", memory=1, disabled=True)
    fleet.world.report("h2", memory=1, disabled=True)
    before = fleet.world.everything()
    if refused:
        with pytest.raises(errors.NoValidHost, match="ImagePropertiesFilter rejects h. for image debian"):
            fleet.play("rebuild", names=["web-1", "web-2"], rebuild_image="debian")
        assert fleet.world.everything() == before
        assert "failed" not in fleet.play("rebuild", names=["web-1"]), "its own image is not asked about"
    else:
        assert "failed" not in fleet.play("rebuild", names=["web-1", "web-2"], rebuild_image="debian")


def test_a_new_root_without_an_ssh_host_key_has_none_in_the_ledger(fleet: Rebuilding) -> None:
    """The guest makes its own then: with the former one SSH would refuse it."""
    keys = []
    for wanted in (True, False, True):
        fleet.variables["bootflow_ssh_host_keys"] = wanted
        assert "failed" not in fleet.play("rebuild", names=["web-1"])
        keys.append(row_of(fleet.world, "web-1").ssh_host_key)
    assert keys[1] is None and keys[0] and keys[2]
