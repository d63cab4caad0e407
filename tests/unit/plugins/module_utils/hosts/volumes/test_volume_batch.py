# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Batches of volumes on a model of LVM, temporary images, and programs that die with their run."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.answers import answer
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    CommandFailed,
    DriverNotInitialized,
    ImageCopyFailure,
    ImageTooBig,
    ImageUnacceptable,
    InvalidInput,
    VolumeBackendAPIException,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images import image_files
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.images import ImageSource
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm import lvm
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes import backend as volume_backend
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes import (
    backend_facts,
    copy,
    process,
    volume_batch,
    volume_images,
)
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db.this_run import process_started

GIB = 1024**3
MIB = 1024**2


class Model:
    """A volume group in memory that answers as LVM does, and remembers what it was asked."""

    def __init__(self, thin, extents=2000):
        self.extents, self.lvs, self.calls = extents, {}, []
        if thin:
            self.lvs["vg-pool"] = {
                "size": extents * 4 * MIB,
                "attr": "twi-aotz--",
                "tags": [],
                "pool": "",
                "origin": "",
            }

    def free(self):
        used = sum(lv["size"] for lv in self.lvs.values() if not lv["pool"] and lv["attr"][0] != "t")
        return self.extents * 4 * MIB - used

    def __call__(self, vg, command, *rest):
        self.calls.append(command)
        rest = list(rest)
        if vg != "vg":
            raise lvm.group_missing(vg)
        tags = [rest[i + 1] for i, word in enumerate(rest) if word == "--addtag"]
        untags = [rest[i + 1] for i, word in enumerate(rest) if word == "--deltag"]
        option = {word: rest[i + 1] for i, word in enumerate(rest[:-1]) if word.startswith("--")}
        names = [word.split("/")[1] for word in rest if word.startswith("vg/")]
        if command == "fullreport":
            return self.report()
        if command == "lvcreate":
            size = int(option.get("--size", option.get("--virtualsize", "0b"))[:-1])
            origin, thin = (names or [""])[0], "--thinpool" in option
            lv = {"size": size, "attr": "-wi-a-----", "tags": tags, "pool": "", "origin": origin}
            if thin or (origin and self.lvs[origin]["pool"]):
                lv.update(attr="Vwi-a-tz--", pool="vg-pool")
            if origin and lv["pool"]:
                lv["size"] = self.lvs[origin]["size"]
            if not lv["pool"] and size > self.free():
                raise lvm.no_room("vg", "insufficient free space")
            self.lvs[option["--name"]] = lv
        for name in names if command in ("lvchange", "lvextend", "lvremove") else []:
            if command == "lvremove":
                del self.lvs[name]
                for lv in self.lvs.values():  # thin snapshots
                    lv["origin"] = "" if lv["origin"] == name else lv["origin"]
                continue
            if command == "lvextend":
                self.lvs[name]["size"] = int(option["--size"][:-1])
            self.lvs[name]["tags"] = [tag for tag in self.lvs[name]["tags"] if tag not in untags] + tags
        return ""

    def report(self):
        head = {"vg_name": "vg", "vg_uuid": "u", "vg_size": str(self.extents * 4 * MIB), "vg_free": str(self.free())}
        head.update(vg_extent_size=str(4 * MIB), vg_attr="wz--n-", lv_count="0", vg_missing_pv_count="0")
        pv = {"pv_name": "/dev/vdb", "pv_free": str(self.free()), "pv_allocatable": "allocatable", "pv_missing": ""}
        rows = [
            {
                "lv_name": name,
                "lv_uuid": name,
                "lv_size": str(lv["size"]),
                "lv_attr": lv["attr"],
                "lv_tags": ",".join(lv["tags"]),
                "pool_lv": lv["pool"],
                "origin": lv["origin"],
                "data_percent": lv.get("data_percent", "0.00"),
                "metadata_percent": "1.00",
            }
            for name, lv in self.lvs.items()
        ]
        seg = [{"lv_name": "vg-pool", "segtype": "thin-pool", "chunk_size": "65536", "zero": "zero"}]
        return json.dumps(
            {"report": [{"vg": [head], "pv": [pv], "lv": rows, "seg": seg if "vg-pool" in self.lvs else []}]}
        )


