# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The actions of volumes as the playbooks run them, on real ledgers: what they tell people, and that a refusal writes nothing."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import (
    attach_volume,
    boot_accept,
    detach_volume,
    instance_delete,
    storage_stage,
    volume_accept,
    volume_delete,
    volume_extend,
    volume_info,
    volume_report,
    volume_schedule,
    volume_snapshot,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.life import DELETE
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.resolve import LedgerImages
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.power_states import SHUTDOWN
from ansible_collections.bootflow.compute.plugins.module_utils.flows.attachments import life
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.images import images
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.schema import tables
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.storage import attachments
from ansible_collections.bootflow.compute.plugins.plugin_utils.settings import ledger_images
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import Runner, WorldPorts, action_of, results_of
from ansible_collections.bootflow.compute.tests.unit.worlds.boot_world import BootWorld, from_image, volume_request
from ansible_collections.bootflow.compute.tests.unit.worlds.stored_images import STORES, store_image
from ansible_collections.bootflow.compute.tests.unit.worlds.world import IMAGE

HOSTS = ("h1", "s1", "s2")


@pytest.fixture
def run(bworld: BootWorld) -> Runner:
    """An instance "web" on h1; volumes "data" and "snapped" (with the snapshot "monday") on s1; s2 is empty."""
    bworld.report("h1", memory=9)
    bworld.store()
    bworld.make("data", size=10)
    bworld.make("snapped", size=3)
    bworld.snapshot({"name": "monday", "volume": "snapped"})
    bworld.work()
    bworld.boot_of(volume_request("web", image=IMAGE))
    return Runner(bworld, HOSTS)


def refused(run: Runner, *arguments: t.Any, **options: t.Any) -> list[tuple[str, str]]:
    """(path, code) of the errors, each with a remedy; nothing was written."""
    run(volume_accept, volumes=[])  # what the inventory says of the backends is in the ledger
    before = run.world.everything()
    with pytest.raises(errors.BootflowError) as caught:
        run(*arguments, **options)
    assert run.world.everything() == before
    if not isinstance(caught.value, errors.InvalidRequest):
        assert caught.value.remedy
        return [("", caught.value.code)]
    assert all(e["remedy"] and "as the message says" not in e["remedy"] for e in caught.value.errors)
    return [(e["path"], e["code"]) for e in caught.value.errors]


ABSENT: list[tuple[t.Any, dict[str, t.Any]]] = [
    (volume_delete, {"volume_names": ["data"]}),
    (volume_extend, {"volumes": [{"name": "data", "size": 12}]}),
    (volume_snapshot, {"snapshots": [{"name": "n", "volume": "data"}]}),
    (attach_volume, {"attachments": [{"instance": "web", "volume": "data"}]}),
]


def test_a_mistyped_condition_deletes_no_volume(run: Runner) -> None:
    before = run.world.everything()
    variables = {"inventory_hostname": "localhost", "bootflow_projct": "staging"}
    with pytest.raises(errors.InvalidInput, match="bootflow_projct") as caught:
        action_of(volume_delete, WorldPorts(run.world, "d"), variables, volume_names=["data"]).act()
    assert caught.value.remedy == "Did you mean bootflow_project? Correct it, or remove it."
    assert run.world.everything() == before


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize(("module", "options"), ABSENT)
def test_what_is_on_a_host_outside_the_inventory_is_refused_and_stays(
    run: Runner, module: t.Any, options: t.Any, check_mode: bool
) -> None:
    run.hosts = ("h1", "s2")
    path = "attachments[0]" if module is attach_volume else ""
    assert refused(run, module, check_mode, **options) == [(path, "DriverNotInitialized")]
    run.hosts = HOSTS
    run.limit = ["localhost", "h1", "s2"]
    assert refused(run, module, check_mode, **options) == [(path, "InvalidInput")], "Ansible would skip the tasks there"
    run.limit = None
    result, _shown = run(module, check_mode, **options)
    assert result["changed"] is True
    assert result["storage"] == ([] if check_mode else ["s1"])


