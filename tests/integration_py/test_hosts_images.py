# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""instance_disks on real files with the real qemu-img: good images, and every hostile kind of image that is refused."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import json
import os
import subprocess
import threading

import pytest
import tiny_guest
from host_python import ModuleRunner

IMAGE_ID = "6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e"
GUEST = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a%02x"
GIB = 1024**3
MIB = 1024**2


def qemu_img(*argv):
    done = subprocess.run(["qemu-img"] + [str(a) for a in argv], capture_output=True, text=True, check=True)
    return done.stdout


def info(path, fmt):
    return json.loads(qemu_img("info", "--output=json", "-U", "-f", fmt, path))


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


@pytest.fixture(scope="session")
def module(tmp_path_factory):
    return ModuleRunner(str(tmp_path_factory.mktemp("library") / "lib"))


@pytest.fixture
def host(tmp_path, module):
    return Host(tmp_path, module)


class Host:
    """An instances_path, and one image on its way there."""

    def __init__(self, tmp_path, module):
        self.tmp = tmp_path
        self.path = str(tmp_path / "instances")
        self.module = module

    def image(self, file, disk_format, **more):
        return dict(
            {"id": IMAGE_ID, "url": "file://%s" % file, "checksum": sha256(file), "disk_format": disk_format}, **more
        )

    def disks(self, image, instances=1, size_gb=1, backend="qcow2", check=False, extra=(), **options):
        wanted = [
            {"name": "disk", "kind": "image", "image_id": IMAGE_ID, "size_gb": size_gb, "backend": backend}
        ] + list(extra)
        return self.module(
            "instance_disks",
            check=check,
            instances_path=self.path,
            images=[image] if image else [],
            instances=[{"uuid": GUEST % n, "disks": wanted} for n in range(instances)],
            **options,
        )

    def files(self):
        return sorted(
            os.path.relpath(os.path.join(d, f), self.path) for d, _dirs, files in os.walk(self.path) for f in files
        )


@pytest.fixture
def raw(tmp_path):
    return tiny_guest.raw_image(tmp_path / "guest.raw", "hello", 3 * MIB)


@pytest.fixture
def qcow2(tmp_path, raw):
    qemu_img("convert", "-f", "raw", "-O", "qcow2", raw, tmp_path / "guest.qcow2")
    return str(tmp_path / "guest.qcow2")