def world_of(monkeypatch, tmp_path):
    """make(thin): the model; what is written to devices is in make.written {path: bytes}."""

    def make(thin, extents=2000):
        model = Model(thin, extents)
        monkeypatch.setattr(lvm, "lvm", model)
        return model

    make.written = {}
    make.wiped = []

    def convert(source, driver, target, on_percent=None, target_is_zero=False, direct=False):
        with open(source, "rb") as file:
            make.written[target] = file.read()

    monkeypatch.setattr(lvm, "LOCK_ROOT", str(tmp_path / "locks"))
    monkeypatch.setattr(image_files, "REMEMBERED", str(tmp_path / "remembered"))
    monkeypatch.setattr(process, "PROGRESS", str(tmp_path / "progress"))
    monkeypatch.setattr(copy, "convert", convert)
    monkeypatch.setattr(copy, "verify", lambda *_args: None)
    monkeypatch.setattr(copy, "zero", lambda path, size: make.wiped.append((path, size)))
    monkeypatch.setattr(copy, "device_size", lambda path: GIB)
    make.temp = str(tmp_path / "temp")
    return make


@pytest.fixture
def world(monkeypatch, tmp_path):
    return world_of(monkeypatch, tmp_path)


def backend(world, thin=False, **options):
    return volume_backend.Backend("vg", "vg-pool" if thin else "", temp_dir=world.temp, **options)


def image_of(tmp_path, data=b"image\0" * 100, **changes):
    path = tmp_path / ("%s.raw" % uuid.uuid4())
    path.write_bytes(data)
    image = {"id": str(uuid.uuid4()), "disk_format": "raw", "path_on_host": str(path)}
    return dict(image, checksum=hashlib.sha256(data).hexdigest(), **changes)


def new_ids(count):
    return [str(uuid.uuid4()) for _index in range(count)]


def test_twenty_empty_volumes_are_twenty_commands_and_two_reports(world):
    model = world(thin=False, extents=20 * 256)
    ids = new_ids(20)
    wanted = [{"id": item_id, "size_gb": 1} for item_id in ids]
    result = volume_batch.make_volumes(backend(world), wanted)
    assert model.calls.count("lvcreate") == 20 and model.calls.count("fullreport") == 2 and len(model.calls) == 22
    assert all(item["changed"] and not item["error"] for item in result["outcomes"].values())
    answer.check("volume_lvm", "s1", result)
    model.calls.clear()
    again = volume_batch.make_volumes(backend(world), wanted)
    assert not any(item["changed"] for item in again["outcomes"].values()) and model.calls == ["fullreport"] * 2


def test_what_is_reported_of_a_backend_is_a_valid_answer(world):
    world(thin=True)
    volume_batch.make_volumes(backend(world, thin=True), [{"id": i, "size_gb": 1} for i in new_ids(2)])
    args = {"volume_group": "vg", "provisioning": "thin"}
    facts = backend_facts.backends_facts([{"name": "a", **args}, {"name": "b", **args, "thin_pool": "none"}], [])
    assert len(facts["a"]["orphans"]) == 2 and facts["b"]["error"]
    answer.check("storage_backend_info", "s1", {"backends": facts})


def test_twenty_volumes_from_one_image_read_it_once_and_are_marked_whole_at_once(world, tmp_path):
    model = world(thin=True)
    image = image_of(tmp_path)
    wanted = [{"id": item_id, "size_gb": 1, "image_id": image["id"]} for item_id in new_ids(20)]
    result = volume_batch.make_volumes(backend(world, thin=True), wanted, [image])
    assert not any(item["error"] for item in result["outcomes"].values())
    answer.check("volume_lvm", "s1", result)
    assert len(world.written) == 1
    assert model.calls.count("lvcreate") == 21 and model.calls.count("lvextend") == 20
    assert model.calls.count("lvchange") == 2 and model.calls.count("fullreport") == 3
    assert not [name for name, lv in model.lvs.items() if "bootflow.incomplete" in lv["tags"]]
    os.unlink(image["path_on_host"])
    more = [{"id": new_ids(1)[0], "size_gb": 1, "image_id": image["id"]}]
    assert not next(iter(volume_batch.make_volumes(backend(world, thin=True), more, [image])["outcomes"].values()))[
        "error"
    ]


