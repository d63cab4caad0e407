# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images of the ledger by whole playbooks: stores of the controller are real folders, stores of hosts are models."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import json
import sqlite3
import threading
import typing as t
from pathlib import Path

import pytest
from simulated_site import Site

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors

CONTENT = bytes(range(256)) * 8192 + bytes(3 * 1024**2) + b"end"  # holes, and no multiple of a block
SHA = hashlib.sha256(CONTENT).hexdigest()


class Images:
    """The images of a site. The store ``here`` is a folder of the controller, ``far`` one of kvm1."""

    def __init__(self, site: Site, folder: Path):
        self.site = site
        self.store = folder / "store"
        self.store.mkdir()
        self.file = folder / "web.raw"
        self.file.write_bytes(CONTENT)
        site.variables["bootflow_image_stores"] = [
            {"name": "here", "path": str(self.store)},
            {"name": "far", "path": "/srv/images", "kind": "host", "host": "kvm1"},
        ]

    def entry(self, **fields: t.Any) -> dict[str, t.Any]:
        return {"name": "web", "path": str(self.file), "checksum": "sha256:" + SHA, "disk_format": "raw", **fields}

    def load(self, *entries: dict[str, t.Any], options: tuple[str, ...] = (), expect: int = 0) -> str:
        wanted = list(entries) or [self.entry()]
        return self.site.play("image_import", *options, expect=expect, image_imports=wanted)

    def play(self, playbook: str, *names: str, options: tuple[str, ...] = (), expect: int = 0, **more: t.Any) -> str:
        given = {"image_names": list(names), **more} if names else more
        return self.site.play("image_" + playbook, *options, expect=expect, **given)

    def rows(self) -> dict[str, tuple[str, str]]:
        """name -> (status, id) of images that are not deleted."""
        found = self.site.query("SELECT name, status, id FROM images WHERE deleted = ''")
        return {name: (status, image_id) for name, status, image_id in found}

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.store.iterdir()}


@pytest.fixture
def images(site: Site, tmp_path: Path) -> Images:
    return Images(site, tmp_path)


