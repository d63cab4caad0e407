# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which base images are removed: real files, real qcow2 headers, real locks; the domains are texts."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import threading
import time
import types
import typing as t
import uuid

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidDiskInfo
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import instances, unused_images
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.disk_batch import make_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domains

GUESTS = ["2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a%02x" % n for n in range(8)]


class Host:
    """An instances_path with images, and the definitions of domains."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.path = str(folder / "instances")
        self.base = folder / "instances" / "_base"

    def image(self, name: str, content: str = "") -> dict[str, t.Any]:
        source = self.folder / (name + ".raw")
        source.write_bytes((content or name).encode().ljust(65536, b"\0"))
        checksum = hashlib.sha256(source.read_bytes()).hexdigest()
        return {"id": name, "url": "file://%s" % source, "checksum": checksum, "disk_format": "raw"}

    def build(self, guest: str, image: dict[str, t.Any], backend: str = "qcow2") -> dict[str, t.Any]:
        disk = {"name": "disk", "kind": "image", "image_id": image["id"], "size_mb": 1, "backend": backend}
        done = make_disks(self.path, [image], [{"uuid": guest, "disks": [disk]}], {})
        return t.cast("dict[str, t.Any]", done["outcomes"][guest])

    def purge(
        self, min_age: float = 0.0, known: t.Sequence[str] = (), check_mode: bool = False, definitions: t.Any = ()
    ) -> list[str]:
        all_of = [types.SimpleNamespace(XMLDesc=lambda _flags, x=xml: x) for xml in definitions]
        connection = types.SimpleNamespace(listAllDomains=lambda _flags: all_of)
        removed = unused_images.purge_images(connection, self.path, min_age, known, check_mode)
        return [os.path.basename(image["path"]) for image in removed if not image["error"]]

    def there(self) -> list[str]:
        return sorted(os.listdir(self.base))


@pytest.fixture
def host(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    if domains.libvirt is None:
        monkeypatch.setattr(domains, "libvirt", types.SimpleNamespace(VIR_DOMAIN_XML_INACTIVE=2, libvirtError=OSError))
        monkeypatch.setattr(
            "ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection.libvirt",
            types.SimpleNamespace(libvirtError=OSError),
        )
    return Host(tmp_path)


def test_an_image_goes_when_its_last_disk_is_gone_and_is_fetched_again(host: Host) -> None:
    """Base images were never removed."""
    assert host.purge() == [] and not os.path.exists(host.path)  # a host without a cache
    used, old = host.image("used"), host.image("old")
    for guest, image in zip(GUESTS, (used, old, old)):
        assert host.build(guest, image)["error"] is None
    assert host.purge() == []
    shutil.rmtree(os.path.join(host.path, GUESTS[1]))
    assert host.purge() == []
    shutil.rmtree(os.path.join(host.path, GUESTS[2]))
    before = host.there()
    (gone,) = host.purge(check_mode=True)
    assert gone.startswith("old-") and host.there() == before
    assert host.purge() == [gone] and host.purge() == []
    assert sorted(set(before) - set(host.there())) == [gone, "old.json"]
    assert host.build(GUESTS[3], old)["error"] is None and gone in host.there()


def test_a_disk_that_was_copied_needs_no_base(host: Host) -> None:
    host.build(GUESTS[0], host.image("copied"), backend="raw")
    assert len(host.purge()) == 1


def test_the_age_counts_from_the_last_use(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    image = host.image("a")
    host.build(GUESTS[0], image)
    now = unused_images.time.time()
    monkeypatch.setattr(unused_images.time, "time", lambda: now + 5000)
    connection = types.SimpleNamespace(listAllDomains=lambda _flags: ())
    instances.remove_tree(os.path.join(host.path, GUESTS[0]))
    assert host.purge(min_age=6000) == [] and len(host.purge(min_age=4000, check_mode=True)) == 1
    # The clock of the file system is the real one: a use in between makes the image younger than the purges of before.
    made = next(unused_images.purge_images(connection, host.path, 4000, (), True))["age"]
    unused_images.mark_used(os.path.join(host.base, host.purge(check_mode=True)[0]))
    assert 4990 <= next(unused_images.purge_images(connection, host.path, 4000, (), True))["age"] <= made


@pytest.mark.parametrize("how", ["disk of a build", "removed", "seen in use"])
def test_a_use_is_noted_without_a_new_fetch(host: Host, how: str) -> None:
    image = host.image("a")
    host.build(GUESTS[0], image)
    (base,) = [host.base / name for name in host.there() if not name.endswith(".json")]
    before = base.stat()
    if how == "disk of a build":
        assert not host.build(GUESTS[1], image)["error"]
    elif how == "removed":
        gone = types.SimpleNamespace(lookupByUUIDString=lambda _uuid: None)
        instances.remove_instance(gone, host.path, GUESTS[0])
    else:
        host.purge()
    after = base.stat()
    assert after.st_ctime_ns > before.st_ctime_ns and after.st_mtime_ns == before.st_mtime_ns
    assert host.build(GUESTS[2], image)["changed"] and base.stat().st_ino == before.st_ino


def test_an_older_file_of_an_image_that_the_ledger_knows_goes(host: Host) -> None:
    host.build(GUESTS[0], host.image("a", "first"))
    shutil.rmtree(os.path.join(host.path, GUESTS[0]))
    first = {n for n in host.there() if n != "a.json"}
    host.build(GUESTS[0], host.image("a", "second"))
    shutil.rmtree(os.path.join(host.path, GUESTS[0]))
    assert set(host.purge(known=["a"])) == first
    assert "a.json" in host.there() and host.purge(known=["a"]) == [] and len(host.purge()) == 1


def test_whoever_defined_the_disk_it_keeps_its_chain(host: Host, tmp_path: pathlib.Path) -> None:
    """Two ledgers, or people, may use one cache: what counts is what is on the host."""
    names = {}
    for name, guest in zip(("outside", "named", "json", "snapshot"), GUESTS):
        host.build(guest, host.image(name))
        names[name] = next(n for n in host.there() if n.startswith(name + "-"))
        shutil.move(os.path.join(host.path, guest, "disk"), tmp_path / (name + ".qcow2"))
    overlay = ["qemu-img", "create", "-q", "-f", "qcow2"]
    subprocess.run([*overlay, "-b", "snapshot.qcow2", "-F", "qcow2", tmp_path / "top.qcow2"], check=True)
    spec = {"driver": "raw", "file": {"driver": "file", "filename": str(host.base / names["json"])}}
    subprocess.run([*overlay, "-b", "json:" + json.dumps(spec), "-F", "raw", tmp_path / "json.qcow2"], check=True)
    disk = "<domain><devices><disk><source file='%s'/></disk></devices></domain>"
    definitions = [disk % (tmp_path / name) for name in ("outside.qcow2", "json.qcow2", "top.qcow2", "missing")]
    definitions.append("<domain><os><loader>%s</loader></os></domain>" % (host.base / names["named"]))
    assert host.purge(definitions=definitions) == []
    for kept, name in zip(range(len(definitions)), ("outside", "json", "snapshot")):
        definitions[kept] = "<domain/>"
        assert host.purge(definitions=definitions) == [names[name]]
    assert host.purge() == [names["named"]]


def test_what_a_guest_wrote_into_its_disk_is_read_and_harms_nobody(host: Host, tmp_path: pathlib.Path) -> None:
    host.build(GUESTS[0], host.image("a"))
    os.mkfifo(tmp_path / "fifo")
    names = [str(tmp_path / "fifo"), "/dev/zero", "json:" + "[" * 900, "json:{", "a\0b", "x" * 1000, "", "."]
    for number, name in enumerate(names):
        data = name.encode()
        header = b"QFI\xfb" + (3).to_bytes(4, "big") + (512).to_bytes(8, "big") + len(data).to_bytes(4, "big")
        (pathlib.Path(host.path) / GUESTS[0] / ("disk.eph%d" % number)).write_bytes(header.ljust(512, b"\0") + data)
    (pathlib.Path(host.path) / GUESTS[0] / "disk.swap").write_bytes(b"QFI\xfb" + b"\xff" * 100)
    assert host.purge() == []
    os.unlink(os.path.join(host.path, GUESTS[0], "disk"))
    assert len(host.purge()) == 1


def test_files_of_others_and_of_work_in_progress_stay(host: Host) -> None:
    image = host.image("a")
    host.build(GUESTS[0], image)
    shutil.rmtree(os.path.join(host.path, GUESTS[0]))
    for name in ("notes.txt", "b-0123456789abcde", "c.part", "d.raw-part"):
        (host.base / name).write_text("x")
    os.mkdir(host.base / "d-0123456789abcdef")
    with unused_images.host_lock(host.path, "image-c", timeout=0), unused_images.host_lock(host.path, "image-a"):
        assert host.purge() == ["d.raw-part"]
    assert [name.rpartition("-")[0] or name for name in host.purge()] == ["a", "c.part"]
    assert host.there() == ["b-0123456789abcde", "d-0123456789abcdef", "notes.txt"]


def test_nothing_goes_while_disks_are_not_mounted(host: Host) -> None:
    host.build(GUESTS[0], host.image("a"))
    os.unlink(os.path.join(host.path, GUESTS[0], "disk"))
    record = {"disk": {"kind": "disk", "format": "qcow2_on_lvm", "virtual_size": 1, "volume_group": "vg"}}
    pathlib.Path(host.path, GUESTS[0], "disk.info").write_text(json.dumps(record))
    with pytest.raises(InvalidDiskInfo, match="are not mounted on .*/disk, so the base images that they use"):
        host.purge()
    shutil.rmtree(os.path.join(host.path, GUESTS[0]))
    assert len(host.purge()) == 1


def test_what_an_instance_had_before_its_resize_is_not_mounted(host: Host) -> None:
    """Its copies use the same base image, and are seen."""
    host.build(GUESTS[0], host.image("a"))
    kept = pathlib.Path(host.path, GUESTS[0], "resize.old")
    kept.mkdir()
    record = {"disk": {"kind": "disk", "format": "qcow2_on_lvm", "virtual_size": 1, "volume_group": "vg"}}
    (kept / "disk.info").write_text(json.dumps(record))
    assert host.purge() == []
    shutil.rmtree(os.path.join(host.path, GUESTS[0]))
    assert len(host.purge()) == 1


def test_a_purge_never_takes_an_image_from_a_build(host: Host) -> None:
    """Builds and purges of the same moment: no disk is ever without its base, and no build fails."""
    image = host.image("raced")
    over = threading.Event()
    purged: list[str] = []
    wrong: list[t.Any] = []

    def purge() -> None:
        while not over.is_set():
            purged.extend(host.purge())

    def build() -> None:
        until = time.monotonic() + 20
        while len(purged) < 5 and time.monotonic() < until:
            guest = str(uuid.uuid4())
            outcome = host.build(guest, image)
            if outcome["error"]:
                wrong.append(outcome["error"])
                continue
            disk = os.path.join(host.path, guest, "disk")
            base = unused_images._backing_file(disk)
            if not os.path.exists(base):
                wrong.append("%s is gone" % base)
            shutil.rmtree(os.path.dirname(disk))

    builders = [threading.Thread(target=build) for _each in range(2)]
    purger = threading.Thread(target=purge)
    for thread in (purger, *builders):
        thread.start()
    for thread in builders:
        thread.join()
    over.set()
    purger.join()
    assert not wrong and len(purged) >= 2, (len(purged), wrong[:3])


def test_a_cache_whose_files_have_no_ending_is_filled_again_and_goes(host: Host) -> None:
    """Where AppArmor confines guests, none boots from a base image without an ending that virt-aa-helper may read."""
    image = host.image("old")
    assert host.build(GUESTS[0], image)["error"] is None
    (name,) = [n for n in host.there() if n != "old.json"]
    assert name.endswith(".raw")
    before = name[: -len(".raw")]
    (host.base / name).rename(host.base / before)
    marker = json.loads((host.base / "old.json").read_text())
    (host.base / "old.json").write_text(json.dumps({**marker, "file": before}))
    disk = os.path.join(host.path, GUESTS[0], "disk")
    subprocess.run(["qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", host.base / before, disk], check=True)
    assert host.purge(known=["old"]) == [], "the first guest goes on with it"
    assert host.build(GUESTS[1], image)["error"] is None
    assert host.there() == sorted([before, name, "old.json"])
    shutil.rmtree(os.path.join(host.path, GUESTS[0]))
    assert host.purge(known=["old"]) == [before] and host.there() == sorted([name, "old.json"])


def test_a_cache_that_nobody_can_use_is_not_kept_for_the_catalogue(host: Host) -> None:
    host.build(GUESTS[0], host.image("old"))
    shutil.rmtree(os.path.join(host.path, GUESTS[0]))
    (name,) = [n for n in host.there() if n != "old.json"]
    before = name[: -len(".raw")]
    (host.base / name).rename(host.base / before)
    marker = json.loads((host.base / "old.json").read_text())
    (host.base / "old.json").write_text(json.dumps({**marker, "file": before}))
    assert host.purge(known=["old"]) == [before] and host.there() == []