def test_deleting_many_is_one_command_after_they_were_marked_and_wiped(world):
    model = world(thin=False)
    ids = new_ids(5)
    volume_batch.make_volumes(backend(world), [{"id": item_id, "size_gb": 1} for item_id in ids])
    model.calls.clear()
    gone = [{"id": item_id, "state": "absent"} for item_id in ids]
    assert all(
        item["changed"] for item in volume_batch.make_volumes(backend(world, clear_size=MIB), gone)["outcomes"].values()
    )
    assert model.calls == ["fullreport", "lvchange", "lvremove", "fullreport"]
    assert sorted(world.wiped) == sorted(("/dev/vg/volume-" + item_id, MIB) for item_id in ids)
    assert model.lvs == {}


@pytest.mark.parametrize(("thin", "clear", "wiped"), [(False, "zero", 1), (False, "none", 0), (True, "zero", 0)])
def test_what_is_wiped(world, thin, clear, wiped):
    world(thin)
    item_id = new_ids(1)[0]
    volume_batch.make_volumes(backend(world, thin), [{"id": item_id, "size_gb": 1}])
    volume_batch.make_volumes(backend(world, thin, clear=clear), [{"id": item_id, "state": "absent"}])
    assert len(world.wiped) == wiped


def test_one_that_does_not_fit_does_not_fail_the_others(world):
    model = world(thin=False, extents=600)
    one, two, three = new_ids(3)
    wanted = [{"id": one, "size_gb": 1}, {"id": two, "size_gb": 2}, {"id": three, "size_gb": 1}]
    outcomes = volume_batch.make_volumes(backend(world), wanted)["outcomes"]
    assert outcomes[two]["error"]["code"] == "VolumeBackendAPIException" and not outcomes[two]["changed"]
    assert outcomes[one]["changed"] and outcomes[three]["changed"] and len(model.lvs) == 2


def test_a_copy_that_fails_leaves_no_volume_and_no_file(world, tmp_path, monkeypatch):
    def fails(*_args, **_options):
        raise ImageCopyFailure(reason="broken")

    for thin in (False, True):
        model = world(thin)
        monkeypatch.setattr(copy, "convert", fails)
        image = image_of(tmp_path)
        os.chmod(image["path_on_host"], 0o666)  # so it is copied
        item_id = new_ids(1)[0]
        wanted = [{"id": item_id, "size_gb": 1, "image_id": image["id"]}]
        outcome = volume_batch.make_volumes(backend(world, thin), wanted, [image])["outcomes"][item_id]
        assert outcome["error"]["code"] == "ImageCopyFailure" and not outcome["changed"]
        assert set(model.lvs) <= {"vg-pool"} and os.listdir(world.temp) == []


def test_an_incomplete_volume_is_written_again(world, tmp_path):
    model = world(thin=False)
    image = image_of(tmp_path)
    item_id = new_ids(1)[0]
    name = "volume-" + item_id
    tags = ["bootflow", "bootflow.volume=" + item_id, "bootflow.source=image/" + image["id"], "bootflow.incomplete"]
    model.lvs[name] = {"size": GIB, "attr": "-wi-a-----", "tags": tags, "pool": "", "origin": ""}
    wanted = [{"id": item_id, "size_gb": 1, "image_id": image["id"]}]
    outcome = volume_batch.make_volumes(backend(world), wanted, [image])["outcomes"][item_id]
    assert outcome["action"] == "redo" and outcome["error"] is None and "/dev/vg/" + name in world.written
    assert model.lvs[name]["tags"] == tags[:-1]