def test_a_volume_whose_compute_host_is_outside_the_inventory_is_neither_detached_nor_extended(run: Runner) -> None:
    attached(run)
    run.hosts = ("s1", "s2")
    for module, path, options in (
        (detach_volume, "attachments[0]", {"attachments": [{"volume": "data"}]}),
        (volume_extend, "", {"volumes": [{"name": "data", "size": 12}]}),
    ):
        assert refused(run, module, **options) == [(path, "DriverNotInitialized")]


def attached(run: Runner, **fields: t.Any) -> None:
    """web has data."""
    run.world.attach({"instance": "web", "volume": "data", **fields}, run="v")
    run.world.storage_round("v")
    with run.world.ledger.write() as tx:
        ids = [a.id for a in run.world.live_attachments()]
        life.connecting(tx.for_run(run.world.context("v")), ids)
        life.connected(tx.for_run(run.world.context("v")), dict.fromkeys(ids, "/dev/sdb"))
        life.attached(tx.for_run(run.world.context("v")), ids)


def test_an_extension_that_a_guest_does_not_see_is_not_done(run: Runner) -> None:
    """It said so in a warning only, and the run ended with 0."""
    attached(run)
    run(volume_extend, run="e", volumes=[{"name": "data", "size": 12}])
    run.world.storage_round("e")
    volume = run.world.volume("data").id
    ports = WorldPorts(run.world, "e")
    why = errors.RemoteError(reason="All paths need to be up", remedy="Rerun the playbook.").as_dict()
    for said, words in (
        ({"problems": {volume: why}}, "data on h1: RemoteError: All paths need to be up"),
        ({"problems": {}}, "data on h1: the guest of web has the former size"),
        (None, "data on h1: the guest of web has the former size"),  # the host did not answer
    ):
        if said is not None:
            results_of(ports, "compute_attachments").leave("work", "h1", said)
        result, shown = run(volume_report, run="e", volume_ids=[volume])
        results_of(ports, "compute_attachments").clear()
        assert result["failed"] and words in result["msg"] and "in-use" in shown
        assert result["msg"].startswith("VolumeFailed: 1 of 1 volumes")
    gone = errors.VolumeDeviceNotFound(device="/dev/sdb").as_dict()
    results_of(ports, "compute_attachments").leave("work", "h1", {"problems": {volume: gone}})
    assert "data on h1: VolumeDeviceNotFound" in run(volume_report, run="e", volume_ids=[volume])[0]["msg"]
    with run.world.ledger.write() as tx:
        tx.execute(tables.instances.update().values(power_state=SHUTDOWN))
    assert not run(volume_report, run="e", volume_ids=[volume])[0].get("failed"), "its start connects the volume"
    checked, shown = run(volume_extend, check_mode=True, volumes=[{"name": "data", "size": 12}])
    assert checked["changed"] and "guests on h1 would get it now" in shown
    again, shown = run(volume_extend, volumes=[{"name": "data", "size": 12}])
    assert (again["changed"], again["unchanged"], again["compute"]) == (False, [volume], ["h1"])
    assert "guests on h1 get it now" in shown
    with run.world.ledger.write() as tx:
        attachments.rescanned(tx, [a.id for a in run.world.live_attachments()])
    result, _shown = run(volume_report, volume_ids=[volume])
    assert not result.get("failed")
    assert "Nothing to do: every volume" in run(volume_extend, volumes=[{"name": "data", "size": 12}])[1]


@pytest.mark.parametrize("check_mode", [False, True])
def test_an_instance_with_volumes_of_a_host_that_is_left_out_is_refused_and_stays(
    run: Runner, check_mode: bool
) -> None:
    """Its guest went, and it was deleting until somebody deleted it again."""
    attached(run)
    run.hosts = ("h1", "s2")
    assert refused(run, instance_delete, check_mode, names=["web"]) == [("", "ComputeHostNotFound")]
    run.hosts = HOSTS
    for force in (False, True):
        run.limit = ["localhost", "h1", "s2"]
        assert refused(run, instance_delete, check_mode, names=["web"], force=force) == [("", "InvalidInput")]
    run.limit = ["localhost", "h1", "s1"]
    result, _shown = run(instance_delete, check_mode, names=["web"])
    assert result["changed"] and result["compute"] == ["h1"]


