# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of an image goes from the process of one host to the store of another: real processes and connections."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import socket
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.relay.pieces import PIECE
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies import server
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images import store_files
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.fetch import FetchLimits
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.images import ImageSource
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.relay import given, offers, relay

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
ID = "6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d5e"
TOKEN, STOP = "t" * 64, "s" * 64
_RANDOM = random.Random(5).randbytes(3 * PIECE + 77)
CONTENTS = {
    "holes": _RANDOM[:PIECE] + bytes(5 * PIECE) + _RANDOM[PIECE:],
    "zeros at the end": _RANDOM[:PIECE] + bytes(2 * PIECE + 9),
    "zeros only": bytes(3 * PIECE),
    "short": _RANDOM[:600],
}


class Giver:
    """A file of another host, and the process that gives it."""

    def __init__(self, folder: Path, data: bytes):
        self.folder, self.data = folder, data
        self.store = folder / "store"
        self.store.mkdir()
        self.file = folder / ID
        self.file.write_bytes(data)
        self.place: dict[str, t.Any] = {}

    def begin(self) -> None:
        limits = FetchLimits(declared=len(self.data))
        image = ImageSource(ID, "raw", path=str(self.file), limits=limits)
        offer = offers.offer(
            image, str(self.folder), "kvm2", len(self.data), TOKEN, STOP, (49900, 49990), 60.0, serves=True
        )
        self.place = {"address": "127.0.0.1", "port": offer["port"], "fingerprint": offer["fingerprint"]}
        self.file.unlink()  # as its host does once the process is there

    def receive(self, **more: t.Any) -> dict[str, t.Any]:
        """Have the store's host receive it. :arg more: changed fields of the image, or of its giver"""
        giver = {**self.place, "token": TOKEN, "stop_token": STOP}
        giver.update({name: more.pop(name) for name in list(more) if name in giver})
        image = {
            "id": ID,
            "checksum": "sha256:" + hashlib.sha256(self.data).hexdigest(),
            "disk_format": "raw",
            "size": len(self.data),
            "giver": giver,
        }
        options = {
            "path": str(self.store),
            "mode": "0600",
            "images": [{**image, **more}],
            "removed": [],
            "uploads": {},
            "allow_unverified": False,
            "image_max_gb": 1,
            "image_fetch_timeout": 60.0,
            "vmdk_allowed_types": [],
        }
        return dict(store_files.work_on(options, False, given.receive)[ID])

    def files(self) -> list[str]:
        return sorted(os.listdir(self.store))


@pytest.fixture
def giver(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Giver]:
    if "says" in request.node.name:
        monkeypatch.setattr(relay, "SAYS", -1.0)  # at each piece of zeros
    made = Giver(tmp_path, CONTENTS[getattr(request, "param", "holes")])
    made.begin()
    yield made
    server.stop(server.Place(*(made.place[n] for n in ("address", "port", "fingerprint"))), STOP)


@pytest.mark.parametrize("giver", list(CONTENTS), indirect=True)
def test_a_file_comes_whole_with_its_holes_and_its_process_ends(giver: Giver) -> None:
    outcome = giver.receive()
    assert outcome["error"] is None and outcome["size"] == len(giver.data)
    assert outcome["checksum"] == hashlib.sha256(giver.data).hexdigest()
    file = giver.store / ID
    assert giver.files() == [ID] and file.read_bytes() == giver.data and file.stat().st_mode & 0o777 == 0o600
    if len(giver.data) > PIECE:
        assert file.stat().st_blocks * 512 < len(giver.data)
    until = time.monotonic() + 20
    while _listens(giver.place["port"]):
        assert time.monotonic() < until, "its room is not free again"
        time.sleep(0.1)


@pytest.mark.parametrize("giver", list(CONTENTS), indirect=True)
def test_a_giver_that_says_that_it_passes_zeros_is_waited_for(giver: Giver) -> None:
    assert giver.receive()["error"] is None and (giver.store / ID).read_bytes() == giver.data


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "more, code",
    [
        ({"checksum": "sha256:" + "0" * 64}, "ImageChecksumMismatch"),
        ({"size": 5}, "ImageDownloadFailed"),
        ({"size": 2**31}, "ImageUnacceptable"),
        ({"size": 9 * PIECE}, "ImageDownloadFailed"),
        ({"token": "x" * 64}, "ImageDownloadFailed"),
        ({"fingerprint": "0" * 64}, "ImageDownloadFailed"),
        ({"port": 1}, "ImageDownloadFailed"),
        ({"disk_format": "qcow2"}, "ImageUnacceptable"),
    ],
)
def test_what_is_not_the_file_leaves_nothing(giver: Giver, more: dict[str, t.Any], code: str) -> None:
    outcome = giver.receive(**more)
    assert outcome["error"]["code"] == code, outcome
    assert giver.files() == []


def test_a_store_without_room_is_asked_before(giver: Giver, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(giver.store)
    vfs = os.statvfs_result((4096, 4096, 1000, 1, 1, 10, 10, 10, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: vfs)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=4096))
    assert giver.receive()["error"]["code"] == "DiskFull" and giver.files() == []


def test_a_giver_that_ends_in_the_middle_leaves_nothing(giver: Giver) -> None:
    assert server.stop(server.Place(*(giver.place[n] for n in ("address", "port", "fingerprint"))), STOP)
    outcome = giver.receive()
    assert outcome["error"]["code"] == "ImageDownloadFailed" and giver.files() == []
    assert "bootflow_copy_ports" in outcome["error"]["remedy"]