@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize("cached", [False, True])
def test_a_volume_is_written_again_from_another_image(world, tmp_path, thin, cached):
    """It has the same name, size and owner, its snapshots stay, and its source is the new image."""
    model = world(thin)
    old, new = image_of(tmp_path), image_of(tmp_path, b"newer\0" * 100)
    (item_id,) = new_ids(1)
    name, its = "volume-" + item_id, backend(world, thin, image_cache=cached)
    volume_batch.make_volumes(its, [{"id": item_id, "size_gb": 1, "image_id": old["id"], "project": "ops"}], [old])
    tags = sorted(model.lvs[name]["tags"])
    if not thin:
        model.lvs["_snapshot-x"] = {"size": GIB, "attr": "swi-a-s---", "tags": [], "pool": "", "origin": name}
    world.written.clear()
    wanted = [{"id": item_id, "size_gb": 1, "image_id": new["id"], "project": "ops", "state": "reimaged"}]
    model.calls.clear()
    result = volume_batch.make_volumes(its, wanted, [new])
    answer.check("volume_lvm", "s1", result)
    outcome = result["outcomes"][item_id]
    assert (outcome["changed"], outcome["error"], outcome["size"]) == (True, None, GIB)
    assert outcome["action"] == "reimage" and list(world.written.values()) == [b"newer\0" * 100]
    assert sorted(model.lvs[name]["tags"]) == [tag.replace(old["id"], new["id"]) for tag in tags]
    assert thin or ("_snapshot-x" in model.lvs and "lvremove" not in model.calls)
    world.written.clear()
    again = volume_batch.make_volumes(its, wanted, [new])["outcomes"][item_id]
    assert again["action"] == "reimage" and again["changed"], "its guest may have written to it since"
    if cached and thin:
        assert not world.written and model.lvs[name]["origin"].startswith("image-"), "from the image cache"
    later = {**wanted[0], "state": "present"}
    assert not volume_batch.make_volumes(its, [later], [new])["outcomes"][item_id]["changed"], "it is the image's now"


@pytest.mark.parametrize("thin", [False, True])
def test_a_volume_that_cannot_be_written_again(world, tmp_path, monkeypatch, thin):
    """Nothing is lost before the image is there and fits. Later it stays, and is marked as incomplete."""
    model = world(thin)
    image = image_of(tmp_path)
    (item_id,) = new_ids(1)
    name, its = "volume-" + item_id, backend(world, thin, image_cache=False)
    volume_batch.make_volumes(its, [{"id": item_id, "size_gb": 1}])
    before = dict(model.lvs[name])
    wanted = [{"id": item_id, "size_gb": 1, "image_id": image["id"], "state": "reimaged"}]

    def outcome_with(its_image):
        return volume_batch.make_volumes(its, wanted, [its_image])["outcomes"][item_id]

    for bad, code in (
        ({**image, "checksum": "0" * 64}, "ImageChecksumMismatch"),
        ({**image, "path_on_host": str(tmp_path / "none")}, "ImageDownloadFailed"),
        ({**image, "disk_format": "qcow2"}, "ImageUnacceptable"),
    ):
        outcome = outcome_with(bad)
        assert outcome["error"]["code"] == code and not outcome["changed"] and model.lvs[name] == before
    model.lvs[name]["attr"] = before["attr"][:5] + "o" + before["attr"][6:]
    outcome = outcome_with(image)
    assert outcome["error"]["code"] == "VolumeIsBusy" and not outcome["changed"], "an export or a guest has it"
    model.lvs[name]["attr"] = before["attr"]

    def fails(*_args, **_options):
        raise ImageCopyFailure(reason="broken")

    convert = copy.convert
    monkeypatch.setattr(copy, "convert", fails)
    outcome = outcome_with(image)
    assert outcome["error"]["code"] == "ImageCopyFailure" and outcome["changed"]
    tags = model.lvs[name]["tags"]
    assert "bootflow.incomplete" in tags and "bootflow.source=image/" + image["id"] in tags, "it stays"
    monkeypatch.setattr(copy, "convert", convert)
    assert outcome_with(image)["error"] is None and "bootflow.incomplete" not in model.lvs[name]["tags"]
    del model.lvs[name]
    outcome = outcome_with(image)
    assert (outcome["error"] is None) == thin, "a killed run removed the thin one, and did not make it yet"


def test_only_an_image_is_written_to_a_volume_again(world):
    world(thin=False)
    one, two, three = new_ids(3)
    wanted = [
        {"id": one, "size_gb": 1, "state": "reimaged"},
        {"id": two, "size_gb": 1, "state": "reimaged", "source_volume": three},
        {"id": three, "kind": "snapshot", "state": "reimaged", "image_id": one},
    ]
    outcomes = volume_batch.make_volumes(backend(world), wanted)["outcomes"]
    assert {o["error"]["code"] for o in outcomes.values()} == {"InvalidInput"}


