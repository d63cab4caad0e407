# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an image is known by: its checksum, or its source and the version of it. Compressed files, and files that are no images."""

from __future__ import annotations

import bz2
import functools
import gzip
import hashlib
import http.server
import lzma
import os
import shutil
import subprocess
import threading

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    ImageChecksumMismatch,
    ImageUnacceptable,
    MissingLibrary,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images import fetch, images

MIB = 1024**2
OLD, NEW = b"\xeb" + b"o" * 4095, b"\xeb" + b"n" * 4095


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "instances").mkdir()
    return tmp_path


def source(**more):
    return images.ImageSource(**{"id": "i", "disk_format": "raw", "allow_unverified": True, **more})


def content(folder, image):
    return open(images.ensure_image(image, str(folder / "instances")).path, "rb").read()


def replace(path, data):
    path.write_bytes(data)
    os.utime(path, (1_000_000_000, 1_000_000_000 + len(data)))


@pytest.mark.parametrize("of", ["path", "url"])
def test_a_file_of_the_host_that_was_replaced_is_another_image(folder, of):
    file = folder / "image.raw"
    image = source(**{of: str(file) if of == "path" else file.as_uri()})
    replace(file, OLD)
    assert content(folder, image) == OLD and images.cached_image(image, str(folder / "instances"))
    os.replace(shutil.copy(file, folder / "copy"), file)  # the same content at another time
    file.write_bytes(NEW)
    assert images.cached_image(image, str(folder / "instances")) is None
    assert content(folder, image) == NEW


def test_a_file_of_the_controller_that_was_replaced_is_another_image(folder):
    """The copy of a run has any name and time; its version is that of the controller's file."""
    for number, data in enumerate((OLD, NEW)):
        upload = folder / ("upload-%d" % number)
        upload.write_bytes(data)
        told = source(version='["/srv/image.raw", 4096, %d]' % number)
        assert images.cached_image(told, str(folder / "instances")) is None
        assert content(folder, source(version=told.version, path=str(upload))) == data
        upload.unlink()
        assert images.cached_image(told, str(folder / "instances"))


class Server(http.server.SimpleHTTPRequestHandler):
    tag = ""

    def log_message(self, *_words):
        pass

    def end_headers(self):
        if Server.tag:
            self.send_header("ETag", Server.tag)
        super().end_headers()

    def send_head(self):
        if self.path == "/part":
            self.send_response(206)
            self.send_header("Content-Length", "4")
            self.end_headers()
            return open(os.path.join(self.directory, "four"), "rb")
        return super().send_head()


@pytest.fixture
def server(folder):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=str(folder))) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield "http://127.0.0.1:%d" % found.server_port
        found.shutdown()


def test_a_server_that_tells_of_another_version_is_asked_for_it(folder, server):
    file, image = folder / "image.raw", source(url=server + "/image.raw")
    for data, tag in ((OLD, '"1"'), (NEW, '"2"')):
        replace(file, data)
        Server.tag = tag
        assert content(folder, image) == data
        assert images.cached_image(image, str(folder / "instances"))
    gone = source(url=image.url.replace("127.0.0.1", "127.0.0.2"))
    assert images.cached_image(gone, str(folder / "instances")) is None  # another source
    file.unlink()
    assert images.cached_image(image, str(folder / "instances"))  # no answer is no other version


def test_a_part_of_a_file_is_no_image(folder, server):
    (folder / "four").write_bytes(b"part")
    with pytest.raises(Exception, match="HTTP 206"):
        content(folder, source(url=server + "/part"))


@pytest.mark.parametrize("algorithm", ["sha256", "sha384", "sha512"])
def test_each_algorithm_is_checked_and_names_the_cached_image(folder, algorithm):
    file = folder / "image.raw"
    file.write_bytes(OLD)
    digest = hashlib.new(algorithm, OLD).hexdigest()
    image = source(path=str(file), checksum="%s:%s" % (algorithm, digest), allow_unverified=False)
    assert content(folder, image) == OLD
    elsewhere = source(checksum=image.checksum, allow_unverified=False)
    assert images.cached_image(elsewhere, str(folder / "instances"))
    other = "%s:%s" % (algorithm, hashlib.new(algorithm, NEW).hexdigest())
    assert images.cached_image(source(checksum=other), str(folder / "instances")) is None
    with pytest.raises(ImageChecksumMismatch):
        content(folder, source(path=str(file), checksum=other))