@pytest.fixture
def server(tmp_path: Path) -> t.Iterator[str]:
    """The address of a web server with the folder of the test."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield "http://127.0.0.1:%d" % made.server_address[1]
        made.shutdown()


def test_from_a_file_to_the_store_to_a_file_to_nothing(images: Images, tmp_path: Path) -> None:
    output = images.load(options=("--check", "--diff"))
    assert "Would import web (raw) into the store here" in output and "+web (raw) into the store here" in output
    assert images.files() == {} and not images.site.ledger_path.exists()
    output = images.load()
    status, image_id = images.rows()["web"]
    assert status == "active" and images.files() == {image_id: CONTENT} and "5.0 MiB" in output
    assert (images.store / image_id).stat().st_mode & 0o777 == 0o600
    output = images.load()
    assert "the images match the request" in output and "changed=0" in output
    assert images.rows()["web"] == ("active", image_id) and images.files() == {image_id: CONTENT}
    before = images.site.dump()
    output = images.load(images.entry(protected=True, properties={"os_distro": "debian"}), options=("--check",))
    assert "Would change web protected: True" in output and images.site.dump() == before
    images.load(images.entry(protected=True, properties={"os_distro": "debian"}))
    assert image_id in images.play("list") and "protected" in images.play("list", "web")
    output = images.play("list", "wep", image_id.upper())
    assert "There is no image with this name: wep\n" in output.replace('"', "\n") and "protected" in output
    assert "os_distro: debian" in images.play("show", "web")
    assert "ImageProtected" in images.play("delete", "web", expect=2)
    dest = tmp_path / "out.raw"
    output = images.play("export", "web", options=("--check",), image_dest=str(dest))
    assert "Would write" in output and not dest.exists()
    images.play("export", "web", image_dest=str(dest))
    assert dest.read_bytes() == CONTENT and list(tmp_path.glob("*.part")) == []
    assert "already" in images.play("export", "web", image_dest=str(dest))
    dest.write_bytes(b"other")
    assert "other content" in images.play("export", "web", expect=2, image_dest=str(dest))
    assert dest.read_bytes() == b"other"
    images.play("export", "web", image_dest=str(dest), image_overwrite=True)
    assert dest.read_bytes() == CONTENT
    images.load()
    output = images.play("delete", "web", options=("--check",))
    assert "Would delete:" in output and images.rows()["web"] == ("active", image_id)
    images.play("delete", "web")
    assert images.rows() == {} and images.files() == {}
    assert "LedgerImageNotFound" in images.play("delete", "web", expect=2)
    assert "changed=0" in images.play("delete", "web", missing_ok=True)
    assert "LedgerImageNotFound" in images.play("show", "web", expect=2)


def test_what_is_not_the_image_never_gets_its_name(images: Images) -> None:
    output = images.load(images.entry(checksum="sha256:" + "0" * 64), images.entry(name="good"), expect=2)
    assert "1 of 2 images were not imported" in output and SHA in output
    assert images.rows()["web"][0] == "killed" and images.rows()["good"][0] == "active"
    assert images.files() == {images.rows()["good"][1]: CONTENT}
    assert "killed" in images.play("list")
    qcow2 = images.file.with_name("web.qcow2")
    qcow2.write_bytes(b"QFI\xfb" + CONTENT)
    sha = hashlib.sha256(qcow2.read_bytes()).hexdigest()
    output = images.load(images.entry(path=str(qcow2), checksum="sha256:" + sha), expect=2)
    assert "qcow2" in output and len(images.files()) == 1
    images.load()
    assert images.rows()["web"][0] == "active" and len(images.files()) == 2


@pytest.mark.long
def test_from_a_web_server(images: Images, server: str) -> None:
    (images.file.parent / "SHA256SUMS").write_text("%s  web.raw\n" % SHA)
    url = server + "/web.raw"
    entry = images.entry(path="", url=url, checksum="sha256:%s/SHA256SUMS" % server)
    images.load(entry)
    image_id = images.rows()["web"][1]
    assert images.files() == {image_id: CONTENT}
    assert "changed=0" in images.load(entry)
    output = images.load({**entry, "name": "gone", "url": server + "/none", "checksum": "sha256:" + SHA}, expect=2)
    assert "404" in output and images.rows()["gone"][0] == "killed" and len(images.files()) == 1


@pytest.mark.long
def test_a_store_whose_directory_is_missing_is_not_made(images: Images) -> None:
    images.store.rmdir()
    assert "does not exist" in images.load(expect=2) and not images.store.exists()
    assert images.rows()["web"][0] == "killed"
    images.store.mkdir()
    images.load()
    images.store.rename(images.store.with_name("away"))
    output = images.play("delete", "web", expect=2)
    assert "ImageDeleteIncomplete" in output and images.rows() == {}
    images.store.with_name("away").rename(images.store)
    images.play("delete", "web")
    assert images.files() == {}


class Stalled(http.server.BaseHTTPRequestHandler):
    """Sends half of the file, and the rest when the test says so."""

    go_on = threading.Event()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        half = len(CONTENT) // 2
        self.wfile.write(CONTENT[:half])
        self.wfile.flush()
        self.go_on.wait(60)
        with contextlib.suppress(OSError):
            self.wfile.write(CONTENT[half:])


def test_a_killed_import_leaves_nothing_once_the_next_one_has_run(images: Images) -> None:
    Stalled.go_on.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stalled) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        entry = images.entry(path="", url="http://127.0.0.1:%d/web" % server.server_address[1])
        process = images.site.begin("image_import", image_imports=[entry])
        try:
            images.site.wait_until(lambda: any(images.files().values()))
        finally:
            images.site.kill(process)
        ((status, first),) = images.rows().values()
        assert status == "saving" and list(images.files()) == [first + ".part"]
        assert "ImageNotActive" in images.play("export", "web", expect=2, image_dest=str(images.file) + ".out")
        Stalled.go_on.set()
        images.load(entry)
        ((status, second),) = images.rows().values()
        assert status == "active" and second != first and images.files() == {second: CONTENT}
        server.shutdown()


@pytest.mark.long
def test_what_does_not_fit_is_refused_before_anything_is_written(images: Images) -> None:
    output = images.load(
        images.entry(store="nfs"),
        images.entry(name="two", checksum=""),
        images.entry(name="three", disk_format="x"),
        expect=2,
    )
    for words in (
        "The request has 3 errors",
        "ImageStoreNotFound",
        "checksum is missing",
        "disk_format must be one of",
    ):
        assert words in output
    assert "is not on the controller" in images.load(images.entry(path="/none"), expect=2)
    endless = images.entry(path="/dev/zero", checksum="", allow_unverified=True)
    assert "is not on the controller" in images.load(endless, expect=2)
    images.site.variables["bootflow_image_stores"] = [{"name": "here", "path": "images"}]
    assert "path must be an absolute path" in images.load(expect=2)
    del images.site.variables["bootflow_image_stores"]
    assert "There is no image store" in images.load(expect=2)
    assert images.rows() == {} and images.files() == {}


@pytest.mark.long
def test_a_store_of_a_host(images: Images) -> None:
    kvm1 = images.site.hosts["kvm1"]
    entry = images.entry(path="", url="http://images.example/web.raw", store="far")
    kvm1.is_silent("image_file", times=1)
    output = images.load(entry, expect=2)
    assert "ImageImportFailed" in output and images.rows()["web"][0] == "killed"
    images.load(entry)
    image_id = images.rows()["web"][1]
    assert images.rows()["web"][0] == "active" and kvm1.files == {"/srv/images": {image_id: SHA}}
    kvm1.is_silent()
    assert "still in far" in images.play("delete", "web", expect=2)
    kvm1.heal()
    images.play("delete", "web")
    assert kvm1.files == {"/srv/images": {}} and images.rows() == {}
    kvm1.fails("image_file", errors.ModuleKilled(module="image_file", host="kvm1", signal="SIGKILL"), times=1)
    assert "SIGKILL" in images.load(entry, expect=2)
    assert [row[0] for row in images.site.query("SELECT progress FROM image_places")] == ["ending"]
    images.play("delete", "web")
    assert images.site.query("SELECT 1 FROM image_places") == []
    kvm1.items_fail("image_file", errors.DiskFull(host="kvm1", path="/srv/images", reason="full"))
    output = images.load(entry, expect=2)
    assert "full" in output and images.site.query("SELECT 1 FROM image_places") == []


@pytest.mark.long
def test_a_name_of_two(images: Images) -> None:
    images.load(images.entry(visibility="public"))
    images.site.play("image_import", image_imports=[images.entry()], project="blue")
    output = images.play("show", "web", expect=2, project="blue")
    assert "ImageAmbiguous" in output
    ids = [row[0] for row in images.site.query("SELECT id FROM images ORDER BY project")]
    assert ids[0] in output and ids[1] in output
    assert "project: blue" in images.play("show", image_ids=[ids[0]], project="blue")
    images.play("delete", "web", project="blue")  # its own: it may delete no other
    assert list(images.rows().values()) == [("active", ids[1])]


# --- requests that name them ----------------------------------------------------------------------------------------------


def guest(name: str, image: str, **fields: t.Any) -> dict[str, t.Any]:
    return {"name": name, "flavor": "small", "image": image, "networks": ["lan"], **fields}


def image_of(site: Site, name: str) -> dict[str, t.Any]:
    """The image of an instance, as the ledger has it."""
    ((spec,),) = site.query(
        "SELECT s.spec FROM request_specs s JOIN instances i ON i.request_spec_id = s.id WHERE i.display_name = ? AND i.deleted = ''",
        name,
    )
    return dict(json.loads(spec)["image"])


@pytest.fixture
def shared(images: Images) -> str:
    """Id of the image ``web`` in a store that all hosts share."""
    stores = [
        {"name": "nfs", "path": str(images.store), "kind": "shared"},
        *images.site.variables["bootflow_image_stores"][1:],
    ]
    images.site.variables["bootflow_image_stores"] = stores
    images.load(images.entry(min_disk=2, properties={"os_distro": "debian"}))
    return images.rows()["web"][1]


def test_instances_boot_from_an_image_of_the_ledger(images: Images, shared: str) -> None:
    site = images.site
    assert "would" not in site.boots(guest("one", "web"), options=("--check",)).lower() or site.places() == {}
    site.boots(guest("one", "web"), guest("two", shared.upper()), guest("three", "debian"))
    assert {state for state, _host in site.places().values()} == {"active"}
    for name in ("one", "two"):
        stored = image_of(site, name)
        assert (stored["id"], stored["name"], stored["checksum"]) == (shared, "web", SHA)
        assert stored["url"] == "file://%s/%s" % (images.store, shared) and stored["properties"] == {
            "os_distro": "debian"
        }
    assert image_of(site, "three")["name"] == "debian"
    assert "Nothing to do" in site.boots(guest("one", "web"), guest("two", shared))
    # It may be deleted: the guests have their disks.
    images.play("delete", "web")
    assert "ImageNotFound" in site.boots(guest("four", "web"), expect=2)


@pytest.mark.long
def test_a_boot_names_what_it_cannot_use(images: Images, shared: str) -> None:
    site = images.site
    output = images.load(
        images.entry(name="debian"), images.entry(name="gone", store="far", path="", url="http://images.example/x")
    )
    stores = site.variables["bootflow_image_stores"]
    site.variables["bootflow_image_stores"] = [store for store in stores if store["name"] != "far"]
    assert "have this name too: debian." in " ".join(output.split())
    output = site.boots(
        guest("one", "debian"),
        guest("two", "gone"),
        guest("three", "web", project="blue"),
        guest("four", "wep"),
        expect=2,
        allow_other_owners=True,
    )
    for words in ("ImageAmbiguous", "in bootflow_images", "ImageNotReadable", "none of its stores (far)"):
        assert words in output
    assert output.count("ImageNotFound") >= 2 and site.places() == {}
    images.load(images.entry(visibility="public", min_disk=2, properties={"os_distro": "debian"}))
    site.boots(guest("three", "web", project="blue"), allow_other_owners=True)
    assert image_of(site, "three")["id"] == shared
    assert "FlavorDiskSmallerThanMinDisk" in site.boots(guest("five", "web", flavor="huge"), expect=2)


@pytest.mark.long
def test_a_rebuild_and_a_rescue_name_them_too(images: Images, shared: str) -> None:
    site = images.site
    site.boots(guest("one", "debian"))
    assert "ImageNotFound" in site.play("rebuild", expect=2, names=["one"], rebuild_image="wep")
    site.play("rebuild", "--check", names=["one"], rebuild_image="web")
    assert image_of(site, "one")["name"] == "debian"
    site.play("rebuild", names=["one"], rebuild_image="web")
    assert image_of(site, "one")["id"] == shared
    assert "ImageNotFound" in site.play("rescue", expect=2, names=["one"], rescue_image_ref="wep")


#: More than what is copied in no time, without taking room.
LARGE = 65 * 1024**2


@pytest.mark.long
def test_a_large_image_of_the_ledger_comes_from_host_to_host(images: Images) -> None:
    site = images.site
    with images.file.open("r+b") as file:
        file.truncate(LARGE)
    images.load(images.entry(checksum="sha256:" + hashlib.sha256(images.file.read_bytes()).hexdigest()))
    ((_status, image_id),) = images.rows().values()
    assert "Give images to the hosts that lack them" in site.boots(guest("one", "web", count=2), hosts=["kvm1", "kvm2"])
    for name in ("kvm1", "kvm2"):
        assert list(site.hosts[name].images) == [image_id] and site.asked()[name].count("image_relay") == 3
    # No SSH leads to simulated hosts: the order is made, and each build gets the image by itself.
    assert {site.hosts[name].images[image_id]["tasks"]["error"]["code"] for name in ("kvm1", "kvm2")} == {
        "HostUnreachable"
    }
    assert {state for state, _host in site.places().values()} == {"active"}


@pytest.mark.long
def test_images_of_the_ledger_come_before_a_boot(images: Images) -> None:
    site = images.site
    images.load()
    ((_status, image_id),) = images.rows().values()
    for word in ("web", image_id.upper()):
        output = site.play("image_precache", "--check", precache_images=[word], hosts=["kvm1"])
        assert "failed=0" in output
    images.load(images.entry(name="far", store="far", path="", url="http://images.example/x"))
    output = site.play("image_precache", expect=2, precache_images=["wep"])
    assert "ImageNotFound" in output and "web" in output
    stores = site.variables["bootflow_image_stores"]
    site.variables["bootflow_image_stores"] = stores[:1]
    assert "ImageNotReadable" in site.play("image_precache", expect=2, precache_images=["far"])
    site.variables["bootflow_image_stores"] = stores
    _set_status(site, "saving")
    output = site.play("image_precache", expect=2, precache_images=["web"])
    assert "ImageNotActive" in output and "Wait for it" in output
    _set_status(site, "active")
    (images.store / image_id).unlink()
    assert "its store has lost the file" in site.play("image_precache", expect=2, precache_images=["web"])
    assert all("image_relay" not in modules for modules in site.asked().values())


@pytest.mark.long
def test_an_image_that_does_not_come_before_a_boot_is_an_error_as_any_other(images: Images) -> None:
    """No SSH leads to simulated hosts."""
    images.load()
    output = images.site.play("image_precache", expect=2, precache_images=["web"], hosts=["kvm1"])
    for words in ("ImagePrecacheFailed: 1 of 1 images did not come to their hosts", "web on kvm1: ", "Remedy: "):
        assert words in output, output


@pytest.mark.long
def test_an_image_of_the_controllers_store_that_lost_its_file(images: Images) -> None:
    images.load()
    images.file.unlink()
    for path in images.store.iterdir():
        path.unlink()
    output = images.site.boots(guest("one", "web"), expect=2)
    assert "is not on the controller" in output and "its store has lost the file" in output
    assert images.site.places() == {}


# --- images of the stores of hosts ----------------------------------------------------------------------------------------


@pytest.fixture
def of_kvm1(images: Images) -> str:
    """Id of the image ``far``, which only a store of kvm1 has."""
    images.site.variables["bootflow_allow_forced_host"] = True
    images.load(images.entry(name="far", store="far", path="", url="http://images.example/x", min_disk=1))
    return images.rows()["far"][1]


def sources(site: Site, image_id: str) -> dict[str, str]:
    """Of each host that got the image from another one: the first host that it asked."""
    got = {name: host.images[image_id] for name, host in site.hosts.items() if image_id in host.images}
    return {name: image["tasks"]["before"][0]["name"] for name, image in got.items() if image["there"]}


def test_an_image_of_a_store_of_a_host_boots_on_all_hosts(images: Images, of_kvm1: str) -> None:
    site = images.site
    site.boots(*(guest("on-%s" % name, "far", availability_zone="nova:%s" % name) for name in site.hosts))
    assert site.places() == {"on-%s" % name: ("active", name) for name in site.hosts}
    assert sources(site, of_kvm1) == {"kvm2": "kvm1", "kvm3": "kvm2"}
    assert site.hosts["kvm1"].files == {"/srv/images": {of_kvm1: SHA}} and of_kvm1 not in site.hosts["kvm1"].images
    assert image_of(site, "on-kvm2")["url"] == "host://kvm1/srv/images/" + of_kvm1


@pytest.mark.long
def test_a_store_of_a_host_that_is_silent_fails_only_who_needs_it(images: Images, of_kvm1: str) -> None:
    site = images.site
    site.hosts["kvm1"].is_silent()
    output = site.boots(guest("one", "far"), guest("two", "debian"), expect=2, hosts=["kvm2"])
    assert "only a store of host kvm1 has it, which did not answer" in " ".join(output.split())
    assert site.places()["two"] == ("active", "kvm2") and site.places()["one"][0] == "error"


@pytest.mark.long
def test_a_store_of_a_host_that_lost_its_file_is_named(images: Images, of_kvm1: str) -> None:
    lost = errors.ImageNotReadable(image_id="far", reason="/srv/images/%s is gone" % of_kvm1)
    images.site.hosts["kvm1"].items_fail("image_relay", lost)
    output = images.site.boots(guest("one", "far"), expect=2, hosts=["kvm2"])
    assert "/srv/images/%s is gone" % of_kvm1 in output


@pytest.mark.long
def test_a_rebuild_a_rescue_and_a_precache_bring_it(images: Images, of_kvm1: str) -> None:
    site = images.site
    zones = {"rebuilt": "kvm2", "rescued": "kvm3"}
    site.boots(*(guest(name, "debian", availability_zone="nova:%s" % host) for name, host in zones.items()))
    output = site.play("rebuild", "--check", names=["rebuilt"], rebuild_image="far")
    assert "image_relay" not in site.asked().get("kvm1", []) and "failed=0" in output
    site.play("rebuild", names=["rebuilt"], rebuild_image="far")
    assert image_of(site, "rebuilt")["id"] == of_kvm1 and sources(site, of_kvm1) == {"kvm2": "kvm1"}
    site.hosts["kvm1"].is_silent()
    output = site.play("rescue", expect=2, names=["rescued"], rescue_image_ref="far")
    assert "which did not answer" in " ".join(output.split()) and site.places()["rescued"][0] == "active"
    output = site.play("image_precache", expect=2, precache_images=["far"], hosts=["kvm3"])
    assert "which did not answer" in " ".join(output.split())
    site.hosts["kvm1"].heal()
    output = site.play("image_precache", precache_images=["far"])
    assert "has it in its store" in output and "failed=0" in output and "kvm3" in sources(site, of_kvm1)


@pytest.mark.long
def test_an_evacuation_brings_it(images: Images, of_kvm1: str) -> None:
    site = images.site
    site.boots(guest("one", "far", availability_zone="nova:kvm2"))
    site.hosts["kvm2"].is_silent()
    site.play("host", host="kvm2", host_state="forced_down")
    site.play("evacuate", host="kvm2", hosts=["kvm3"])
    assert site.places()["one"] == ("active", "kvm3")
    assert "kvm3" in sources(site, of_kvm1)


@pytest.mark.long
def test_no_volume_is_made_of_it(images: Images, of_kvm1: str) -> None:
    site = images.site
    site.storage = ["kvm3"]
    output = site.play("volume_create", expect=2, volumes=[{"name": "v", "size": 9, "image_id": "far"}])
    assert "volumes are not made from there" in " ".join(output.split()) and "image_export" in output
    root = {"source_type": "image", "uuid": "far", "destination_type": "volume", "volume_size": 9, "boot_index": 0}
    wanted = {"name": "one", "flavor": "small", "networks": ["lan"], "block_device_mapping": [root]}
    output = site.boots(wanted, expect=2)
    assert "volumes are not made from there" in " ".join(output.split()) and site.places() == {}


def _set_status(site: Site, status: str) -> None:
    """Set the status of the image web in the ledger."""
    with contextlib.closing(sqlite3.connect(site.ledger_path)) as ledger:
        ledger.execute("UPDATE images SET status = ? WHERE name = 'web'", (status,))
        ledger.commit()
