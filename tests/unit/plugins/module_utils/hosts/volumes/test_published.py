# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entries of the image cache by the checksums that their publishers give: what a web server is asked for, on a model of LVM."""

from __future__ import annotations

import bz2
import functools
import gzip
import hashlib
import http.server
import lzma
import subprocess
import threading

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm import lvm_tags
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes import image_cache, published

from .test_image_cache import POOL, Cache, evicted
from .test_volume_batch import MIB, new_ids, world_of

COMPRESSED = {"gz": functools.partial(gzip.compress, mtime=0), "xz": lzma.compress, "bz2": bz2.compress}
SUMS = "SHA512SUMS"


class Publisher:
    """A web server with the files of a folder. ``asked``: their names, in the order of the requests."""

    def __init__(self, folder):
        self.folder, self.asked, self.on_request = folder, [], lambda _name: None
        publisher = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_words):
                pass

            def do_GET(self):
                publisher.asked.append(self.path.lstrip("/"))
                publisher.on_request(publisher.asked[-1])
                super().do_GET()

        handler = functools.partial(Handler, directory=str(folder))
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = "http://127.0.0.1:%d/" % self.http.server_port
        self.sums = (folder / SUMS).as_uri()

    def publish(self, name, data):
        (self.folder / name).write_bytes(data)
        (self.folder / SUMS).write_text("%s  %s\n" % (hashlib.sha512(data).hexdigest(), name))

    def image(self, name, checksum, **changes):
        image = {"id": new_ids(1)[0], "disk_format": "raw", "url": self.url + name, "checksum": checksum}
        return dict(image, **changes)

    def fetches(self, name):
        return self.asked.count(name)


@pytest.fixture
def publisher(tmp_path):
    folder = tmp_path / "published"
    folder.mkdir()
    found = Publisher(folder)
    with found.http:
        threading.Thread(target=found.http.serve_forever, args=(0.01,), daemon=True).start()
        yield found
        found.http.shutdown()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    return Cache(world_of(monkeypatch, tmp_path), tmp_path, monkeypatch)


def content(number):
    return bytes([number]) * 512 + bytes(MIB - 512)


def checksum_of(data, algorithm="sha256"):
    return "%s:%s" % (algorithm, hashlib.new(algorithm, data).hexdigest())


def name_of(data):
    return "image-" + hashlib.sha256(data).hexdigest()[:40]


def tags_of(cache, data):
    return set(cache.model.lvs[name_of(data)]["tags"])


# ---- found without a fetch ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "algorithm"), [("", "sha384"), ("", "sha512"), ("gz", "sha256"), ("xz", "sha512"), ("bz2", "sha256")]
)
def test_two_volumes_fetch_an_image_once(cache, publisher, kind, algorithm):
    data = content(1)
    file = COMPRESSED[kind](data) if kind else data
    publisher.publish("image", file)
    image = publisher.image("image", checksum_of(file, algorithm))
    for _volume in range(2):
        cache.create(image)
    assert publisher.asked == ["image"] and list(cache.make.written.values()) == [data]
    assert cache.names() == [name_of(data)] and cache.entries()[0].users == 2
    assert all(lvm_tags.checked_tag(tag) for tag in tags_of(cache, data))


@pytest.mark.parametrize("kind", ["", "gz"])
def test_a_file_with_checksums_is_read_for_each_volume_and_the_image_once(cache, publisher, kind):
    data = content(1)
    publisher.publish("image", COMPRESSED[kind](data) if kind else data)
    image = publisher.image("image", "sha512:" + publisher.url + SUMS)
    cache.create(image)
    publisher.asked.clear()
    cache.create(image)
    assert publisher.asked == [SUMS] and len(cache.make.written) == 1


def test_a_record_is_written_once(cache, publisher):
    publisher.publish("image", content(1))
    image = publisher.image("image", "sha512:" + publisher.sums)
    cache.create(image)
    cache.at -= 1000
    cache.model.calls.clear()
    cache.create(image)
    assert cache.model.calls.count("lvchange") == 1  # the volume is complete


def test_a_file_of_the_controller_is_not_uploaded_again(cache):
    """The host has no source of its own then, and says so only if the image is not in the cache."""
    image = cache.image(1)
    image["checksum"] = checksum_of(content(1), "sha512")
    cache.create(image)
    del image["path_on_host"]
    cache.create(image)
    wanted = {"id": new_ids(1)[0], "size_gb": 1, "image_id": image["id"]}
    other = dict(image, checksum=checksum_of(content(2), "sha512"))
    assert cache.run([wanted], [other])["outcomes"][wanted["id"]]["error"]["code"] == "ImageNotFound"


def test_an_image_of_another_id_is_found_by_its_checksum(cache, publisher):
    publisher.publish("image", content(1))
    one = publisher.image("image", checksum_of(content(1), "sha512"))
    two = dict(one, id=new_ids(1)[0])
    for image in (one, two):
        cache.create(image)
    assert publisher.fetches("image") == 1 and cache.entries()[0].image_ids == {one["id"], two["id"]}


