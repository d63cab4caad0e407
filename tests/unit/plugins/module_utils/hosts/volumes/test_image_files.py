# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Image files that are read where they lie, and devices that are compared with them. Files stand for devices."""

from __future__ import annotations

import fcntl
import hashlib
import json
import mmap
import os
import subprocess
import sys
import threading
import time

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    ImageChecksumMismatch,
    ImageCopyFailure,
    ImageUnacceptable,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images import image_files
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.images import ImageSource
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes import copy, process, verify, volume_images

MIB = 1024**2
LOCAL = image_files._LOCAL
DATA = b"an image\0"
WRITE = "import os, sys; os.close(os.open(sys.argv[1], os.O_WRONLY))"


@pytest.fixture(autouse=True)
def folders(monkeypatch, tmp_path):
    monkeypatch.setattr(image_files, "REMEMBERED", str(tmp_path / "remembered"))
    monkeypatch.setattr(process, "PROGRESS", str(tmp_path / "progress"))
    # Wherever these tests run: nobody changes their files behind the kernel.
    fd = os.open(tmp_path, os.O_RDONLY)
    here = image_files._file_system(fd)
    os.close(fd)
    if here == "overlay":
        monkeypatch.setattr(image_files, "_LOCAL", (*image_files._LOCAL, here))


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "image"
    path.write_bytes(DATA)
    path.chmod(0o644)
    return path


def source_of(image, data=DATA, **changes):
    fields = {"id": "i", "disk_format": "raw", "path": str(image), "checksum": hashlib.sha256(data).hexdigest()}
    return ImageSource(**dict(fields, **changes))


@pytest.fixture
def settle(monkeypatch):
    """settle(path): wait until it counts as settled, which it does after a fifth of a second here."""
    monkeypatch.setattr(image_files, "_SETTLED", 200_000_000)

    def settle(path):
        time.sleep(max(0.0, os.stat(path).st_ctime + 0.25 - time.time()))

    return settle


# ---- in place -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["path", "url"])
def test_a_file_that_nobody_can_change_is_not_copied_and_never_removed(tmp_path, image, by):
    where = {"path": str(image)} if by == "path" else {"path": "", "url": "file://%s" % image}
    with volume_images.TemporaryImages(str(tmp_path / "temp")) as temporary:
        taken = temporary.take(source_of(image, **where))
        assert os.path.samefile(taken.path, image) and taken.virtual_size == len(DATA)
        assert not (tmp_path / "temp").exists()
        temporary.drop(taken)
        assert image.read_bytes() == DATA and not os.path.exists(taken.path)
    assert image.read_bytes() == DATA


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_may_write_is_copied(tmp_path, image, mode):
    image.chmod(mode)
    with volume_images.TemporaryImages(str(tmp_path / "temp")) as temporary:
        taken = temporary.take(source_of(image))
        assert taken.path.startswith(str(tmp_path / "temp")) and not os.path.samefile(taken.path, image)


def test_a_file_of_another_user_is_copied(image, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(image).st_uid + 1)
    assert image_files.steady_file(str(image)) is None


def test_a_file_of_another_machine_or_program_is_copied(image, monkeypatch):
    assert not {"overlay", "zfs", "nfs4", "fuse"} & set(LOCAL)
    assert image_files.steady_file(str(image)) is not None
    monkeypatch.setattr(image_files, "_LOCAL", LOCAL)
    for name in ("nfs4", "fuse.sshfs", "overlay", "zfs", ""):
        monkeypatch.setattr(image_files, "_file_system", lambda _fd, name=name: name)
        assert image_files.steady_file(str(image)) is None


def test_the_type_of_a_file_system(image):
    with open("/proc/self/stat", encoding="ascii") as file:
        assert image_files._file_system(file.fileno()) == "proc"
    words = subprocess.run(["stat", "-f", "-c", "%T", str(image)], capture_output=True, text=True, check=True).stdout
    with open(image, encoding="ascii") as file:
        assert image_files._file_system(file.fileno())[:3] == words[:3]


def test_a_file_that_is_being_written_is_copied(tmp_path, image):
    with open(image, "r+b"):
        with volume_images.TemporaryImages(str(tmp_path / "temp")) as temporary:
            assert temporary.take(source_of(image)).path.startswith(str(tmp_path / "temp"))


