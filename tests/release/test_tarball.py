# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The built collection, ``$BOOTFLOW_TARBALL``: what a user of it needs, and nothing for those who change it."""

from __future__ import annotations

import os
import posixpath
import re
import tarfile

import pytest
import yaml

USERS = {
    "FILES.json",
    "LICENSE",
    "MANIFEST.json",
    "README.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "changelogs",
    "constraints.txt",
    "docs",
    "extensions",
    "inventory",
    "meta",
    "playbooks",
    "plugins",
    "requirements.txt",
    "roles",
}


@pytest.fixture(scope="module")
def files():
    """path -> content of each file."""
    with tarfile.open(os.environ["BOOTFLOW_TARBALL"]) as tarball:
        return {m.name: tarball.extractfile(m).read() for m in tarball if m.isfile()}


def test_only_what_users_need_is_in_it(files):
    assert {name.split("/")[0] for name in files} == USERS
    assert [name for name in files if name.startswith("changelogs/")] == ["changelogs/changelog.yaml"]
    assert {name.split("/")[1] for name in files if name.startswith("extensions/")} == {"audit", "eda"}
    assert not [name for name in files if "/." in name or name.endswith(".pyc")]


def test_links_of_the_documents_lead_to_files_in_it(files):
    folders = {posixpath.dirname(name) for name in files}
    dangling = set()
    for name in sorted(files):
        if name.endswith(".md"):
            for link in re.findall(r"\]\(([^)#]+)[^)]*\)", files[name].decode()):
                target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
                if not link.startswith("http") and target not in files and target not in folders:
                    dangling.add(target)
    assert dangling == set()


def test_execution_environments_find_their_lists(files):
    lists = yaml.safe_load(files["meta/execution-environment.yml"])["dependencies"]
    assert set(lists.values()) <= set(files)