@contextlib.contextmanager
def web(folder, handler=None):
    """A web server of ``folder``; gives its URL and the list of the paths asked for."""
    asked = []

    class Handler(handler or http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield "http://127.0.0.1:%d" % server.server_address[1], asked
    finally:
        server.shutdown()
        server.server_close()


# --- what works -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("disk_format", ["raw", "qcow2", "vmdk", "vdi", "vpc", "vhdx"])
def test_every_format_becomes_a_raw_base_and_an_overlay(host, raw, tmp_path, disk_format):
    source = str(tmp_path / "source")
    options = ["-o", "subformat=monolithicSparse"] if disk_format == "vmdk" else []
    options = ["-o", "subformat=dynamic,force_size=on"] if disk_format == "vpc" else options
    qemu_img("convert", "-f", "raw", "-O", disk_format, *options, raw, source)
    answer = host.disks(host.image(source, "vhd" if disk_format == "vpc" else disk_format), instances=2)
    assert answer["changed"] and not answer["missing_images"]
    image = answer["image_outcomes"][IMAGE_ID]
    assert image["error"] is None and image["virtual_size"] >= 3 * MIB
    with open(image["path"], "rb") as base, open(raw, "rb") as wanted:
        assert base.read(3 * MIB) == wanted.read()
    for n in range(2):
        (disk,) = answer["outcomes"][GUEST % n]["disks"]
        found = info(disk["path"], "qcow2")
        assert (found["virtual-size"], disk["virtual_size"]) == (GIB, GIB)
        assert (found["full-backing-filename"], found["backing-filename-format"]) == (image["path"], "raw")
    again = host.disks(host.image(source, "vhd" if disk_format == "vpc" else disk_format), instances=2)
    assert not again["changed"] and again["outcomes"][GUEST % 0]["disks"] == answer["outcomes"][GUEST % 0]["disks"]


def test_raw_backend_copies_and_grows(host, qcow2, raw):
    answer = host.disks(host.image(qcow2, "qcow2"), backend="raw")
    (disk,) = answer["outcomes"][GUEST % 0]["disks"]
    assert os.path.getsize(disk["path"]) == GIB and os.stat(disk["path"]).st_blocks * 512 < 16 * MIB
    with open(disk["path"], "rb") as made, open(raw, "rb") as wanted:
        assert made.read(3 * MIB) == wanted.read()


def test_root_gb_0_is_as_large_as_the_image(host, qcow2):
    answer = host.disks(host.image(qcow2, "qcow2"), size_gb=0)
    assert answer["outcomes"][GUEST % 0]["disks"][0]["virtual_size"] == 3 * MIB


def test_ephemeral_and_swap(host, qcow2):
    extra = [
        {"name": "disk.eph0", "kind": "ephemeral", "size_mb": 20, "backend": "raw"},
        {"name": "disk.eph1", "kind": "ephemeral", "size_mb": 20, "backend": "qcow2", "fs": "vfat"},
        {"name": "disk.swap", "kind": "swap", "size_mb": 2, "backend": "raw"},
    ]
    answer = host.disks(host.image(qcow2, "qcow2"), extra=extra)
    assert answer["outcomes"][GUEST % 0]["error"] is None
    paths = {d["name"]: d["path"] for d in answer["outcomes"][GUEST % 0]["disks"]}
    probe = ["/usr/sbin/blkid", "-p", "-o", "export"]
    eph0 = subprocess.run(probe + [paths["disk.eph0"]], capture_output=True, text=True, check=True).stdout
    assert "TYPE=ext4" in eph0 and "LABEL=ephemeral0" in eph0
    assert (
        "TYPE=swap" in subprocess.run(probe + [paths["disk.swap"]], capture_output=True, text=True, check=True).stdout
    )
    flat = str(host.tmp / "eph1")
    qemu_img("convert", "-f", "qcow2", "-O", "raw", paths["disk.eph1"], flat)
    assert "LABEL=ephemeral1" in subprocess.run(probe + [flat], capture_output=True, text=True, check=True).stdout
    assert not host.disks(host.image(qcow2, "qcow2"), extra=extra)["changed"]


def test_a_second_boot_neither_fetches_nor_hashes(host, qcow2, tmp_path):
    with web(tmp_path) as (url, asked):
        image = host.image(qcow2, "qcow2", url=url + "/guest.qcow2")
        assert host.disks(image)["image_outcomes"][IMAGE_ID]["changed"]
        assert host.disks(image, instances=2)["image_outcomes"][IMAGE_ID]["changed"] is False
        assert asked == ["/guest.qcow2"]


def test_a_base_that_was_written_to_is_fetched_again(host, qcow2):
    image = host.image(qcow2, "qcow2")
    base = host.disks(image)["image_outcomes"][IMAGE_ID]["path"]
    with open(base, "r+b") as file:
        file.write(b"spoilt")
    assert host.disks(image)["image_outcomes"][IMAGE_ID]["changed"]
    with open(base, "rb") as file:
        assert file.read(6) != b"spoilt"


def test_a_new_version_of_an_image_leaves_the_old_base_in_place(host, qcow2, raw):
    first = host.disks(host.image(qcow2, "qcow2"))["image_outcomes"][IMAGE_ID]["path"]
    content = sha256(first)
    tiny_guest.raw_image(raw, "the next version", 3 * MIB)
    second = host.disks(host.image(raw, "raw"), instances=2)
    assert second["image_outcomes"][IMAGE_ID]["path"] != first and sha256(first) == content
    assert second["outcomes"][GUEST % 0]["changed"] is False
    assert info(second["outcomes"][GUEST % 0]["disks"][0]["path"], "qcow2")["full-backing-filename"] == first


def test_processes_at_once_fetch_once(host, qcow2, tmp_path):
    with web(tmp_path) as (url, asked):
        image = host.image(qcow2, "qcow2", url=url + "/guest.qcow2")
        running = [
            host.module.start(
                "instance_disks",
                instances_path=host.path,
                images=[image],
                instances=[
                    {
                        "uuid": GUEST % n,
                        "disks": [{"name": "disk", "kind": "image", "image_id": IMAGE_ID, "size_gb": 1}],
                    }
                ],
            )
            for n in (1, 1, 2, 2)
        ]
        answers = [host.module.result(process) for process in running]
    assert asked == ["/guest.qcow2"]
    assert sum(a["image_outcomes"][IMAGE_ID]["changed"] for a in answers) == 1
    assert [
        sum(a["outcomes"][GUEST % n]["changed"] for a in answers if GUEST % n in a["outcomes"]) for n in (1, 2)
    ] == [
        1,
        1,
    ]
    assert not [f for f in host.files() if "part" in f or f.startswith("locks/")]


def test_uploads(host, qcow2, tmp_path):
    image = host.image(qcow2, "qcow2", url=None)
    first = host.disks(image)
    assert first["missing_images"] == [IMAGE_ID] and not first["changed"]
    assert first["outcomes"][GUEST % 0] == {"changed": False, "disks": [], "pending": [IMAGE_ID], "error": None}
    second = host.disks(image, uploads={IMAGE_ID: qcow2})
    assert second["missing_images"] == [] and second["outcomes"][GUEST % 0]["changed"]
    assert os.path.exists(qcow2)
    assert host.disks(image, instances=2)["missing_images"] == []


def test_check_mode_touches_nothing(host, qcow2):
    answer = host.disks(host.image(qcow2, "qcow2"), check=True)
    assert answer["changed"] and answer["outcomes"][GUEST % 0]["changed"] and not os.path.exists(host.path)
    host.disks(host.image(qcow2, "qcow2"))
    assert not host.disks(host.image(qcow2, "qcow2"), check=True)["changed"]


# --- what is refused -------------------------------------------------------------------------------------------------


def refused(host, image, code, words, **options):
    """The image and the instance are refused with this error, and nothing of either stays."""
    answer = host.disks(image, **options)
    assert not answer.get("failed")
    error = answer["image_outcomes"][IMAGE_ID]["error"]
    assert error and error["code"] == code and words in error["message"], answer
    assert answer["outcomes"][GUEST % 0]["error"]["code"] == code
    assert host.files() == []
    return error


def test_wrong_checksum(host, qcow2):
    error = refused(host, host.image(qcow2, "qcow2", checksum="0" * 64), "ImageChecksumMismatch", "0" * 64)
    assert not error["retryable"] and error["remedy"]


def test_no_checksum(host, qcow2):
    refused(host, host.image(qcow2, "qcow2", checksum=""), "ImageUnacceptable", "no checksum")
    assert (
        host.disks(host.image(qcow2, "qcow2", checksum=""), allow_unverified=True)["outcomes"][GUEST % 0]["error"]
        is None
    )


@pytest.mark.parametrize(
    ("is_format", "claimed"), [("raw", "qcow2"), ("qcow2", "raw"), ("vdi", "qcow2"), ("qcow2", "vmdk"), ("vhdx", "raw")]
)
def test_wrong_declared_format(host, raw, tmp_path, is_format, claimed):
    source = str(tmp_path / "source")
    qemu_img("convert", "-f", "raw", "-O", is_format, raw, source)
    refused(
        host,
        host.image(source, claimed),
        "ImageUnacceptable",
        "the format is %s, the catalogue says %s" % (is_format, claimed),
    )


def test_unknown_format(host, raw):
    refused(host, host.image(raw, "floppy"), "InvalidDiskFormat", "floppy")


@pytest.mark.parametrize("claimed", ["qcow2", "raw"])
def test_backing_file(host, raw, tmp_path, claimed):
    source = str(tmp_path / "source")
    qemu_img("create", "-f", "qcow2", "-b", "/etc/passwd", "-F", "raw", "-u", source, "1M")
    refused(host, host.image(source, claimed), "ImageUnacceptable", "fmt=qcow2 backed by: /etc/passwd")


@pytest.mark.parametrize("claimed", ["qcow2", "raw"])
def test_external_data_file(host, tmp_path, claimed):
    source, secret = str(tmp_path / "source"), tmp_path / "secret"
    qemu_img("create", "-f", "qcow2", "-o", "data_file=%s,data_file_raw=on" % secret, source, "1M")
    secret.write_bytes(b"secret" * 1000)
    refused(host, host.image(source, claimed), "ImageUnacceptable", "data file")


@pytest.mark.parametrize("claimed", ["vmdk", "raw"])
def test_vmdk_flat_descriptor(host, tmp_path, claimed):
    source = tmp_path / "source"
    lines = ["# Disk DescriptorFile", "version=1", "CID=fffffffe", "parentCID=ffffffff", 'createType="monolithicFlat"']
    source.write_text("\n".join(lines + ['RW 2048 FLAT "/etc/passwd" 0', ""]))
    refused(host, host.image(source, claimed), "ImageUnacceptable", "VMDK descriptor")


def test_vmdk_flat_by_qemu(host, tmp_path, raw):
    source = str(tmp_path / "flat.vmdk")
    qemu_img("convert", "-f", "raw", "-O", "vmdk", "-o", "subformat=monolithicFlat", raw, source)
    refused(host, host.image(source, "vmdk"), "ImageUnacceptable", "VMDK descriptor")


def test_vmdk_sparse_header_with_a_flat_descriptor(host, tmp_path, raw):
    source = str(tmp_path / "sparse.vmdk")
    qemu_img("convert", "-f", "raw", "-O", "vmdk", "-o", "subformat=monolithicSparse", raw, source)
    with open(source, "r+b") as file:
        data = file.read(64 * 1024)
        begin = data.index(b"# Disk DescriptorFile")
        text = data[begin:].split(b"\0", 1)[0]
        spoilt = text.replace(b"monolithicSparse", b"monolithicFlat").replace(b"SPARSE", b"FLAT")
        file.seek(begin)
        file.write(spoilt.ljust(len(text), b"\0"))
    refused(host, host.image(source, "vmdk"), "ImageUnacceptable", "create-type specified: monolithicFlat")


def test_larger_than_the_flavor(host, tmp_path):
    source = str(tmp_path / "source")
    qemu_img("create", "-f", "qcow2", source, "3G")
    error = refused(host, host.image(source, "qcow2"), "FlavorDiskSmallerThanImage", "image is %d bytes" % (3 * GIB))
    assert not error["retryable"]


def test_larger_than_one_flavor_of_two(host, tmp_path):
    source = str(tmp_path / "source")
    qemu_img("create", "-f", "qcow2", source, "3G")
    disk = {"name": "disk", "kind": "image", "image_id": IMAGE_ID}
    answer = host.module(
        "instance_disks",
        instances_path=host.path,
        images=[host.image(source, "qcow2")],
        instances=[{"uuid": GUEST % n, "disks": [dict(disk, size_gb=n)]} for n in (1, 3)],
    )
    assert answer["outcomes"][GUEST % 1]["error"]["code"] == "FlavorDiskSmallerThanImage"
    assert answer["outcomes"][GUEST % 3]["error"] is None
    assert not [f for f in host.files() if f.startswith(GUEST % 1)]


def test_truncated_file(host, qcow2):
    os.truncate(qcow2, 60)
    refused(host, host.image(qcow2, "qcow2"), "ImageUnacceptable", "cut off")
    os.truncate(qcow2, 0)
    refused(host, host.image(qcow2, "qcow2"), "ImageUnacceptable", "empty")


def test_qemu_img_cannot_read_it(host, qcow2):
    with open(qcow2, "r+b") as file:
        file.seek(36)
        file.write(b"\xff" * 12)  # L1 size and offset
    refused(host, host.image(qcow2, "qcow2"), "ImageUnacceptable", "'qemu-img info' parsing failed.")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/x", "file:///nonexistent/x", "file:///dev/zero", "ftp://127.0.0.1/x", "file:///"]
)
def test_unreachable_url(host, qcow2, url):
    error = refused(host, host.image(qcow2, "qcow2", url=url), "ImageDownloadFailed", url.rstrip("/"))
    assert error["status"] == 503