def test_a_deletion_tells_which_volumes_it_left(run: Runner) -> None:
    attached(run, delete_on_termination=True)
    data = run.world.volume("data").id
    begun = run(instance_delete, run="d", names=["web"])[0]
    (uuid,) = (i["uuid"] for i in begun["instances"])
    run.world.disconnect("h1", [uuid], "d")
    run.world.removed("h1", [uuid])
    run.world.storage_round("d", fail={data: errors.VolumeBackendAPIException(data="device error")})
    result, shown = run(instance_delete, run="d", phase="finish")
    assert (result["deleted"], result["left"]) == (["web"], [])
    assert [(v["name"], v["status"]) for v in result["volumes_left"]] == [("data", "error_deleting")]
    assert (
        "Deleted: web\nVolume data of web was not deleted, it is error_deleting: " in shown and "device error" in shown
    )


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_boot_from_a_volume_on_a_host_outside_the_inventory_is_refused(run: Runner, check_mode: bool) -> None:
    device = {
        "source_type": "volume",
        "destination_type": "volume",
        "boot_index": 1,
        "uuid": run.world.volume("data").id,
    }
    options: dict[str, t.Any] = {
        "flavors": {"small": {"memory_mb": 64, "vcpus": 1, "root_gb": 1}},
        "images": {
            "cirros": {
                "id": IMAGE.id,
                "disk_format": "raw",
                "url": "https://192.0.2.9/cirros",
                "checksum": "sha256:" + "0" * 64,
            }
        },
        "networks": {},
        "instances": [
            {"name": "db", "flavor": "small", "image": "cirros", "networks": "none", "block_device_mapping": [device]}
        ],
    }
    run.hosts = ("h1", "s2")
    assert refused(run, boot_accept, check_mode, **options) == [("", "DriverNotInitialized")]
    run.hosts = HOSTS
    result, _shown = run(boot_accept, check_mode, **options)
    assert len(result["created"]) == 1