def test_the_publishers_file_tells_the_checksum_and_a_new_release(folder, server):
    file, sums = folder / "image.raw", folder / "SHA512SUMS"
    image = source(url=server + "/image.raw", checksum="sha512:%s/SHA512SUMS" % server, allow_unverified=False)
    for data in (OLD, NEW):
        file.write_bytes(data)
        sums.write_text("%s  other\n%s  image.raw\n" % ("0" * 128, hashlib.sha512(data).hexdigest()))
        assert content(folder, image) == data
        assert images.cached_image(image, str(folder / "instances"))
    sums.unlink()
    assert content(folder, image) == NEW  # known from the cache
    sums.write_text("%s  other\n" % ("0" * 128))
    shutil.rmtree(folder / "instances" / "_base")
    with pytest.raises(ImageUnacceptable, match="has no sha512 of image.raw"):
        content(folder, image)


def compressed(kind, data):
    if kind == "zst":
        return subprocess.run(["zstd", "-c"], input=data, capture_output=True, check=True).stdout
    return {"gz": functools.partial(gzip.compress, mtime=0), "xz": lzma.compress, "bz2": bz2.compress}[kind](data)


@pytest.mark.parametrize("kind", ["gz", "xz", "bz2"])
def test_compressed_images_are_unpacked(folder, kind):
    data = OLD + bytes(5 * MIB) + NEW
    file = folder / ("image." + kind)
    file.write_bytes(compressed(kind, data[: 3 * MIB]) + compressed(kind, data[3 * MIB :]))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()  # of the file as it is published
    image = source(path=str(file), checksum=digest)
    assert content(folder, image) == data
    found = images.cached_image(image, str(folder / "instances"))
    assert found.sha256 == digest and os.stat(found.path).st_blocks * 512 < 3 * MIB
    assert sorted(os.listdir(folder / "instances" / "_base")) == sorted([os.path.basename(found.path), "i.json"])


def test_zstd_is_unpacked_by_its_program_or_refused_in_words(folder):
    file = folder / "image.zst"
    if shutil.which("zstd"):
        file.write_bytes(compressed("zst", OLD))
        assert content(folder, source(path=str(file))) == OLD
    else:
        file.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
        with pytest.raises(MissingLibrary, match="zstd"):
            content(folder, source(path=str(file)))


@pytest.mark.parametrize("kind", ["gz", "xz", "bz2"])
def test_what_is_in_a_compressed_file_has_the_limits_of_a_fetch(folder, kind):
    file = folder / ("image." + kind)
    file.write_bytes(compressed(kind, bytes(4 * MIB)))
    limits = fetch.FetchLimits(max_bytes=2 * MIB, declared=file.stat().st_size)
    with pytest.raises(ImageUnacceptable, match="content of the compressed file is larger than"):
        content(folder, source(path=str(file), limits=limits))
    file.write_bytes(compressed(kind, os.urandom(MIB))[:-100])
    with pytest.raises(ImageUnacceptable, match="cannot be unpacked"):
        content(folder, source(path=str(file)))
    assert os.listdir(folder / "instances" / "_base") == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>", "an HTML page"),
        (b"\n\n  <HTML lang=en>", "an HTML page"),
        (b"<?xml version='1.0'?>\n<Error><Code>AccessDenied</Code></Error>", "an XML document"),
        (b"<Error><Code>AccessDenied</Code></Error>", "an XML document"),
        (b'{"message": "Not Found"}', "a text"),
        (b"\x04\x22\x4d\x18" + bytes(100), "a file compressed by lz4"),
        (gzip.compress(b"070701" + bytes(100), mtime=0), "a cpio archive"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "a text"),
        (b"PK\x03\x04" + bytes(100), "a zip archive"),
        (bytes(257) + b"ustar" + bytes(300), "a tar archive"),
        (gzip.compress(bytes(257) + b"ustar" + bytes(300), mtime=0), "a tar archive"),
        (gzip.compress(gzip.compress(bytes(100), mtime=0), mtime=0), "a file compressed by gzip"),
    ],
)
@pytest.mark.parametrize("disk_format", ["raw", "qcow2"])
def test_what_is_no_image_is_called_by_its_name(folder, data, words, disk_format):
    (folder / "file").write_bytes(data)
    with pytest.raises(ImageUnacceptable, match=words):
        content(folder, source(path=str(folder / "file"), disk_format=disk_format))
