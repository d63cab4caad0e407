# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import importlib
import io
import os
import stat
import subprocess
import sys
import time

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.drive import config_drive, vfat
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.command import program

FILES = {
    "openstack/latest/meta_data.json": b'{"uuid": "x"}',
    "openstack/latest/user_data": b"x" * 5000,
    "openstack/2012-08-10/meta_data.json": b"",
    "openstack/content/0000": bytes(range(256)),
    "a-name_of.exactly13": b"1",
    "n" * 26: b"2",
    "n" * 64: b"3",
}
FORMATS = pytest.mark.parametrize("fmt", ["iso9660", "vfat"])


def iso_files(data, names):
    pycdlib = importlib.import_module("pycdlib")
    iso = pycdlib.PyCdlib()
    iso.open_fp(io.BytesIO(data))
    found = {}
    for kind in ("rr_path", "joliet_path"):
        for name in names:
            content = io.BytesIO()
            iso.get_file_from_iso_fp(content, **{kind: "/" + name})
            found[kind, name] = content.getvalue()
    iso.close()
    return found


@FORMATS
def test_written_once(tmp_path, fmt):
    path = tmp_path / "instance" / "disk.config"
    first = config_drive.write_config_drive(str(path), FILES, fmt)
    assert first == {"changed": True, "path": str(path), "format": fmt, "size": path.stat().st_size}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.stat()
    assert config_drive.write_config_drive(str(path), FILES, fmt) == {**first, "changed": False}
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert config_drive.write_config_drive(str(path), {**FILES, "new": b""}, fmt)["changed"]
    assert os.listdir(path.parent) == ["disk.config"]


@FORMATS
def test_check_mode_writes_nothing(tmp_path, fmt):
    path = tmp_path / "no" / "disk.config"
    assert config_drive.write_config_drive(str(path), FILES, fmt, check_mode=True)["changed"]
    assert not path.parent.exists()


@FORMATS
def test_keep_leaves_a_drive_and_replaces_what_is_none(tmp_path, fmt):
    path = tmp_path / "disk.config"
    path.write_bytes(b"\0" * 100000)
    assert config_drive.write_config_drive(str(path), FILES, fmt, keep=True)["changed"]
    there = path.read_bytes()
    assert not config_drive.write_config_drive(str(path), {"other": b""}, fmt, keep=True)["changed"]
    assert path.read_bytes() == there


def test_another_format_is_a_change(tmp_path):
    path = tmp_path / "disk.config"
    for fmt in ("iso9660", "vfat", "iso9660"):
        assert config_drive.write_config_drive(str(path), FILES, fmt)["changed"]


def test_every_file_is_in_the_iso_under_both_kinds_of_names():
    found = iso_files(config_drive.build_iso(FILES), FILES)
    assert found == {(kind, name): data for name, data in FILES.items() for kind in ("rr_path", "joliet_path")}


@pytest.mark.parametrize("tool", config_drive.ISO_TOOLS)
def test_other_tools_where_pycdlib_is_missing(tool, monkeypatch):
    program(tool, "xorriso" if tool == "xorriso" else "genisoimage")
    monkeypatch.setattr(config_drive, "ISO_TOOLS", (tool,))
    monkeypatch.setattr(config_drive, "pycdlib", None)
    data = config_drive.build_iso(FILES)
    found = iso_files(data, FILES)
    assert all(found["rr_path", name] == content for name, content in FILES.items())
    mark = data[config_drive._ISO_APPLICATION :][:57]
    assert mark == config_drive._mark(FILES, "iso9660")


def test_no_tool_at_all(monkeypatch):
    monkeypatch.setattr(config_drive, "ISO_TOOLS", ("no-such-tool",))
    monkeypatch.setattr(config_drive, "pycdlib", None)
    with pytest.raises(errors.MissingLibrary, match="pycdlib") as caught:
        config_drive.build_iso(FILES)
    assert caught.value.remedy == "apt-get install python3-pycdlib"


def test_a_broken_tool_leaves_no_file(tmp_path, monkeypatch):
    tool = tmp_path / "mkisofs"
    tool.write_text("#!/bin/sh\necho half > $4; echo it broke >&2; exit 3\n")
    tool.chmod(0o755)
    monkeypatch.setattr(config_drive, "ISO_TOOLS", (str(tool),))
    monkeypatch.setattr(config_drive, "pycdlib", None)
    path = tmp_path / "instance" / "disk.config"
    with pytest.raises(errors.CommandFailed, match="exit code 3: it broke"):
        config_drive.write_config_drive(str(path), FILES)
    assert not path.parent.exists() or os.listdir(path.parent) == []


@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.ENOSPC, errors.DiskFull), (errno.EDQUOT, errors.DiskFull), (errno.EIO, errors.RemoteError)],
)
def test_a_full_disk_leaves_no_file(tmp_path, monkeypatch, number, error):
    def fails(_fd):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(config_drive.os, "fsync", fails)
    with pytest.raises(error) as caught:
        config_drive.write_config_drive(str(tmp_path / "disk.config"), FILES)
    assert str(tmp_path) in caught.value.message
    assert os.listdir(tmp_path) == []