def test_another_file_with_the_same_content_is_fetched_once_and_not_copied(cache, publisher):
    data = content(1)
    files = {kind: compress(data) for kind, compress in COMPRESSED.items()}
    for _volume in range(2):
        for kind, file in files.items():
            publisher.publish("image." + kind, file)
            cache.create(publisher.image("image." + kind, checksum_of(file)))
    assert sorted(publisher.asked) == ["image.bz2", "image.gz", "image.xz"]
    assert cache.names() == [name_of(data)] and len(cache.make.written) == 1


def test_what_a_volume_is_made_from_does_not_give_way_to_it(cache, publisher):
    publisher.publish("image", content(1))
    image, other = publisher.image("image", checksum_of(content(1), "sha512")), cache.image(2)
    for each in (image, other):
        cache.delete(cache.create(each))
    for name in cache.names():
        cache.model.lvs[name]["size"] = 1024 * MIB
        cache.fill(name, "50.00")
    cache.fill(POOL, "90.00")  # 800 MiB are left
    assert evicted(cache.create(image)) == [name_of(content(2))] and publisher.fetches("image") == 1


def test_what_a_run_has_found_is_not_evicted_by_another(cache, publisher):
    """The other one comes while a second image is fetched."""
    for number in (1, 2):
        publisher.publish("image-%d" % number, content(number))
    one, two = (publisher.image("image-%d" % number, checksum_of(content(number), "sha512")) for number in (1, 2))
    cache.create(one)
    kept = []
    publisher.on_request = lambda _name: kept.append(image_cache.empty("vg", POOL)["kept"])
    cache.create(one, two)
    assert [list(reasons) for reasons in kept] == [[name_of(content(1))]] and publisher.fetches("image-1") == 1


# ---- fetched again ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["digest", "address"])
def test_another_release_is_fetched_and_the_former_is_evicted(cache, publisher, by):
    image = publisher.image("image", "sha512:" + publisher.sums)
    for number in (1, 2):
        publisher.publish("image", content(number))
        if by == "digest":
            image["checksum"] = checksum_of(content(number), "sha512")
        for _volume in range(2):
            cache.create(image)
        assert publisher.fetches("image") == number and cache.names() == [name_of(content(number))]


def test_another_digest_than_the_files_is_refused_whatever_is_in_the_cache(cache, publisher):
    publisher.publish("image", content(1))
    cache.create(publisher.image("image", checksum_of(content(1), "sha512")))
    image = publisher.image("image", checksum_of(content(2), "sha512"))
    wanted = {"id": new_ids(1)[0], "size_gb": 1, "image_id": image["id"]}
    error = cache.run([wanted], [image])["outcomes"][wanted["id"]]["error"]
    assert error["code"] == "ImageChecksumMismatch" and publisher.fetches("image") == 2


def test_an_image_without_a_checksum_is_fetched_each_time_and_records_none(cache, publisher):
    publisher.publish("image", content(1))
    image = publisher.image("image", "")
    for _volume in range(2):
        cache.create(image, allow_unverified=True)
    assert publisher.fetches("image") == 2 and not cache.entries()[0].checksums
    cache.create(publisher.image("image", checksum_of(content(1), "sha512")))
    assert publisher.fetches("image") == 3


def test_an_incomplete_entry_is_not_found(cache, publisher):
    publisher.publish("image", content(1))
    image = publisher.image("image", checksum_of(content(1), "sha512"))
    cache.create(image)
    cache.model.lvs[name_of(content(1))]["tags"].append(lvm_tags.INCOMPLETE)
    cache.create(image)
    assert publisher.fetches("image") == 2 and len(cache.entries()) == 1 and cache.entries()[0].is_complete


@pytest.mark.parametrize(
    "change",
    [
        str.upper,
        lambda digest: digest[:-1],
        lambda digest: digest + "0",
        lambda digest: digest + "/x",
        lambda digest: "sha256:" + digest,
    ],
)
def test_a_record_that_is_not_written_like_this_is_none(cache, publisher, change):
    digest = hashlib.sha512(content(1)).hexdigest()
    publisher.publish("image", content(1))
    image = publisher.image("image", "sha512:" + digest)
    cache.create(image)
    lv = cache.model.lvs[name_of(content(1))]
    lv["tags"].remove("bootflow.published=sha512:" + digest)
    lv["tags"].append("bootflow.published=sha512:" + change(digest))
    cache.create(image)
    assert publisher.fetches("image") == 2


@pytest.mark.parametrize("record", ["sha256:https://example.org/SHA256SUMS", "a" * 64, "SHA256:" + "a" * 64, "", "x"])
def test_a_record_is_an_algorithm_and_a_digest(record):
    good = "bootflow.published=sha256:" + "b" * 64
    assert len(published.published_checksums({"bootflow.published=" + record, good})) == 1
    assert published.published_addresses({"bootflow.address=" + record}) <= {"a" * 64}