def test_a_file_that_somebody_has_mapped_to_write_is_copied(image):
    with open(image, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    with mapped:
        assert image_files.steady_file(str(image)) is None
    file = image_files.steady_file(str(image))
    assert file is not None
    file.close()


@pytest.mark.parametrize("change", ["truncate", "link"])
def test_who_changes_it_by_another_way_is_noticed(tmp_path, image, change):
    """The size by its name, which opens nothing, and the same file under another name."""
    other = tmp_path / "other"
    os.link(image, other)
    code = "import os, sys; os.truncate(sys.argv[1], 1)" if change == "truncate" else WRITE
    with volume_images.TemporaryImages(str(tmp_path / "temp")) as temporary:
        taken = temporary.take(source_of(image))
        with subprocess.Popen([sys.executable, "-c", code, str(image if change == "truncate" else other)]) as writer:
            deadline = time.monotonic() + 20
            while taken.steady.is_steady():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            with open(taken.path, "rb") as file:
                assert file.read() == DATA, "it waits"
            with pytest.raises(ImageUnacceptable, match="file .* was opened for writing"):
                taken.check_steady()
            temporary.drop(taken)
            assert writer.wait(timeout=30) == 0


@pytest.mark.parametrize("name", ["missing", "folder", "fifo", "relative"])
def test_what_is_no_file_is_left_to_the_fetch(tmp_path, name):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    path = "image" if name == "relative" else str(tmp_path / name)
    assert image_files.steady_file(path) is None


def test_another_file_under_the_same_name_is_not_read(tmp_path, image):
    with volume_images.TemporaryImages(str(tmp_path / "temp")) as temporary:
        taken = temporary.take(source_of(image))
        other = tmp_path / "other"
        other.write_bytes(b"a trap")
        os.rename(other, image)
        with open(taken.path, "rb") as file:
            assert file.read() == DATA
        taken.check_steady()


def test_who_opens_it_to_write_is_noticed_and_waits(tmp_path, image):
    with volume_images.TemporaryImages(str(tmp_path / "temp")) as temporary:
        taken = temporary.take(source_of(image))
        taken.check_steady()
        writer = subprocess.Popen([sys.executable, "-c", WRITE, str(image)])
        deadline = time.monotonic() + 20
        while taken.steady.is_steady():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert writer.poll() is None
        with pytest.raises(ImageUnacceptable, match="file .* was opened for writing"):
            taken.check_steady()
        # This process got the kernel's signal, and lives; a run that ends lets the writer go on.
        temporary.drop(taken)
        assert writer.wait(timeout=30) == 0


def test_a_reader_changes_nothing(tmp_path, image):
    with volume_images.TemporaryImages(str(tmp_path / "temp")) as one:
        with volume_images.TemporaryImages(str(tmp_path / "temp")) as two:
            taken, other = one.take(source_of(image)), two.take(source_of(image))
            assert image.read_bytes() == DATA
            taken.check_steady()
            other.check_steady()


def test_one_of_the_wrong_sum_or_too_large_is_refused(tmp_path, image, settle):
    with volume_images.TemporaryImages(str(tmp_path / "temp")) as temporary:
        for data in (b"other", b"another"):
            with pytest.raises(ImageChecksumMismatch):
                temporary.take(source_of(image, data))
            settle(image)  # what is remembered is compared as well
        with pytest.raises(ImageUnacceptable, match="largest volume"):
            temporary.take(source_of(image), limit=len(DATA) - 1)


# ---- what is remembered ----------------------------------------------------------------------------------------------------


def test_a_sum_is_remembered_while_the_file_is_the_same(image, settle):
    settle(image)
    file = image_files.steady_file(str(image))
    assert file.remembered_sha256() == ""
    assert file.hash(lambda done, total: None) == hashlib.sha256(DATA).hexdigest() == file.remembered_sha256()
    file.close()
    # The same size, and the time of the change put back.
    before = os.stat(image)
    image.write_bytes(DATA[::-1])
    os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert os.stat(image).st_mtime_ns == before.st_mtime_ns and os.stat(image).st_size == before.st_size
    file = image_files.steady_file(str(image))
    assert file.remembered_sha256() == ""
    file.close()


def test_a_sum_of_a_file_that_just_changed_is_not_remembered(image):
    os.chmod(image, 0o600)
    file = image_files.steady_file(str(image))
    file.hash(lambda done, total: None)
    assert file.remembered_sha256() == ""
    file.close()


def test_rubbish_is_not_remembered(image, tmp_path, settle):
    settle(image)
    file = image_files.steady_file(str(image))
    file.hash(lambda done, total: None)
    (memory,) = (tmp_path / "remembered").iterdir()
    for text in ("", "[]", "{}", json.dumps({"sha256": "0" * 64})):
        memory.write_text(text)
        assert file.remembered_sha256() == ""
    file.close()


# ---- what a device holds -----------------------------------------------------------------------------------------------


SIZE = 40 * MIB


def make_qcow2(tmp_path, *options):
    """(qcow2, device): pieces of data with holes between them, and a file that holds the same."""
    raw, qcow2 = tmp_path / "device", tmp_path / "q.qcow2"
    with open(raw, "wb") as file:
        for at in (0, 65536 * 3, 7 * MIB, 8 * MIB + 4096, 30 * MIB, SIZE - 4096):
            file.seek(at)
            file.write(os.urandom(4096 if at > 30 * MIB else 200_000))
        file.truncate(SIZE)
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", *options, str(raw), str(qcow2)], check=True)
    return qcow2, raw


def difference(qcow2, device, direct=True):
    argv = ["qemu-img", "map", "-f", "qcow2", "--output=json", str(qcow2)]
    with process.tied_lines(argv) as lines:
        found = verify.extents(lines, SIZE)
        return verify.first_difference(str(qcow2), found, str(device), SIZE, direct)


@pytest.mark.parametrize("options", [(), ("-o", "cluster_size=512"), ("-o", "cluster_size=2M"), ("-S", "0")])
@pytest.mark.parametrize("direct", [True, False])
def test_a_device_that_holds_the_image_is_the_image(tmp_path, options, direct):
    qcow2, device = make_qcow2(tmp_path, *options)
    assert difference(qcow2, device, direct) is None
    copy.verify(str(qcow2), "qcow2", "", str(device), SIZE, direct)


@pytest.mark.parametrize(
    "at", [0, 5, 3 * 65536, 4 * MIB - 1, 4 * MIB, 8 * MIB + 4096, 20 * MIB, 30 * MIB + 199_999, SIZE - 1]
)
def test_one_wrong_byte_is_found(tmp_path, at):
    """In data, in holes, at the borders of what is read at once, at the very end."""
    qcow2, device = make_qcow2(tmp_path)
    with open(device, "r+b") as file:
        file.seek(at)
        wrong = bytes([file.read(1)[0] ^ 0x10])
        file.seek(at)
        file.write(wrong)
    found = difference(qcow2, device)
    assert found is not None and found <= at < found + verify.CHUNK
    with pytest.raises(ImageCopyFailure, match="differs from the image"):
        copy.verify(str(qcow2), "qcow2", "", str(device), SIZE, True)


def test_a_device_that_ends_too_early_is_not_the_image(tmp_path):
    qcow2, device = make_qcow2(tmp_path)
    os.truncate(device, SIZE - 4096)
    assert difference(qcow2, device) is not None


def test_compressed_clusters_are_left_to_qemu(tmp_path):
    qcow2, device = make_qcow2(tmp_path, "-c")
    with open(device, "r+b") as file:
        file.write(b"text that compresses " * 40_000)
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", str(device), str(qcow2)], check=True)
    with pytest.raises(verify.Unplain):
        difference(qcow2, device)
    argv = []
    plain = copy.run_tied
    try:
        copy.run_tied = lambda words, **options: argv.append(words[1]) or words
        copy.verify(str(qcow2), "qcow2", "", str(device), SIZE)
    finally:
        copy.run_tied = plain
    assert argv == ["compare"]


ZERO = b'{ "start": 0, "length": 8192, "depth": 0, "present": false, "zero": true, "data": false}'


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [b"rubbish"],
        [b"[1,"],
        [ZERO],  # ends before the disk
        [ZERO, ZERO],  # not one after the other
        [ZERO.replace(b'"depth": 0', b'"depth": 1')],
        [ZERO.replace(b"true", b"false")],  # data, but not where
        [ZERO.replace(b"true", b"false")[:-1] + b', "offset": 4096}'],  # where, but no data
        [ZERO.replace(b"8192", b"-8192")],
    ],
)
def test_a_map_that_does_not_tell_all_is_not_gone_by(lines):
    with pytest.raises(verify.Unplain):
        list(verify.extents(lines, 16384))


def test_a_map_of_the_whole_disk():
    data = b'{ "start": 8192, "length": 8192, "depth": 0, "zero": false, "data": true, "offset": 327680}]'
    found = list(verify.extents([b"[" + ZERO + b",\n", data + b"\n"], 16384))
    assert found == [verify.Extent(0, 8192, None), verify.Extent(8192, 8192, 327680)]


def test_lines_of_a_program_that_is_not_read_to_its_end_end_it():
    pids = []
    with process.tied_lines(["/bin/sh", "-c", "echo $$; exec yes"]) as lines:
        pids.append(int(next(lines)))
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_leases_are_not_shared_with_programs_that_go_on(image):
    """A program that a run started does not hold the lease longer than the run."""
    file = image_files.steady_file(str(image))
    child = subprocess.Popen(["/bin/sleep", "60"])
    try:
        file.close()
        done = threading.Event()

        def write():
            with open(image, "r+b"):
                done.set()

        threading.Thread(target=write, daemon=True).start()
        assert done.wait(10)
        with open(image, "rb") as again:
            assert fcntl.fcntl(again, fcntl.F_GETLEASE) == fcntl.F_UNLCK
    finally:
        child.kill()
        child.wait()