def test_a_killed_runs_leftover_is_removed(tmp_path):
    (tmp_path / ".disk.config.abc.part").write_bytes(b"half")
    (tmp_path / "disk").write_bytes(b"root")
    config_drive.write_config_drive(str(tmp_path / "disk.config"), FILES)
    assert sorted(os.listdir(tmp_path)) == ["disk", "disk.config"]


def test_files_for_a_program_that_is_killed_go_with_the_instance(tmp_path):
    """There may be a password among them."""
    temporary, folder, tool = tmp_path / "tmp", tmp_path / "instance", tmp_path / "mkisofs"
    temporary.mkdir()
    tool.write_text("#!/bin/sh\ntouch %s/begun\nexec sleep 600\n" % tmp_path)
    tool.chmod(0o755)
    name, path = config_drive.__name__, str(folder / "disk.config")
    code = "from %s import config_drive as c; c.pycdlib, c.ISO_TOOLS = None, (%r,); c.write_config_drive(%r, {'user_data': b'secret'})"
    argv = [sys.executable, "-c", code % (name.rpartition(".")[0], str(tool), path)]
    module = subprocess.Popen(argv, env={**os.environ, "TMPDIR": str(temporary)})
    end = time.monotonic() + 30
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < end and module.poll() is None
        time.sleep(0.02)
    module.kill()
    module.wait()
    assert os.listdir(temporary) == []
    (left,) = folder.iterdir()
    assert left.stat().st_mode & 0o777 == 0o700
    config_drive.write_config_drive(path, FILES)
    assert os.listdir(folder) == ["disk.config"]


def test_a_link_is_replaced_not_followed(tmp_path):
    (tmp_path / "other").write_bytes(b"precious")
    (tmp_path / "disk.config").symlink_to(tmp_path / "other")
    config_drive.write_config_drive(str(tmp_path / "disk.config"), FILES)
    assert (tmp_path / "other").read_bytes() == b"precious"
    assert not (tmp_path / "disk.config").is_symlink()


@pytest.mark.parametrize(
    ("path", "files", "fmt"),
    [
        ("relative", FILES, "iso9660"),
        ("/tmp/", FILES, "iso9660"),
        ("/tmp/x", {}, "iso9660"),
        ("/tmp/x", {"../x": b""}, "iso9660"),
        ("/tmp/x", {"a": b"", "a/b": b""}, "vfat"),
        ("/tmp/x", FILES, "ext4"),
    ],
)
def test_bad_arguments(path, files, fmt):
    with pytest.raises(errors.InvalidInput):
        config_drive.write_config_drive(path, files, fmt, check_mode=True)


def drive(files):
    return vfat.image(files, config_drive.LABEL, config_drive.VFAT_SIZE).ljust(config_drive.VFAT_SIZE, b"\0")


def test_vfat_is_reproducible_and_sound(tmp_path):
    data = drive(FILES)
    assert len(data) == config_drive.VFAT_SIZE and data == drive(dict(reversed(FILES.items())))
    path = tmp_path / "drive"
    path.write_bytes(data)
    subprocess.run([program("fsck.vfat", "dosfstools"), "-n", str(path)], check=True, capture_output=True)
    subprocess.run([program("mcopy", "mtools"), "-s", "-i", str(path), "::/*", str(tmp_path)], check=True)
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == FILES


def test_vfat_can_be_full_but_not_overfull():
    room = (config_drive.VFAT_SIZE // vfat.CLUSTER - 80) * vfat.CLUSTER
    used = vfat.image({"a": b"x" * room}, "config-2", config_drive.VFAT_SIZE)
    assert room < len(used) <= config_drive.VFAT_SIZE
    with pytest.raises(errors.InvalidInput, match="do not fit"):
        vfat.image({"a": b"x" * config_drive.VFAT_SIZE}, "config-2", config_drive.VFAT_SIZE)


def test_vfat_with_many_files_in_a_folder(tmp_path):
    files = {"openstack/content/%04d" % n: b"%d" % n for n in range(300)}
    (tmp_path / "drive").write_bytes(drive(files))
    subprocess.run([program("mcopy", "mtools"), "-s", "-i", str(tmp_path / "drive"), "::/*", str(tmp_path)], check=True)
    assert {name: (tmp_path / name).read_bytes() for name in files} == files


@pytest.mark.parametrize(
    ("label", "size"), [("", 64 << 20), ("x" * 12, 64 << 20), ("config-2", 1 << 20), ("config-2", 1 << 30)]
)
def test_vfat_limits(label, size):
    with pytest.raises(errors.InvalidInput):
        vfat.image({"a": b""}, label, size)


def test_digest_tells_paths_contents_and_formats_apart():
    digests = {
        config_drive.content_digest(files, fmt)
        for fmt in ("iso9660", "vfat")
        for files in ({"a": b"b"}, {"a": b""}, {"b": b"b"}, {"a": b"b", "b": b""}, {"a": b"bb"})
    }
    assert len(digests) == 10