def test_not_found_on_the_server(host, qcow2, tmp_path):
    with web(tmp_path) as (url, _asked):
        refused(
            host, host.image(qcow2, "qcow2", url=url + "/nothing?signature=s3cret"), "ImageDownloadFailed", "HTTP 404"
        )
        answer = host.disks(
            host.image(qcow2, "qcow2", url=url.replace("//", "//user:pa55@") + "/nothing?signature=s3cret")
        )
        words = json.dumps([answer["outcomes"], answer["image_outcomes"]])
        assert "s3cret" not in words and "pa55" not in words


def test_transfer_cut_off(host, qcow2, tmp_path):
    class Short(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            with open(qcow2, "rb") as file:
                data = file.read()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:1000])

    with web(tmp_path, Short) as (url, _asked):
        refused(host, host.image(qcow2, "qcow2", url=url + "/x"), "ImageDownloadFailed", "cut off after 1000 of")


def test_a_redirect_to_a_file_of_the_host_is_not_followed(host, qcow2, tmp_path):
    class Elsewhere(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", "file:///etc/passwd")
            self.end_headers()

    with web(tmp_path, Elsewhere) as (url, _asked):
        refused(host, host.image(qcow2, "qcow2", url=url + "/x"), "ImageDownloadFailed", "302")


@pytest.mark.parametrize("step", ["fetch", "disk"])
def test_full_disk(tmp_path, module, step):
    small = tmp_path / "small"
    small.mkdir()
    source = str(tmp_path / "noise")
    with open(source, "wb") as file:
        file.write(os.urandom(5 * MIB))
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=%dM" % (4 if step == "fetch" else 8), "small", str(small)], check=True
    )
    try:
        host = Host(tmp_path, module)
        host.path = str(small / "instances")
        answer = host.disks(host.image(source, "raw"), backend="raw")
        error = answer["outcomes"][GUEST % 0]["error"]
        assert (error["code"], error["status"], error["retryable"]) == ("DiskFull", 503, True)
        assert str(small) in error["message"]
        assert not [f for f in host.files() if "part" in f or f.endswith("/disk")]
        assert bool(answer["image_outcomes"][IMAGE_ID]["error"]) == (step == "fetch")
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.parametrize(
    "uuid", ["../../etc", "", "x", "2f4c1c0e6a0f4d8e9f0b0c6f3f3b2a00", "{2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a00}"]
)
def test_a_uuid_that_is_none(host, uuid):
    answer = host.module("instance_disks", instances_path=host.path, instances=[{"uuid": uuid, "disks": []}])
    assert answer["outcomes"][uuid]["error"]["code"] == "InvalidInput" and not os.path.exists(host.path)