def test_in_check_mode_nothing_is_asked_but_one_report_and_the_plan_is_told(world, tmp_path):
    model = world(thin=False)
    image = image_of(tmp_path)
    one, two = new_ids(2)
    wanted = [{"id": one, "size_gb": 1, "image_id": image["id"]}, {"id": two, "state": "absent"}]
    result = volume_batch.make_volumes(backend(world, check_mode=True), wanted, [image])
    assert result["outcomes"][one]["changed"] and not result["outcomes"][two]["changed"]
    assert set(model.calls) == {"fullreport"} and model.lvs == {}
    assert result["diff"]["before"][one] is None and result["diff"]["after"][one]["size"] == GIB


def test_what_is_made_from_another_of_the_batch_waits_for_it(world):
    model = world(thin=True)
    source, snapshot, clone = new_ids(3)
    wanted = [
        {"id": clone, "source_snapshot": snapshot},
        {"id": snapshot, "kind": "snapshot", "source_volume": source},
        {"id": source, "size_gb": 1},
    ]
    outcomes = volume_batch.make_volumes(backend(world, thin=True), wanted)["outcomes"]
    assert [item["error"] for item in outcomes.values()] == [None] * 3
    assert model.lvs["volume-" + clone]["origin"] == "_snapshot-" + snapshot
    circle = [{"id": new_ids(1)[0], "source_volume": "x"}]
    assert volume_batch.make_volumes(backend(world, thin=True), circle)["outcomes"][circle[0]["id"]]["error"]


@pytest.mark.parametrize(
    ("vg", "changes", "volumes", "error"),
    [
        ("nowhere", {}, [], DriverNotInitialized),
        ("a b", {}, [], InvalidInput),
        ("vg", {"clear": "discard"}, [], InvalidInput),
        ("vg", {"clear_size": -1}, [], InvalidInput),
        ("vg", {"temp_dir": "relative"}, [], InvalidInput),
        (
            "vg",
            {"pool": "nopool"},
            [{"id": "11111111-1111-4111-8111-111111111111", "size_gb": 1}],
            DriverNotInitialized,
        ),
        ("vg", {}, [{"id": "a"}, {"id": "a"}], InvalidInput),
    ],
)
def test_a_backend_that_cannot_be_used_fails_as_a_whole(world, vg, changes, volumes, error):
    world(thin=False)
    settings = dict({"vg": vg, "temp_dir": world.temp}, **changes)
    with pytest.raises(error):
        volume_batch.make_volumes(volume_backend.Backend(**settings), volumes)


# ---- temporary images --------------------------------------------------------------------------------------------------


def source_of(path, data, mode=0o644, **changes):
    path.write_bytes(data)
    path.chmod(mode)
    fields = {"id": "i", "disk_format": "raw", "path": str(path), "checksum": hashlib.sha256(data).hexdigest()}
    return ImageSource(**dict(fields, **changes))


