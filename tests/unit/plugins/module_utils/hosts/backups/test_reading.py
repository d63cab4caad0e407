# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Chains that are read back by qemu-img: each kind of damage is named at the file that has it, and at no other."""

from __future__ import annotations

import json
import os
import subprocess
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.backups import folder
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.backups.folder import StoredBackup
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.backups.reading import ReadingBack
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots.publish import sha256_of

NAMES = ("a", "b", "c")
SIZE = 1024**2


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


@pytest.fixture
def chain(tmp_path: Path) -> list[StoredBackup]:
    """A full backup and two increments, as they are stored."""
    stored: list[StoredBackup] = []
    for number, name in enumerate(NAMES):
        path = str(tmp_path / (name + ".qcow2"))
        base = ["-b", stored[-1].file, "-F", "qcow2"] if stored else []
        run("qemu-img", "create", "-q", "-f", "qcow2", *base, path, str(SIZE))
        run("qemu-io", "-f", "qcow2", "-c", "write -P %d %dk 64k" % (number + 1, 128 * number), path)
        one = StoredBackup(name, str(tmp_path), name + ".qcow2", os.stat(path).st_size, sha256_of(path), SIZE)
        folder.add(str(tmp_path), "u", "web", {"id": name, "file": one.file, "sha256": one.checksum})
        stored.append(one)
    return stored


def read(chain: t.Sequence[StoredBackup]) -> dict[str, str]:
    """Id -> damage, without the ones that are good."""
    reading = ReadingBack()
    found = {s.id: reading.read(s, [o.file for o in chain[:n]])["damage"] for n, s in enumerate(chain)}
    return {i: damage for i, damage in found.items() if damage}


def flip(path: str) -> None:
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


def forget(path: str) -> None:
    folder_of, name = os.path.split(path)
    manifest = Path(folder_of) / "manifest.json"
    data = json.loads(manifest.read_text())
    data["backups"] = [b for b in data["backups"] if b["file"] != name]
    manifest.write_text(json.dumps(data))


DAMAGES: dict[str, tuple[t.Callable[[str], t.Any], str]] = {
    "a byte": (flip, "another content"),
    "gone": (os.unlink, "No such file"),
    "cut": (lambda path: os.truncate(path, 65536), "65536 bytes"),
    "not named": (forget, "does not name it"),
}


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_at_its_file(chain: list[StoredBackup], number: int, damage: str) -> None:
    assert read(chain) == {}
    do, words = DAMAGES[damage]
    do(chain[number].path)
    found = read(chain)
    assert list(found) == [NAMES[number]] and words in found[NAMES[number]]


def test_a_chain_that_was_joined_otherwise_is_seen(chain: list[StoredBackup]) -> None:
    """As the ledger has it, the file is what it was."""
    last = chain[-1]
    run("qemu-img", "rebase", "-u", "-f", "qcow2", "-b", chain[0].file, "-F", "qcow2", last.path)
    forged = StoredBackup("c", last.folder, last.file, os.stat(last.path).st_size, sha256_of(last.path), SIZE)
    folder.add(last.folder, "u", "web", {"id": "c", "file": forged.file, "sha256": forged.checksum})
    assert read([*chain[:2], forged]) == {"c": "%s is on a.qcow2, and was on b.qcow2" % last.path}


def test_a_disk_of_another_size_is_seen(chain: list[StoredBackup]) -> None:
    last = chain[-1]
    forged = StoredBackup("c", last.folder, last.file, last.size, last.checksum, 2 * SIZE)
    assert "disk of %d bytes" % SIZE in read([*chain[:2], forged])["c"]
