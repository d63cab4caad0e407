# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folder of an instance's backups on this host: a chain of qcow2 files, each on the one before, and manifest.json, which names them.

qemu-img reads a chain by itself. A backup that the manifest does not name is not complete.
"""

from __future__ import annotations

import json
import os
import typing as t
from dataclasses import dataclass

from ...core.backups.backup import MANIFEST, file_name
from ...core.disks.local import QCOW2
from ...core.errors import BackupDamaged
from ..images.images import QEMU_IMG_PACKAGE
from ..os.command import program, run
from ..os.files import read_json, remove_files, write_json
from ..os.paths import checked_id, checked_uuid
from ..snapshots.publish import sha256_of

_FORMAT = 1  # of the manifest


@dataclass(frozen=True)
class StoredBackup:
    """A complete backup on this host, by the ledger. The file has the backup before it as its base."""

    id: str
    folder: str
    file: str
    size: int
    checksum: str
    virtual_size: int
    checkpoint: str = ""
    checkpoint_xml: str = ""

    @property
    def path(self) -> str:
        return os.path.join(self.folder, os.path.basename(self.file))


def folder_of(directory: str, uuid: str) -> str:
    """Return the folder of an instance's backups."""
    return os.path.join(directory, checked_uuid(uuid))


def damage(chain: t.Sequence[StoredBackup], hashed: bool = False) -> str:
    """Return why a chain cannot be used, in words; "": it can. :arg hashed: read all bytes, and compare their sha256"""
    for stored in chain:
        wrong = damage_of_file(stored, hashed)
        if wrong:
            return wrong
    if chain:
        files = [os.path.basename(path) for path in files_of_chain(chain[-1].path)]
        if files != [os.path.basename(stored.file) for stored in reversed(chain)]:
            return "%s is on %s" % (chain[-1].path, ", ".join(files[1:]) or "nothing")
    return ""


def damage_of_file(stored: StoredBackup, hashed: bool = True) -> str:
    """Return why the file of a backup is not what it was, in words; "": it is. :arg hashed: read all bytes, and compare their sha256"""
    try:
        size = os.stat(stored.path, follow_symlinks=False).st_size
        if size != stored.size:
            return "%s has %d bytes, and had %d" % (stored.path, size, stored.size)
        if hashed and sha256_of(stored.path) != stored.checksum:
            return "%s has another content than it had" % stored.path
    except OSError as error:  # it is gone, or the disk has bad sectors
        return "%s: %s" % (stored.path, error.strerror)
    return ""


def files_of_chain(path: str) -> list[str]:
    """Return the files that a qcow2 file needs by their headers, itself first. Empty: qemu-img cannot read it."""
    argv = [program("qemu-img", QEMU_IMG_PACKAGE), "info", "-U", "-f", QCOW2, "--backing-chain", "--output=json", path]
    done = run(argv, check=False, timeout=60.0)
    if done.rc != 0:
        return []
    return [str(info["filename"]) for info in json.loads(done.stdout)]


def _info(path: str) -> dict[str, t.Any]:
    argv = [program("qemu-img", QEMU_IMG_PACKAGE), "info", "-f", QCOW2, "--output=json", path]
    return t.cast("dict[str, t.Any]", json.loads(run(argv, timeout=60.0).stdout))


def virtual_size(path: str) -> int:
    """Return the bytes of the disk in a qcow2 file."""
    return int(_info(path)["virtual-size"])


def base_of(path: str) -> str:
    """Return the file that a qcow2 file is on, as its header names it; "": it needs none."""
    return str(_info(path).get("backing-filename") or "")


def check_file(path: str, backup_id: str, virtual_size: int, chain: t.Sequence[StoredBackup]) -> None:
    """Check a file that QEMU has written: its tables, its size, and what it is on. :raises BackupDamaged: it is not what was requested"""
    qemu_img = program("qemu-img", QEMU_IMG_PACKAGE)
    done = run([qemu_img, "check", "-q", "-f", QCOW2, path], check=False)
    if done.rc != 0:
        raise BackupDamaged(backup_id=backup_id, reason="qemu-img check: %s" % (done.stderr or done.stdout).strip())
    info = _info(path)
    if int(info["virtual-size"]) != virtual_size:
        reason = "it has a disk of %d bytes, the guest's has %d" % (info["virtual-size"], virtual_size)
        raise BackupDamaged(backup_id=backup_id, reason=reason)
    base = str(info.get("backing-filename") or "")
    if base != (os.path.basename(chain[-1].file) if chain else ""):
        raise BackupDamaged(backup_id=backup_id, reason="it is on %s" % (base or "nothing"))
    wrong = damage(chain)
    if wrong:
        raise BackupDamaged(backup_id=backup_id, reason=wrong)


def entry_of(folder: str, backup_id: str) -> dict[str, t.Any] | None:
    """Return what the manifest says of a backup; None: it does not name it."""
    return next((one for one in _entries(folder) if one.get("id") == backup_id), None)


def exists(folder: str, file: str) -> bool:
    """Return whether the file of a backup is there, or the manifest names it."""
    return os.path.lexists(os.path.join(folder, file)) or any(one.get("file") == file for one in _entries(folder))


def add(folder: str, uuid: str, name: str, entry: t.Mapping[str, t.Any]) -> None:
    """Name a complete backup in the manifest."""
    backups = [one for one in _entries(folder) if one.get("id") != entry["id"]]
    _write(folder, {"uuid": uuid, "name": name}, [*backups, dict(entry)])


def remove(folder: str, backup_ids: t.Iterable[str]) -> list[str]:
    """Remove backups, their files last. Returns the ids: nothing of them is left."""
    ids = [checked_id(i, "backup id") for i in backup_ids]
    if not ids or not os.path.isdir(folder):
        return ids
    before = _entries(folder)
    remaining = [one for one in before if one.get("id") not in ids]
    if len(remaining) < len(before):
        _write(folder, (read_json(os.path.join(folder, MANIFEST)) or {}).get("instance") or {}, remaining)
    remove_files(*(os.path.join(folder, file_name(i)) for i in ids))
    if not remaining and set(os.listdir(folder)) <= {MANIFEST}:
        remove_files(os.path.join(folder, MANIFEST))
        os.rmdir(folder)
    return ids


def _entries(folder: str) -> list[dict[str, t.Any]]:
    manifest = read_json(os.path.join(folder, MANIFEST))
    entries = manifest.get("backups") if isinstance(manifest, dict) else None
    return [one for one in entries or () if isinstance(one, dict)]


def _write(folder: str, instance: t.Mapping[str, t.Any], backups: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    manifest = {"format": _FORMAT, "instance": dict(instance), "backups": list(backups)}
    write_json(os.path.join(folder, MANIFEST), manifest, 0o600)
