# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of stores of images: a name only for whole, verified bytes, whatever fails on the way."""

from __future__ import annotations

import gzip
import hashlib
import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images import store_files
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.relay import given

CONTENT = b"\x01" * 3_000_000
SHA = hashlib.sha256(CONTENT).hexdigest()
ID = "6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    (tmp_path / "source").write_bytes(CONTENT)
    return folder


def work(
    store: Path, *images: dict[str, t.Any], removed: t.Sequence[str] = (), check: bool = False, **more: t.Any
) -> dict[str, t.Any]:
    options = {
        "path": str(store),
        "mode": "0600",
        "images": list(images),
        "removed": list(removed),
        "uploads": {},
        "allow_unverified": False,
        "image_max_gb": 1,
        "image_fetch_timeout": 60.0,
        "vmdk_allowed_types": [],
        **more,
    }
    return store_files.work_on(options, check, given.receive)


def image(store: Path, **fields: t.Any) -> dict[str, t.Any]:
    source = {"path_on_host": str(store.parent / "source"), "checksum": "sha256:" + SHA, "disk_format": "raw"}
    return {"id": ID, **source, **fields}


def code(outcomes: dict[str, t.Any], image_id: str = ID) -> str:
    return str(outcomes[image_id]["error"]["code"])


def test_a_verified_file_gets_its_name_and_mode(store: Path) -> None:
    done = work(store, image(store), mode="0644")
    assert done == {ID: {"changed": True, "size": len(CONTENT), "checksum": SHA, "error": None}}
    assert {p.name: p.read_bytes() for p in store.iterdir()} == {ID: CONTENT}
    assert (store / ID).stat().st_mode & 0o777 == 0o644
    assert work(store, image(store, checksum="sha512:" + hashlib.sha512(CONTENT).hexdigest()))[ID]["error"] is None


def test_an_uploaded_file_is_taken_instead_of_the_source(store: Path) -> None:
    (store.parent / "upload").write_bytes(CONTENT)
    done = work(store, image(store, path_on_host=None), uploads={ID: str(store.parent / "upload")})
    assert done[ID]["checksum"] == SHA


@pytest.mark.parametrize(
    ("fields", "more", "expected"),
    [
        ({"checksum": "sha256:" + "0" * 64}, {}, "ImageChecksumMismatch"),
        ({"checksum": ""}, {}, "ImageUnacceptable"),
        ({"disk_format": "qcow2"}, {}, "ImageUnacceptable"),
        ({"disk_format": "tar"}, {}, "InvalidDiskFormat"),
        ({"path_on_host": "/none"}, {}, "ImageDownloadFailed"),
        ({"size": 7}, {}, "ImageUnacceptable"),
        ({"id": "../x"}, {}, "InvalidInput"),
    ],
)
def test_a_file_that_is_not_the_image_leaves_nothing(store: Path, fields: t.Any, more: t.Any, expected: str) -> None:
    (store / ID).write_bytes(b"former")
    done = work(store, image(store, **fields), **more)
    assert code(done, fields.get("id", ID)) == expected
    assert {p.name: p.read_bytes() for p in store.iterdir()} == {ID: b"former"}


def test_a_full_disk_leaves_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.statvfs_result((4096, 4096, 100, 10, 10, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: full)
    assert code(work(store, image(store))) == "DiskFull" and list(store.iterdir()) == []


def test_without_a_checksum_only_where_that_is_accepted(store: Path) -> None:
    assert work(store, image(store, checksum=""), allow_unverified=True)[ID]["checksum"] == SHA


def test_the_part_of_a_killed_run_is_replaced(store: Path) -> None:
    (store / (ID + ".part")).write_bytes(b"half")
    work(store, image(store))
    assert [p.name for p in store.iterdir()] == [ID]


def test_files_are_removed_whole_and_half(store: Path) -> None:
    (store / ID).write_bytes(b"x")
    (store / (ID + ".part")).write_bytes(b"x")
    (store / "other").write_bytes(b"x")
    assert work(store, removed=[ID], check=True) == {ID: {"changed": True, "error": None}}
    assert len(list(store.iterdir())) == 3
    assert work(store, removed=[ID])[ID]["changed"] is True
    assert [p.name for p in store.iterdir()] == ["other"]
    assert work(store, removed=[ID]) == {ID: {"changed": False, "error": None}}


def test_a_missing_directory_says_nothing_of_its_files(store: Path) -> None:
    store.rmdir()
    with pytest.raises(errors.RemoteError, match="does not exist"):
        work(store, removed=[ID])
    assert not store.exists()


def test_check_mode_reads_nothing(store: Path) -> None:
    assert work(store, image(store, path_on_host="/none"), check=True) == {ID: {"changed": True, "error": None}}
    with pytest.raises(errors.InvalidInput, match="octal"):
        work(store, mode="rw")


def test_a_compressed_file_is_checked_by_its_content_and_stored_as_it_is(store: Path) -> None:
    qcow2 = bytes.fromhex("514649fb00000002") + bytes(504)
    for content, disk_format, expected in (
        (qcow2, "qcow2", ""),
        (qcow2, "raw", "ImageUnacceptable"),
        (CONTENT, "raw", ""),
    ):
        packed = gzip.compress(content)
        (store.parent / "packed").write_bytes(packed)
        given = image(
            store,
            path_on_host=str(store.parent / "packed"),
            checksum="sha256:" + hashlib.sha256(packed).hexdigest(),
            disk_format=disk_format,
        )
        done = work(store, given)
        assert (code(done) if done[ID]["error"] else "") == expected, done
        assert {p.name: p.read_bytes() for p in store.iterdir()} == ({} if expected else {ID: packed})
        work(store, removed=[ID])


def test_what_a_killed_run_left_of_a_compressed_file_is_removed(store: Path) -> None:
    for ending in ("", store_files.PART, store_files.PLAIN):
        (store / (ID + ending)).write_bytes(b"x")
    assert work(store, removed=[ID])[ID] == {"changed": True, "error": None} and list(store.iterdir()) == []