def test_a_temporary_image_is_gone_afterwards_and_dead_runs_are_swept(world, tmp_path):
    parent = tmp_path / "temp"
    dead, alive = parent / "image-dead", parent / "image-alive"
    for folder in (dead, alive):
        folder.mkdir(parents=True)
        (folder / "i").write_bytes(b"x")
    (parent / "other").mkdir()
    fd = os.open(alive, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        with volume_images.TemporaryImages(str(parent)) as temporary:
            temporary.sweep()
            image = temporary.take(source_of(tmp_path / "src", b"dat\0", mode=0o666))
            assert (image.driver, image.virtual_size) == ("raw", 4) and os.path.exists(image.path)
            assert set(os.listdir(parent)) == {"image-alive", "other", os.path.basename(os.path.dirname(image.path))}
        assert sorted(os.listdir(parent)) == ["image-alive", "other"]
    finally:
        os.close(fd)


def test_a_full_temporary_directory_is_told_as_such(world, tmp_path, monkeypatch):
    def full(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(volume_images, "fetch", full)
    with pytest.raises(ImageTooBig, match="exceeded available disk space"):
        with volume_images.TemporaryImages(str(tmp_path / "temp")) as temporary:
            temporary.take(source_of(tmp_path / "src", b"data", mode=0o666))
    assert os.listdir(tmp_path / "temp") == []


def test_a_file_larger_than_every_volume_is_not_read_to_its_end(world, tmp_path):
    with pytest.raises(ImageUnacceptable, match="largest volume"):
        with volume_images.TemporaryImages(str(tmp_path / "temp")) as temporary:
            temporary.take(source_of(tmp_path / "src", b"x" * 4096), limit=4095)


@pytest.mark.parametrize(
    ("size", "volume", "fits"),
    [(1, 1, True), (GIB, 1, True), (GIB + 1, 1, False), (GIB + 1, 2, True), (5 * GIB, 4, False)],
)
def test_an_image_fits_when_its_size_in_whole_gb_does(size, volume, fits):
    if fits:
        volume_images.check_fits_volume("i", size, volume)
    else:
        with pytest.raises(ImageUnacceptable, match="doesn't fit in a volume of size %dGB" % volume):
            volume_images.check_fits_volume("i", size, volume)


def test_no_qemu_img_and_another_format_than_raw(world, tmp_path, monkeypatch):
    qcow2 = tmp_path / "q.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(qcow2), "1M"], check=True)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("shutil.which", lambda *_args, **_options: None)
    with pytest.raises(ImageUnacceptable, match="Only RAW images"):
        with volume_images.TemporaryImages(str(tmp_path / "temp")) as temporary:
            temporary.take(source_of(tmp_path / "src", qcow2.read_bytes(), disk_format="qcow2"))


# ---- copies and programs -----------------------------------------------------------------------------------------------


def test_a_range_is_hashed_from_the_device_itself(tmp_path):
    data = os.urandom(3 * MIB + 4096)
    path = tmp_path / "device"
    path.write_bytes(data)
    for size in (0, 1, MIB, 2 * MIB + 5, len(data)):
        assert copy.range_sha256(str(path), size) == hashlib.sha256(data[:size]).hexdigest()


def test_what_was_written_is_compared_with_a_raw_image(tmp_path):
    path = tmp_path / "device"
    path.write_bytes(b"a" * MIB)
    copy.verify("", "raw", hashlib.sha256(b"a" * 100).hexdigest(), str(path), 100)
    with pytest.raises(ImageCopyFailure, match="sha256"):
        copy.verify("", "raw", hashlib.sha256(b"b" * 100).hexdigest(), str(path), 100)


def test_a_program_that_fails_says_why_and_one_that_hangs_is_ended():
    with pytest.raises(CommandFailed, match="no such thing"):
        process.run_tied([sys.executable, "-c", "import sys; sys.exit('no such thing')"])
    begun = time.monotonic()
    with pytest.raises(CommandFailed, match="not finished after 1 s"):
        process.run_tied(["/bin/sleep", "60"], timeout=1)
    assert time.monotonic() - begun < 20


def test_progress_is_told():
    seen = []
    script = "import sys,time\nfor n in (1,50,100):\n sys.stdout.write('    (%.2f/100%%)\\r' % n); sys.stdout.flush(); time.sleep(.05)"
    process.run_tied([sys.executable, "-c", script], seen.append)
    assert seen[-1] == 100.0 and seen == sorted(seen)


def test_a_program_dies_with_the_run_that_started_it(tmp_path):
    mark = tmp_path / "pid"
    child = "import os,time; open(%r,'w').write(str(os.getpid())); time.sleep(120)" % (str(mark),)
    script = "import sys\nfrom %s import run_tied\nrun_tied([sys.executable, '-c', %r])" % (
        process.__name__,
        child,
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    )
    deadline = time.monotonic() + 30
    while not (mark.exists() and mark.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    pid = int(mark.read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while process_started(pid) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_work_at_hand_is_seen_until_it_is_done(world):
    with process.Steps("abc") as steps:
        steps.at("converting", 12.34)
        found = process.work_at_hand()
        assert [(item["id"], item["step"], item["percent"]) for item in found] == [("abc", "converting", 12.3)]
    assert process.work_at_hand() == []


def test_no_room_may_be_had_elsewhere():
    error = lvm.no_room("vg", "why")
    assert isinstance(error, VolumeBackendAPIException) and error.retryable and "vg is full" in error.message