@pytest.mark.parametrize("name", ["../disk", "disk/../../x", "disk.info", "Disk", "disk.", "", "disk.part/"])
def test_a_disk_name_that_is_none(host, name):
    disks = [{"name": name, "kind": "swap", "size_mb": 1}]
    answer = host.module("instance_disks", instances_path=host.path, instances=[{"uuid": GUEST % 0, "disks": disks}])
    assert answer["outcomes"][GUEST % 0]["error"]["code"] == "InvalidInput" and not os.path.exists(host.path)


def test_a_guests_disk_is_never_looked_into(host, qcow2):
    """A guest that writes a qcow2 header into its raw disk gains nothing: disk.info says what it is."""
    image = host.image(qcow2, "qcow2")
    (disk,) = host.disks(image, backend="raw")["outcomes"][GUEST % 0]["disks"]
    evil = str(host.tmp / "evil")
    qemu_img("create", "-f", "qcow2", "-b", "/etc/passwd", "-F", "raw", "-u", evil, "9G")
    with open(disk["path"], "r+b") as file, open(evil, "rb") as header:
        file.write(header.read())
    answer = host.disks(image, backend="raw")
    assert not answer["changed"] and answer["outcomes"][GUEST % 0]["disks"] == [disk]


def test_a_file_in_the_way(host, qcow2):
    os.makedirs(os.path.join(host.path, GUEST % 0))
    path = os.path.join(host.path, GUEST % 0, "disk")
    with open(path, "w") as file:
        file.write("mine")
    answer = host.disks(host.image(qcow2, "qcow2"), instances=2)
    assert answer["outcomes"][GUEST % 0]["error"]["code"] == "InvalidDiskInfo"
    assert answer["outcomes"][GUEST % 1]["error"] is None
    with open(path) as file:
        assert file.read() == "mine"


def test_what_a_killed_run_left_is_taken_up(host, qcow2):
    folder = os.path.join(host.path, GUEST % 0)
    os.makedirs(folder)
    os.makedirs(os.path.join(host.path, "_base"))
    for rest in (os.path.join(folder, "disk.part"), os.path.join(host.path, "_base", IMAGE_ID + ".part")):
        with open(rest, "w") as file:
            file.write("half")
    answer = host.disks(host.image(qcow2, "qcow2"))
    assert answer["outcomes"][GUEST % 0]["error"] is None and not [f for f in host.files() if "part" in f]
