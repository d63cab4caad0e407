# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The comparison that follows the writer: real qemu-img on files, and writers that go wrong."""

from __future__ import annotations

import os
import subprocess
import threading
import time

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import ImageCopyFailure
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes import copy, follow
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes.follow import BEHIND, PIECE, Follower
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes.verify import Extent

MIB = 1024**2
SIZE = 320 * MIB
#: Except where qemu-img is followed, the image and the distance of the reader are this much smaller.
SMALLER = 8


def image_in(folder, size):
    """(qcow2, raw): half of it is data, in ten pieces with holes between them."""
    raw, qcow2 = folder / "raw", folder / "image.qcow2"
    with open(raw, "wb") as file:
        for start in range(0, size, size // 10):
            file.seek(start)
            file.write(os.urandom(1024) * (size // 20 // 1024))  # can be compressed
        file.truncate(size)
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(qcow2)], check=True)
    return qcow2, raw


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    return image_in(tmp_path_factory.mktemp("follow"), SIZE)


@pytest.fixture(scope="module")
def small_image(tmp_path_factory):
    return image_in(tmp_path_factory.mktemp("follow"), SIZE // SMALLER)


@pytest.fixture
def small(monkeypatch):
    for name in ("PIECE", "BEHIND", "WORTHWHILE"):
        monkeypatch.setattr(follow, name, getattr(follow, name) // SMALLER)


def device_for(image, tmp_path):
    """As long as the disk, with other content."""
    path = tmp_path / "device"
    with open(path, "wb") as file:
        file.write(b"\xaa" * MIB)
        file.truncate(image[1].stat().st_size)
    return path


def write(source, driver, device, steps=None, sha256=""):
    steps = [] if steps is None else steps
    size = device.stat().st_size
    follow.convert_and_verify(
        str(source), driver, sha256, str(device), size, lambda step, percent: steps.append((step, percent))
    )
    return steps


def same(one, other):
    return subprocess.run(["cmp", "-s", str(one), str(other)], check=False).returncode == 0


def test_data_is_counted_by_pieces():
    found = [
        Extent(0, PIECE // 2, 0),
        Extent(PIECE // 2, PIECE, None),
        Extent(PIECE + PIECE // 2, 2 * PIECE, 65536),
        Extent(3 * PIECE + PIECE // 2, PIECE, 0),
    ]
    size = 4 * PIECE
    assert list(follow.data_by_piece(found, size)) == [
        PIECE // 2,
        PIECE,
        2 * PIECE,
        3 * PIECE,
    ]
    assert list(follow.data_by_piece([Extent(0, PIECE + 1, 0)], PIECE + 1)) == [PIECE, PIECE + 1]


def test_a_reader_stays_behind_the_writer():
    """In bytes of data, whatever holes there are; and gets to the end when the writer says so, not before."""
    follower = Follower([0, 0, 4 * BEHIND, 4 * BEHIND])
    reached = []

    def read():
        for number in range(1, 5):
            follower.until(number * PIECE)
            reached.append(number)

    reader = threading.Thread(target=read, daemon=True)
    follower.percent(24.0)
    reader.start()
    reader.join(0.2)
    assert reached == []
    follower.percent(25.0)
    end = time.monotonic() + 30
    while len(reached) < 2:
        assert time.monotonic() < end
        reader.join(0.02)
    follower.percent(100.0)
    reader.join(0.2)
    assert reached == [1, 2] and reader.is_alive()
    follower.finish()
    reader.join(10)
    assert reached == [1, 2, 3, 4]


def test_who_follows_an_abandoned_writer_is_told():
    follower = Follower([BEHIND])
    threading.Timer(0.1, follower.abandon).start()
    with pytest.raises(follow.Abandoned):
        follower.until(1)


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["qcow2", "raw"])
def test_an_image_is_written_and_compared_at_once(image, tmp_path, monkeypatch, driver):
    qcow2, raw = image
    device = device_for(image, tmp_path)
    source = {"qcow2": qcow2, "raw": raw}[driver]
    sha256 = subprocess.run(["sha256sum", str(raw)], capture_output=True, text=True, check=True).stdout.split()[0]
    events = []
    range_or_difference = {"qcow2": "_is_compared", "raw": "range_sha256"}[driver]
    compare = getattr(copy, range_or_difference)

    def compared(*args):
        events.append("compare")
        result = compare(*args)
        events.append("compared")
        return result

    convert = copy.convert

    def converted(*args):
        convert(*args)
        events.append("converted")

    monkeypatch.setattr(copy, range_or_difference, compared)
    monkeypatch.setattr(copy, "convert", converted)
    steps = write(source, driver, device, sha256=sha256)
    assert same(raw, device)
    assert sorted(events) == ["compare", "compared", "converted"] and events.index("compare") < events.index(
        "converted"
    )
    assert steps[-1] == ("verifying", 0.0) and steps[-2] == ("converting", 100.0)


def writer(raw, wrong_at=None, stop_at=None):
    """Writes as qemu-img does, but for one byte, or not to the end."""
    size = raw.stat().st_size
    step = size // 320

    def convert(_source, _driver, target, on_percent, *_more):
        with open(raw, "rb") as source, open(target, "r+b") as device:
            for number in range(320):
                start = number * step
                if stop_at is not None and start >= stop_at:
                    raise ImageCopyFailure(reason="device error")
                data = bytearray(source.read(step))
                if wrong_at is not None and start <= wrong_at < start + step:
                    data[wrong_at - start] ^= 1
                device.write(data)
                device.flush()
                data_done = number // 32 * 16 + min(number % 32, 16)
                on_percent(100.0 * data_done / 160)

    return convert


@pytest.mark.parametrize("at", [0, 5 * MIB, 20 * MIB, SIZE - 1])
def test_what_was_written_wrongly_is_found(small, small_image, tmp_path, monkeypatch, at):
    qcow2, raw = small_image
    monkeypatch.setattr(copy, "convert", writer(raw, wrong_at=at // SMALLER))
    with pytest.raises(ImageCopyFailure, match="differs from the image"):
        write(qcow2, "qcow2", device_for(small_image, tmp_path))


def test_a_writer_that_fails_ends_the_comparison(small, small_image, tmp_path, monkeypatch):
    qcow2, raw = small_image
    monkeypatch.setattr(copy, "convert", writer(raw, stop_at=200 * MIB // SMALLER))
    with pytest.raises(ImageCopyFailure, match="device error"):
        write(qcow2, "qcow2", device_for(small_image, tmp_path))


def test_what_only_qemu_can_read_is_compared_when_all_is_written(small, small_image, tmp_path, monkeypatch):
    """Compressed clusters: the map does not tell where the data is. qemu-img compare wants a device, which this is not."""
    _qcow2, raw = small_image
    device = device_for(small_image, tmp_path)
    packed = tmp_path / "packed.qcow2"
    subprocess.run(["qemu-img", "convert", "-c", "-f", "raw", "-O", "qcow2", str(raw), str(packed)], check=True)
    assert packed.stat().st_size < raw.stat().st_size // 10
    called = []
    run = copy.run_tied

    def run_tied(argv, *args, **options):
        called.append((argv[1], same(raw, device)))
        return "" if argv[1] == "compare" else run(argv, *args, **options)

    monkeypatch.setattr(copy, "run_tied", run_tied)
    write(packed, "qcow2", device)
    assert called == [("convert", False), ("compare", True)]
