# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Exports: the file gets its name when its bytes are those of the image, from whichever store they come."""

from __future__ import annotations

import hashlib
import os
import shutil
import types
import typing as t
from pathlib import Path

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ansible_collections.bootflow.compute.plugins.action import image_export
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import life
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.image import StoredImage
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.images import images
from ansible_collections.bootflow.compute.plugins.plugin_utils.run.ledger_action import LedgerAction
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World

CONTENT = b"image" * 500_000
ID = "99999999-0000-4000-8000-00000000000a"


class Site:
    """An image in the store ``far`` of kvm1, whose files are below ``folder``."""

    def __init__(self, world: World, folder: Path):
        self.world, self.folder = world, folder
        self.stores: list[dict[str, t.Any]] = [{"name": "far", "path": str(folder), "kind": "host", "host": "kvm1"}]
        self.dest = folder / "out"
        self.fails: Exception | None = None
        (folder / ID).write_bytes(CONTENT)
        with world.ledger.write() as tx:
            of_run = tx.for_run(world.context("i"))
            images.create(of_run, [StoredImage(id=ID, name="web", project="default", disk_format="raw")])
            images.apply(of_run, ID, life.UPLOAD_BEGUN, "far")
            sha = hashlib.sha256(CONTENT).hexdigest()
            images.apply(of_run, ID, life.UPLOADED, size=len(CONTENT), checksum=sha)

    def play(self, phase: str, host: str, check_mode: bool = False, **options: t.Any) -> dict[str, t.Any]:
        variables = {"inventory_hostname": host, "groups": {"all": ["kvm1", "kvm2"]}}
        given = {"image_names": ["web"], "dest": str(self.dest), "image_stores": self.stores, "phase": phase, **options}
        action = action_of(image_export, WorldPorts(self.world, "e"), variables, check_mode, **given)
        action._connection = types.SimpleNamespace(fetch_file=self.fetch, transport="ssh")
        result: dict[str, t.Any] = action.act()
        return result

    def export(self, **options: t.Any) -> dict[str, t.Any]:
        """The playbook image_export. Returns the result of its last task."""
        assert self.play("begin", "localhost", **options)["storage"] == ["kvm1"]
        return self.play("finish", "kvm1", **options)

    def fetch(self, path: str, target: str) -> None:
        if self.fails is not None:
            raise self.fails
        shutil.copyfile(path, target)

    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


@pytest.fixture
def site(world: World, tmp_path: Path) -> Site:
    (tmp_path / "store").mkdir()
    return Site(world, tmp_path / "store")


def test_the_file_of_a_hosts_store_is_fetched_from_that_host(site: Site) -> None:
    assert site.play("begin", "localhost", check_mode=True)["storage"] == []
    begun = site.play("begin", "localhost")
    assert begun["storage"] == ["kvm1"] and begun["changed"] and site.files() == {ID}
    assert "changed" in site.play("finish", "kvm2") and site.files() == {ID}
    done = site.play("finish", "kvm1")
    assert done["changed"] and site.dest.read_bytes() == CONTENT and site.files() == {ID, "out"}
    again = site.play("begin", "localhost")
    assert again["storage"] == [] and not again["changed"]


@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        (AnsibleConnectionFailure("no route"), errors.HostUnreachable),
        (AnsibleError("Permission denied"), errors.ImageNotReadable),
    ],
)
def test_a_fetch_that_fails_leaves_nothing(site: Site, fails: Exception, expected: type[errors.BootflowError]) -> None:
    site.fails = fails
    with pytest.raises(expected):
        site.export()
    assert site.files() == {ID}


def test_bytes_that_were_changed_in_the_store_are_not_exported(site: Site) -> None:
    (site.folder / ID).write_bytes(CONTENT[:-1] + b"x")
    site.dest.write_bytes(b"former")
    with pytest.raises(errors.ImageChecksumMismatch) as caught:
        site.export(overwrite=True)
    assert "import it again" in caught.value.remedy
    assert site.files() == {ID, "out"} and site.dest.read_bytes() == b"former"