def test_a_volume_is_made_from_an_image_of_the_ledger(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    image_id = store_image(run.world, min_disk=3)
    entry = {"name": "new", "size": 4, "image_id": "stored"}
    assert refused(run, volume_accept, volumes=[entry]) == [("volumes[0]", "ImageNotFound")]
    declared = action_with_stores(monkeypatch)
    assert refused(run, volume_accept, volumes=[{**entry, "size": 2}]) == [("volumes[0]", "InvalidInput")]
    assert refused(run, volume_accept, volumes=[entry], project="blue") == [("volumes[0]", "ImageNotFound")]
    (planned,) = run(volume_schedule, True, volumes=[entry])[0]["plan"]
    assert planned["host"] and declared
    run(volume_accept, run="same", volumes=[entry])
    row = run.world.volume("new")
    assert (row.image_id, row.spec["image"]["url"]) == (image_id, "file:///net/images/" + image_id)
    result, _shown = run(volume_accept, run="same", volumes=[{**entry, "image_id": image_id}])
    assert result["created"] == [] and run.world.volume("new").id == row.id


def test_an_image_that_is_deleted_while_a_request_is_read_is_not_accepted(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    image_id = store_image(run.world)
    stores = action_with_stores(monkeypatch)
    with run.world.ledger.read() as tx:
        before = LedgerImages(images.stored(tx, images.select(tx)), stores)
    with run.world.ledger.write() as tx:
        images.apply(tx.for_run(run.world.context("d")), image_id, DELETE)
    monkeypatch.setattr(ledger_images, "images_of", lambda _action: before)
    assert refused(run, volume_accept, volumes=[{"name": "new", "size": 4, "image_id": image_id}]) == [
        ("", "ImageNotActive")
    ]


def action_with_stores(monkeypatch: pytest.MonkeyPatch) -> t.Any:
    """The inventory declares the store of the image."""
    stores = read_stores(STORES, HOSTS)
    monkeypatch.setattr(ledger_images, "stores_of", lambda _action: stores)
    return stores


def test_new_volumes_go_to_hosts_of_the_inventory(run: Runner) -> None:
    run.world.store("s2")
    entries = [{"name": "new", "size": 1}]
    for hosts, pool_hosts in ((("s2",), {"s2@lvm#lvm"}), (("s1",), {"s1@lvm#lvm"})):
        run.hosts = hosts
        plan, _shown = run(volume_schedule, True, volumes=entries)
        assert {p["host"] for p in plan["plan"]} == pool_hosts
    run.hosts = ("s2",)
    run(volume_accept, run="a", volumes=entries)
    run(volume_schedule, run="a", volumes=entries)
    assert run.world.volume("new").pool_host == "s2@lvm#lvm"
    plan, shown = run(volume_schedule, True, volumes=[{"name": "clone", "source_volid": "data"}])
    assert plan["failed"] and plan["error_code"] == "VolumeFailed"
    assert [i["error"]["code"] for i in plan["failed_items"]] == ["NoValidBackend"]
    assert (
        "Of 2 backends: 2 backends, as s1@lvm#lvm (its host is not in the inventory, or the limit of the run leaves it out)."
        in shown
    )
    assert "  - s2@lvm#lvm  the source is on s1@lvm#lvm" in shown
    assert plan["msg"].endswith("Remedy: " + plan["remedy"]) and "--check" not in plan["msg"]


def test_a_plan_under_a_limit_has_only_its_hosts_as_the_run(run: Runner) -> None:
    entries = [{"name": "new", "size": 1}]
    run.limit = ["localhost", "h1"]
    plan, _shown = run(volume_schedule, True, volumes=entries)
    assert plan["failed"] and [p["host"] for p in plan["plan"]] == [None]
    run.limit = ["localhost", "s1"]
    plan, _shown = run(volume_schedule, True, volumes=entries)
    assert [p["host"] for p in plan["plan"]] == ["s1@lvm#lvm"]


def test_a_volume_that_a_dead_run_began_on_a_host_that_the_limit_leaves_out(run: Runner) -> None:
    """Ansible would skip its task, and the volume would end in error."""
    entries = [{"name": "new", "size": 1}]
    run(volume_accept, run="dead", volumes=entries)
    run(volume_schedule, run="dead", volumes=entries)
    run.world.time += 3600
    run.limit = ["localhost", "s2"]
    assert refused(run, volume_accept, volumes=entries) == [("", "InvalidInput")]
    run.limit = None
    assert run(volume_accept, volumes=entries)[0]["resumed"] == [run.world.volume("new").id]


def test_storage_hosts_report_again_before_a_round_that_needs_them(run: Runner) -> None:
    """A round longer than service_down_time (900 s) found every backend silent in the next."""
    entries = [{"name": "late", "size": 5}]
    run(volume_accept, run="a", volumes=entries)
    run.world.time += 1000
    assert run(volume_schedule, run="a", phase="refresh")[0]["ask"] == ["s1"], "s2 never reported"
    run.world.reported()
    assert run(volume_schedule, run="a", phase="refresh")[0]["ask"] == []
    assert [p["name"] for p in run(volume_schedule, run="a")[0]["placed"]] == ["late"]
    run.world.time += 1000
    refreshed = run(volume_schedule, run="a", phase="refresh")[0]
    assert (refreshed["ask"], refreshed["again"]) == ([], True), "none waits for a backend, but it is not yet created"
    run.world.work(run="a")
    assert run(volume_schedule, run="a", phase="refresh")[0]["again"] is False


def test_a_plan_comes_out_as_the_run_does(run: Runner) -> None:
    """Of 87 GB on s1 and 60 on s2: where the first goes decides whether the others find room, and their ids are drawn anew."""
    run.world.storage["s1"].totals["lvm"] = 100
    run.world.store("s2", lvm=60)
    entries = [{"name": "v%d" % i, "size": size} for i, size in enumerate((30, 50, 20, 40))]
    plan, _shown = run(volume_schedule, True, volumes=entries)
    run(volume_accept, run="a", volumes=entries)
    run(volume_schedule, run="a", volumes=entries)
    assert {p["name"]: p["host"] for p in plan["plan"]} == {
        e["name"]: run.world.volume(e["name"]).pool_host for e in entries
    }


def test_errors_are_told_in_the_order_of_the_entries(run: Runner) -> None:
    bad = [{"name": "a"}, {"name": "b", "sise": 1}, {"name": "c", "size": 1, "volume_type": "nix"}, "text", {"size": 1}]
    found = refused(run, volume_accept, volumes=[*bad, {"name": 7, "size": 1}], quotas={"volumes": 0})
    assert [p for p, _code in found][:6] == [
        "volumes[0]",
        "volumes[1]",
        "volumes[2]",
        "volumes[3]",
        "volumes[4].name",
        "volumes[5].name",
    ]
    snapshots = [{"name": "a", "volume": "nix"}, {"name": "b"}, {"name": "monday", "volume": "data"}]
    assert refused(run, volume_snapshot, snapshots=snapshots) == [
        ("snapshots[0]", "VolumeNotFound"),
        ("snapshots[1]", "InvalidInput"),
        ("snapshots[2]", "SnapshotExists"),
    ]
    wishes = [{"instance": "nix", "volume": "data"}, "text", {"instance": "web", "volume": "nix"}]
    assert refused(run, attach_volume, attachments=wishes) == [
        ("attachments[0].instance", "InstanceNotFound"),
        ("attachments[1]", "InvalidInput"),
        ("attachments[2].volume", "VolumeNotFound"),
    ]


def test_all_errors_of_an_extension_at_once_under_the_numbers_of_its_entries(run: Runner) -> None:
    entries: list[t.Any] = [
        {"size": 3},
        {"name": "data", "size": 5},
        "text",
        {"name": "snapped", "sise": 9},
        {"name": "nix", "size": 9},
        {"name": "snapped", "size": True},
        {"name": "snapped", "size": 9},
    ]
    assert refused(run, volume_extend, volumes=entries) == [
        ("volumes[0]", "InvalidInput"),
        ("volumes[1]", "InvalidInput"),
        ("volumes[2]", "InvalidInput"),
        ("volumes[3]", "InvalidInput"),
        ("volumes[4]", "VolumeNotFound"),
        ("volumes[5]", "InvalidInput"),
        ("volumes[6]", "InvalidInput"),
    ]
    with pytest.raises(errors.InvalidRequest) as caught:
        run(volume_extend, volumes=[{"name": "data", "size": 500}])
    assert caught.value.errors[0]["code"] == "NoValidBackend" and "--check" not in caught.value.errors[0]["remedy"]
    assert " more free on s1@lvm#lvm would have been enough. The backend must" in caught.value.errors[0]["remedy"]
    result, _shown = run(
        volume_extend, volumes=[{"name": "data", "size": 12, "volume_type": "fast", "metadata": {"a": "b"}}]
    )
    assert [(v["name"], v["size"], v["new_size"]) for v in result["volumes"]] == [("data", 10, 12)]


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize("module", [volume_accept, volume_extend])
def test_a_quota_that_is_misspelt_is_no_quota(run: Runner, module: t.Any, check_mode: bool) -> None:
    entries = [{"name": "data", "size": 12}] if module is volume_extend else [{"name": "new", "size": 1}]
    for quotas in ({"gigabites": 1}, {"projects": {"default": {"volume": 3}}}):
        found = refused(run, module, check_mode, volumes=entries, quotas=quotas)
        assert found == [("bootflow_quotas", "InvalidInput")]
    result, _shown = run(module, check_mode, volumes=entries, quotas={"gigabytes": 500, "cores": 3, "projects": {}})
    assert result["changed"] is True


def test_a_deletion_tells_what_goes_with_it_and_what_is_not_there(run: Runner) -> None:
    result, shown = run(volume_delete, True, volume_names=["snapped", "nix"], cascade=True, missing_ok=True)
    assert "and its snapshots monday" in shown and "There is no volume with this name: nix" in shown
    assert "monday" in result["diff"]["before"] and result["diff"]["after"] == ""
    assert result["volumes"][0]["snapshots"] == ["monday"]
    result, shown = run(volume_delete, volume_names=["nix"], missing_ok=True)
    assert (result["changed"], result["not_found"]) == (
        False,
        ["nix"],
    ) and "There is no volume with this name: nix" in shown
    with pytest.raises(errors.VolumeNotFound, match="snaped") as caught:
        run(volume_delete, volume_names=["data", "snaped"])
    assert "Did you mean snapped?" in caught.value.remedy and run.world.status("data") == "available"


def test_what_a_host_that_never_comes_back_had_is_forgotten(run: Runner) -> None:
    run.hosts = ("h1", "s2")
    chosen = {"volume_names": ["data"], "unmanage": True}
    result, shown = run(volume_delete, True, **chosen)
    assert (result["changed"], result["storage"], run.world.status("data")) == (True, [], "available")
    volume_id = run.world.volume("data").id
    assert shown == "\nWould unmanage:\ndata %s on s1@lvm#lvm\n" % volume_id
    result, _shown = run(volume_delete, run="d", **chosen)
    assert (result["changed"], result["storage"]) == (True, [])
    result, shown = run(volume_delete, run="d", phase="finish", unmanage=True)
    assert (result["left"], shown) == ([], "\nUnmanaged: data\n")
    result, _shown = run(volume_delete, missing_ok=True, **chosen)
    assert (result["changed"], result["not_found"]) == (False, ["data"])
    del run.world.storage["s1"].there["lvm"][volume_id]


def test_a_snapshots_plan_and_diff_name_it(run: Runner) -> None:
    wishes = [{"name": "new", "volume": "data"}, {"name": "monday", "state": "absent"}]
    for check_mode in (True, False):
        result, shown = run(volume_snapshot, check_mode, snapshots=wishes)
        diff = result["diff"]
        assert diff["after"].startswith("new ") and diff["after"].endswith(" of volume data, 10 GiB\n")
        assert diff["before"].startswith("monday ") and diff["before"].endswith(" of volume snapped, 3 GiB\n")
        assert ("Would make new " in shown and "Would delete monday " in shown) is check_mode


def test_attachments_are_told_by_names(run: Runner) -> None:
    wish = [{"instance": "web", "volume": "data"}]
    result, shown = run(attach_volume, True, attachments=wish)
    line = "volume data (/dev/vdb, instance web on h1)"
    assert shown.strip() == "Would attach " + line and result["diff"]["after"] == line + "\n"
    result, shown = run(detach_volume, attachments=[{"volume": "data"}])
    assert shown.strip() == "Nothing to do: no requested volume is attached." and result["changed"] is False


@pytest.mark.parametrize("check_mode", [False, True])
def test_an_attachment_that_cannot_begin_keeps_no_other_from_its_own(run: Runner, check_mode: bool) -> None:
    run.world.make("there", size=1)
    run.world.attach({"instance": "web", "volume": "there"}, run="v")  # another run is at it
    wishes = [{"instance": "web", "volume": "there"}, {"instance": "web", "volume": "data"}]
    begun, shown = run(attach_volume, check_mode, run="o", attachments=wishes)
    assert begun["changed"] and [a["volume_id"] for a in begun["attachments"]] == [run.world.volume("data").id]
    assert [(i["name"], i["error"]["code"]) for i in begun["refused"]] == [("there (web)", "VolumeLocked")]
    assert ("Would attach volume data" in shown) is check_mode and "there" not in shown
    if not check_mode:
        run.world.storage_round("o")
    done, _shown = run(attach_volume, check_mode, run="o", phase="finish", attachments=wishes)
    items = [(i["name"], i["error"] and i["error"]["code"]) for i in done["failed_items"]]
    assert done["failed"] and done["error_code"] == "AttachFailed" and items[-1] == ("there (web)", "VolumeLocked")
    assert len(items) == (1 if check_mode else 2), "no host has attached the other"


@pytest.mark.parametrize(
    ("module", "option", "words"),
    [
        (volume_accept, "volumes", "no volume is requested"),
        (volume_extend, "volumes", "no volume is requested"),
        (volume_snapshot, "snapshots", "no snapshot is requested"),
        (attach_volume, "attachments", "no attachment is requested"),
        (detach_volume, "attachments", "no attachment is requested"),
    ],
)
def test_empty_lists_are_nothing_to_do(run: Runner, module: t.Any, option: str, words: str) -> None:
    result, shown = run(module, **{option: []})
    assert result["changed"] is False and shown.strip() == "Nothing to do: %s." % words


def test_the_list_tells_faults_and_names_that_no_volume_has(run: Runner) -> None:
    run.world.request({"name": "lost", "size": 1})
    run.world.choose()
    run.world.work(lost=errors.VolumeBackendAPIException(data="device error"))
    for _round in range(3):
        run.world.choose()
        run.world.work()
    run.world.request({"name": "huge", "size": 900})
    run.world.choose()
    result, shown = run(volume_info, print_table=True, volume_names=["huge", "data", "nix"])
    assert "There is no volume with this name: nix" in shown and "Faults:\n  huge: NoValidBackend: " in shown
    assert [v["name"] for v in result["volumes"]] == ["data", "huge"]
    _result, shown = run(volume_info, print_table=True, volume_names=["data"])
    assert "Faults:" not in shown


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_diff_has_what_is_placed_and_nothing_else(run: Runner, check_mode: bool) -> None:
    entries = [{"name": "new", "size": 4}, {"name": "huge", "size": 900}]
    if not check_mode:
        run(volume_accept, run="a", volumes=entries)
    result, _shown = run(volume_schedule, check_mode, run="a", volumes=entries)
    assert [d["after"] for d in result["diff"]] == ["new: 4 GiB on s1@lvm#lvm\n"]


def test_hints_that_no_filter_reads_are_refused(run: Runner) -> None:
    def asks(**hints: str) -> list[t.Any]:
        return [{"name": "a", "size": 1}, {"name": "b", "size": 1, "scheduler_hints": hints}, {"name": "c"}]

    for hints in ({"same_hosts": "data"}, {"different_host": "data"}):
        for check_mode in (False, True):
            found = refused(run, volume_accept, check_mode, volumes=asks(**hints))
            assert found == [("volumes[1].scheduler_hints", "InvalidInput"), ("volumes[2]", "InvalidInput")]
    filters = ["CapacityFilter", "DifferentBackendFilter"]
    result, _shown = run(volume_accept, volumes=asks(different_host="data")[:2], volume_filters=filters)
    assert len(result["created"]) == 2


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_host_that_cannot_be_connected_is_told_before_anything_is_exported(run: Runner, check_mode: bool) -> None:
    wish = [{"instance": "web", "volume": "data"}]
    run.way = "kernel"  # its report has no initiator
    assert refused(run, attach_volume, check_mode, attachments=wish) == [("attachments[0]", "HostLacksHardware")]
    with pytest.raises(errors.InvalidRequest) as caught:
        run(attach_volume, check_mode, attachments=wish)
    assert "open-iscsi" in caught.value.remedy and "bootflow.compute.heartbeat" in caught.value.remedy
    run.way = "qemu"
    assert run(attach_volume, check_mode, attachments=wish)[0]["changed"] is True


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_wrong_setting_of_the_instances_host_is_refused_before_anything_is_reserved(
    run: Runner, check_mode: bool
) -> None:
    run.variables = {"bootflow_wait_timeout": "abc"}
    wanted = [{"instance": "web", "volume": "data"}]
    assert refused(run, attach_volume, check_mode, attachments=wanted) == [("host h1", "InvalidInput")]
    with pytest.raises(
        errors.InvalidRequest, match="bootflow_wait_timeout must be a number of seconds, at least 0, got"
    ):
        run(attach_volume, check_mode, attachments=wanted)


def stage(run: Runner, broken: str, on_host: bool = False) -> tuple[dict[str, t.Any], WorldPorts]:
    """The task of storage host s1 in run "a", in which the module ``broken`` ends unexpectedly.

    :arg on_host: it does so with each of its items on the host; otherwise in its call, on the controller.
    """

    def module(name: str, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        assert name == broken, arguments
        secret = "s3cret"

        def each(_item: t.Any) -> dict[str, t.Any]:
            raise KeyError("of %d letters" % len(secret))

        if on_host:
            return {"outcomes": run_batch([(v["id"], v) for v in arguments["volumes"]], each), "backend": None}
        return each(None)

    ports = WorldPorts(run.world, "a", module)
    return action_of(storage_stage, ports, {"inventory_hostname": "s1", "ansible_host": "192.0.2.1"}).act(), ports


@pytest.mark.parametrize("on_host", [False, True])
@pytest.mark.parametrize("what", ["create", "delete", "extend", "snapshot"])
def test_the_traceback_of_an_unexpected_error_is_in_the_journal_of_the_volume(
    run: Runner, what: str, on_host: bool
) -> None:
    """People get a line; the frames, without values, are in the journal, which volume_info returns."""
    world = run.world
    run(volume_accept, volumes=[])  # what the inventory says of the backends is in the ledger
    name = "new" if what == "create" else "data"
    if what == "create":
        run(volume_accept, run="a", volumes=[{"name": "new", "size": 1}])
        run(volume_schedule, run="a", volumes=[{"name": "new", "size": 1}])
    elif what == "delete":
        run(volume_delete, run="a", volume_names=["data"])
    elif what == "extend":
        run(volume_extend, run="a", volumes=[{"name": "data", "size": 12}])
    else:
        run(volume_snapshot, run="a", snapshots=[{"name": "n", "volume": "data"}])
    result, ports = stage(run, "volume_lvm", on_host)
    assert ", in each" not in str([result, ports.warnings, ports.shown])
    if what != "create":  # which is tried again
        assert "KeyError: 'of 6 letters'" in str(result["failed_items"])
    info, shown = run(volume_info, volume_names=[name], events=True, print_table=True)
    assert ", in each" not in shown
    failed = [e for e in info["volumes"][0]["events"] if e["result"] == "Error"]
    event = failed[-1]
    assert (event["event"], event["host"]) == ("create" if what == "snapshot" else what, "s1")
    assert (event["snapshot_id"] is not None) == (what == "snapshot")
    assert event["details"].startswith("KeyError: 'of 6 letters'\n  File ") and ", in each" in event["details"]
    assert "s3cret" not in event["details"] and "T" in event["finish_time"]
    assert "events" not in run(volume_info, volume_names=[name])[0]["volumes"][0]
    assert world.shown("data")["name"] == "data"


def test_an_export_of_a_boot_that_ends_unexpectedly_is_in_the_journal_of_the_volume(run: Runner) -> None:
    world = run.world
    assert isinstance(world, BootWorld)
    run(volume_accept, volumes=[])
    world.accept(volume_request("db", from_image()), run="a")
    world.schedule("a")
    world.place("a")
    world.choose("a")
    world.work()
    stage(run, "iscsi_target")
    (volume,) = {a.volume_id for a in world.live_attachments()}
    info, _shown = run(volume_info, volume_ids=[volume], events=True)
    event = info["volumes"][0]["events"][-1]
    assert (event["event"], event["result"]) == ("export", "Error") and ", in module" in event["details"]
