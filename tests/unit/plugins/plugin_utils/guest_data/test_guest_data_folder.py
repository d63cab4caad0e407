# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folder of the controller with user data and injected files: private, named by SHA-256, and without what no instance has."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import InjectedFile
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.expand import guest_data_digest
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.guest_data import GuestSecrets
from ansible_collections.bootflow.compute.plugins.plugin_utils.guest_data.guest_data_folder import GuestDataFolder
from ansible_collections.bootflow.compute.plugins.plugin_utils.guest_data.kept_guest_data import KeptGuestData

TEXT = "#cloud-config\r\npassword: hünter2\n"
FILES = (InjectedFile("/etc/a", "aHVudGVyMg=="), InjectedFile("/etc/b", "aHVudGVyMg=="))
SECRETS = GuestSecrets(TEXT, FILES)
DIGEST = guest_data_digest(TEXT, FILES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "more" / "user-data"


def test_what_is_kept_is_found_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        GuestDataFolder(str(folder)).keep([SECRETS, SECRETS, GuestSecrets(admin_password="x")])
    finally:
        os.umask(before)
    assert GuestDataFolder(str(folder)).read_secrets(DIGEST) == SECRETS
    assert {p.stat().st_mode & 0o777 for p in (folder, folder.parent)} == {0o700}
    names = {hashlib.sha256(text.encode()).hexdigest() for text in (TEXT, FILES[0].contents)}
    assert {p.name for p in folder.iterdir()} == {*names, ".lock"}
    assert {p.stat().st_mode & 0o777 for p in folder.iterdir()} == {0o600}


def test_only_what_was_booted_is_found(folder: Path) -> None:
    """Not a part of it, and not what somebody changed."""
    kept = GuestDataFolder(str(folder))
    assert kept.read_secrets(DIGEST) is None
    kept.keep([SECRETS])
    assert kept.read_secrets(guest_data_digest(None, ())) is None and kept.read_secrets({}) is None
    assert kept.read_secrets(guest_data_digest(TEXT, (InjectedFile("/etc/c", "bmV3"),))) is None
    assert kept.read_secrets({"user_data": "sha256:../../etc/passwd"}) is None
    changed = folder / str(DIGEST["user_data"])[len("sha256:") :]
    changed.write_text("#!/bin/sh\n")
    assert kept.read_secrets(DIGEST) is None
    folder.chmod(0o777)
    changed.write_bytes(TEXT.encode())
    assert kept.read_secrets(DIGEST) is None, "another user could exchange it"
    with pytest.raises(errors.InvalidInput, match="other users may write to"):
        kept.keep([SECRETS])


def test_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    kept = KeptGuestData()
    kept.keep([SECRETS])
    assert kept.read_secrets(DIGEST) is None and not list(tmp_path.iterdir())
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(errors.InvalidInput, match="are not kept in"):
        GuestDataFolder(str(blocked / "user-data")).keep([SECRETS])
    GuestDataFolder(str(blocked / "user-data")).keep([GuestSecrets()])