def test_what_cannot_be_exported_is_named(site: Site) -> None:
    cases: list[tuple[dict[str, t.Any], type[errors.BootflowError], str]] = [
        ({"image_names": ["web", "other"]}, errors.InvalidInput, "2 images are named"),
        ({"image_names": None}, errors.InvalidInput, "0 images are named"),
        ({"image_names": ["other"]}, errors.LedgerImageNotFound, "other"),
        ({"image_stores": []}, errors.ImageNotReadable, "none of its stores"),
        ({"dest": str(site.folder)}, errors.InvalidInput, "it is a directory"),
        ({"dest": "/none/file"}, errors.InvalidInput, "its directory is missing"),
    ]
    for options, expected, words in cases:
        with pytest.raises(expected, match=words):
            site.play("begin", "localhost", **options)
    assert site.files() == {ID}


def test_a_file_that_a_store_of_the_controller_lost(site: Site) -> None:
    site.stores = [{"name": "far", "path": str(site.folder)}]
    (site.folder / ID).unlink()
    with pytest.raises(errors.ImageNotReadable, match="No such file"):
        site.play("begin", "localhost")
    assert site.files() == set()


def test_two_exports_to_one_file(site: Site) -> None:
    """The second one is refused; the first one writes the file as if it were alone."""
    refused: list[errors.BootflowError] = []

    def fetch(path: str, target: str) -> None:
        shutil.copyfile(path, target)
        site.fetch = lambda *_paths: None  # type: ignore[method-assign]
        with pytest.raises(errors.ImageInUse) as caught:
            site.export()
        refused.append(caught.value)

    site.fetch = fetch  # type: ignore[method-assign]
    assert site.export()["changed"]
    assert "another run writes %s" % site.dest in refused[0].message and refused[0].remedy
    assert site.dest.read_bytes() == CONTENT and site.files() == {ID, "out"}


def test_what_a_killed_export_left_is_written_again(site: Site) -> None:
    part = site.folder / "out.part"
    part.write_bytes(CONTENT + CONTENT)
    part.chmod(0o644)
    assert site.export()["changed"]
    assert site.dest.read_bytes() == CONTENT and site.files() == {ID, "out"}
    assert site.dest.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("is_link", [False, True])
def test_a_device_or_a_pipe_is_never_replaced(site: Site, is_link: bool) -> None:
    pipe = site.folder / "pipe"
    os.mkfifo(pipe)
    if is_link:
        site.dest.symlink_to(pipe)
    else:
        pipe.rename(site.dest)
    with pytest.raises(errors.InvalidInput, match="not a regular file"):
        site.export(overwrite=True)
    assert site.dest.is_fifo() and site.dest.is_symlink() == is_link


def test_a_link_is_replaced_and_what_it_leads_to_is_not_touched(site: Site) -> None:
    former = site.folder / "former"
    former.write_bytes(b"former")
    site.dest.symlink_to(former)
    with pytest.raises(errors.InvalidInput, match="exists with other content"):
        site.export()
    site.export(overwrite=True)
    assert former.read_bytes() == b"former" and not site.dest.is_symlink() and site.dest.read_bytes() == CONTENT


def test_the_task_of_the_host_does_not_open_the_ledger(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.play("begin", "localhost")
    monkeypatch.setattr(LedgerAction, "open_ledger", lambda _action: pytest.fail("opened"))
    site.stores = []  # of the host's own variables
    assert site.play("finish", "kvm1", image_names=None)["changed"] and site.dest.read_bytes() == CONTENT


def test_a_file_that_another_made_meanwhile_is_not_replaced(site: Site) -> None:
    site.play("begin", "localhost")
    site.dest.write_bytes(b"other")
    with pytest.raises(errors.InvalidInput, match="exists with other content"):
        site.play("finish", "kvm1")
    assert site.dest.read_bytes() == b"other"


def test_an_image_without_bytes_is_not_exported(site: Site) -> None:
    with site.world.ledger.write() as tx:
        of_run = tx.for_run(site.world.context("i"))
        images.create(of_run, [StoredImage(id=ID[:-1] + "b", name="mapped", project="default")])
        images.apply(of_run, ID[:-1] + "b", life.COMPOSED, size=0)
    with pytest.raises(errors.ImageNotReadable, match="has no bytes"):
        site.play("begin", "localhost", image_names=["mapped"])