def test_a_disk_that_was_read_in_another_way_is_another(cache, publisher):
    """A file that ends as a fixed VHD may be raw, too; then the end is a part of the disk."""
    path = publisher.folder / "disk.vhd"
    argv = ["qemu-img", "create", "-q", "-f", "vpc", "-o", "subformat=fixed,force_size=on", str(path), "1M"]
    subprocess.run(argv, check=True)
    data = path.read_bytes()
    raw = publisher.image("disk.vhd", checksum_of(data))
    vhd = publisher.image("disk.vhd", checksum_of(data), disk_format="vhd")
    sizes = []
    for image in (raw, vhd):
        result = cache.create(image)
        sizes.append([entry.virtual_size for entry in cache.entries()])
    (volume,) = result["outcomes"]
    assert publisher.fetches("disk.vhd") == 2 and sizes == [[len(data)]] * 2
    assert "/dev/vg/volume-" + volume in cache.make.written, "copied, as the cache has another disk of this content"
    cache.model.lvs[name_of(data)]["tags"].append("bootflow.driver=vpc")
    cache.create(raw)
    assert publisher.fetches("disk.vhd") == 3, "which of two it is nobody knows"


# ---- an address that does not answer ------------------------------------------------------------------------------------


def test_while_an_address_does_not_answer_its_last_image_is_taken(cache, publisher):
    image = publisher.image("image", "sha512:" + publisher.sums)
    for number in (1, 2):
        publisher.publish("image", content(number))
        cache.create(image)
    (publisher.folder / SUMS).unlink()
    cache.create(image)
    assert publisher.fetches("image") == 2 and cache.names() == [name_of(content(2))]
    others = [
        dict(image, id=new_ids(1)[0]),
        dict(image, checksum="sha384:" + publisher.sums),
        dict(image, url=publisher.url + "other"),
        dict(image, disk_format="vhd"),
    ]
    for other in others:
        wanted = {"id": new_ids(1)[0], "size_gb": 1, "image_id": other["id"]}
        assert cache.run([wanted], [other])["outcomes"][wanted["id"]]["error"]["code"] == "ImageDownloadFailed"
    assert cache.names() == [name_of(content(2))]


def test_an_address_that_was_read_after_the_digest_was_given_is_recorded(cache, publisher):
    publisher.publish("image", content(1))
    image = publisher.image("image", checksum_of(content(1), "sha512"))
    cache.create(image)
    image["checksum"] = "sha512:" + publisher.sums
    cache.create(image)
    (publisher.folder / SUMS).unlink()
    cache.create(image)
    assert publisher.fetches("image") == 1


def test_a_plan_reads_no_address(cache, publisher):
    publisher.publish("image", content(1))
    image = publisher.image("image", "sha512:" + publisher.url + SUMS)
    cache.create(image, check_mode=True)
    assert publisher.asked == [] and cache.names() == []


# ---- entries without records --------------------------------------------------------------------------------------------


@pytest.fixture
def former(cache):
    """An entry without records of the file that it was made from."""
    digest = hashlib.sha256(content(1)).hexdigest()
    tags = ["bootflow", "bootflow.image=" + digest, "bootflow.size=%d" % MIB, "bootflow.used=500", "bootflow.of=i"]
    lv = {"size": 4 * MIB, "attr": "Vri-a-tz--", "tags": tags, "pool": POOL, "origin": ""}
    cache.model.lvs[name_of(content(1))] = lv


@pytest.mark.usefixtures("former")
@pytest.mark.parametrize("by", ["digest", "address"])
def test_an_entry_without_records_is_found_by_the_sha256_of_its_content(cache, publisher, by):
    (publisher.folder / "SHA256SUMS").write_text("%s  image\n" % hashlib.sha256(content(1)).hexdigest())
    checksum = checksum_of(content(1)) if by == "digest" else "sha256:" + publisher.url + "SHA256SUMS"
    cache.create(publisher.image("image", checksum))
    assert publisher.fetches("image") == 0 and cache.make.written == {} and cache.entries()[0].users == 1


@pytest.mark.usefixtures("former")
def test_an_entry_without_records_gets_one_with_the_next_fetch(cache, publisher):
    publisher.publish("image", content(1))
    image = publisher.image("image", checksum_of(content(1), "sha512"))
    for _volume in range(2):
        cache.create(image)
    assert publisher.fetches("image") == 1 and cache.make.written == {}
    assert {"bootflow.driver=raw", "bootflow.published=" + image["checksum"]} <= tags_of(cache, content(1))


# ---- emptying -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_emptying_by_the_published_checksum(cache, publisher, algorithm):
    data = content(1)
    file = gzip.compress(data, mtime=0)
    publisher.publish("image.gz", file)
    image = publisher.image("image.gz", checksum_of(file, algorithm))
    cache.create(image)
    found = image_cache.empty("vg", POOL, [image["checksum"]])
    assert found["removed"] == [name_of(data)] and found["images"][0]["published"] == [image["checksum"]]
