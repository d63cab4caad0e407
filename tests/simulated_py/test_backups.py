# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Backups of instances by whole playbooks: the newest ones of a type stay, in a real folder of the controller and in models of hosts."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import typing as t
from pathlib import Path

import pytest
from host_model import disk_content
from simulated_site import Site, entry
from test_snapshots import Snapshots

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors


class Backups(Snapshots):
    """A site with the instances ``web`` and ``db``, whose backups are made."""

    def make(self, *names: str, options: tuple[str, ...] = (), expect: int = 0, **more: t.Any) -> str:
        given = {"backup_name": "%(name)s-daily", "backup_type": "daily", "backup_rotation": 2, **more}
        return self.site.play("create_backup", *options, expect=expect, names=list(names or ["web"]), **given)

    def active(self) -> list[tuple[str, str]]:
        """Id and name of active images, the oldest first."""
        found = self.site.query("SELECT id, name FROM images WHERE status = 'active' ORDER BY created_at, id")
        return [tuple(row) for row in found]

    def files(self) -> set[str]:
        return {path.name for path in self.store.iterdir()}


@pytest.fixture
def backups(site: Site, tmp_path: Path) -> Backups:
    return Backups(site, tmp_path)


def test_the_newest_ones_of_a_type_stay(backups: Backups) -> None:
    site = backups.site
    before = site.dump()
    output = backups.make(options=("--check", "--diff"))
    assert "Would create_backup" in output and "image web-daily in the store here" in output
    assert site.dump() == before and backups.files() == set()
    backups.make(backup_type="weekly", backup_name="web-weekly", snapshot_properties={"os_distro": "debian"})
    (weekly,) = backups.active()
    properties = json.loads(backups.rows()["web-weekly"]["properties"])
    assert (properties["image_type"], properties["backup_type"]) == ("backup", "weekly")
    assert properties["os_distro"] == "debian"
    for _number in range(2):
        assert "deleted" not in backups.make()
    _weekly, first, second = backups.active()
    assert first[1] == second[1] == "web-daily" and first[0] != second[0], "one is made each time"
    output = backups.make(options=("--check", "--diff"))
    assert "deleted: web-daily" in output and "image web-daily %s" % first[0] in output
    assert backups.active() == [weekly, first, second]
    assert "deleted: web-daily" in backups.make()
    third = backups.active()[-1]
    assert backups.active() == [weekly, second, third] and backups.states() == {("active", None)}
    assert backups.files() == {weekly[0], first[0], second[0], third[0]}
    assert (backups.store / third[0]).read_bytes() == disk_content(third[0])
    backups.make()
    fourth = backups.active()[-1]
    assert backups.files() == {i for i, _name in (weekly, second, third, fourth)}, "the file of the first one is gone"
    output = site.boots(entry("third", image="web-daily"), expect=2)
    assert "ImageAmbiguous" in output and "third" not in site.places()
    site.boots(entry("third", image=fourth[0]))
    assert site.places()["third"][0] == "active"


@pytest.mark.long
def test_a_rotation_of_zero_leaves_none(backups: Backups) -> None:
    for _number in range(2):
        backups.make(snapshot_store="nfs", backup_name="%(name)s %(date)s")
    ids = [image_id for image_id, _name in backups.active()]
    names = {name for _id, name in backups.active()}
    assert len(ids) == 2 and all(name.startswith("web 20") and name.endswith("Z") for name in names)
    assert backups.on_hosts() == {"/net/images": ids}
    output = backups.make(snapshot_store="nfs", backup_rotation=0, backup_name="b", options=("--check", "--diff"))
    assert "in the store" not in output and "deleted: web 20" in output and ", b" in output
    assert [image_id for image_id, _name in backups.active()] == ids
    output = backups.make(snapshot_store="nfs", backup_rotation=0)
    assert output.count("web 20") >= 2 and backups.active() == [] and backups.states() == {("active", None)}
    assert backups.places_of() == [("nfs", "ending")] * 3
    backups.make(snapshot_store="nfs", backup_rotation=1)
    ((last, _name),) = backups.active()
    assert backups.on_hosts() == {"/net/images": [last]} and backups.places_of() == [("nfs", "done")]


@pytest.mark.long
def test_several_instances_keep_their_own(backups: Backups) -> None:
    for _number in range(2):
        backups.make("web", "db", backup_rotation=1)
    assert sorted(name for _id, name in backups.active()) == ["db-daily", "web-daily"]
    assert "2 instances are selected" in backups.make("web", "db", expect=2, backup_name="one")


@pytest.mark.long
def test_a_failure_rotates_nothing(backups: Backups) -> None:
    backups.make()
    before = backups.active()
    host = backups.site.hosts[backups.places["web"]]
    host.items_fail("instance_snapshot", errors.DiskFull(host=host.name, path="/x", reason="full"), times=1)
    output = backups.make(expect=2, backup_rotation=0)
    assert "OperationFailed" in output and "full" in output
    assert backups.active() == before and backups.states() == {("active", None)}
    assert backups.files() == {before[0][0]}


@pytest.mark.long
def test_files_that_a_host_does_not_remove_wait(backups: Backups) -> None:
    host = backups.site.hosts[backups.places["web"]]
    backups.make(snapshot_store="nfs", backup_rotation=0)
    host.items_fail("image_file", errors.DiskFull(host=host.name, path="/x", reason="read-only"), times=1)
    backups.make(snapshot_store="nfs", backup_rotation=1)
    assert sorted(backups.places_of()) == [("nfs", "done"), ("nfs", "ending")]
    host.is_silent("image_file", times=1)
    backups.make(snapshot_store="nfs", backup_rotation=2)
    assert sorted(backups.places_of()) == [("nfs", "done"), ("nfs", "done"), ("nfs", "ending")]
    backups.make(snapshot_store="nfs", backup_rotation=2)
    assert sorted(backups.places_of()) == [("nfs", "done"), ("nfs", "done"), ("nfs", "ending")]
    assert len(backups.on_hosts()["/net/images"]) == 3


@pytest.mark.long
def test_the_host_of_a_store_removes_files_of_backups_of_other_hosts(backups: Backups) -> None:
    other = next(name for name, host in backups.places.items() if host != "kvm1")
    backups.make(other, snapshot_store="of-kvm1", backup_rotation=1)
    backups.make(other, snapshot_store="of-kvm1", backup_rotation=1)
    assert sorted(backups.places_of()) == [("of-kvm1", "done"), ("of-kvm1", "ending")]
    backups.make(other, snapshot_store="of-kvm1", backup_rotation=2)
    assert backups.places_of() == [("of-kvm1", "done")] * 2
    assert sorted(backups.on_hosts()["/srv/images"]) == sorted(image_id for image_id, _name in backups.active())


@pytest.mark.long
def test_files_of_a_store_that_is_not_there_wait(backups: Backups) -> None:
    backups.make(backup_rotation=0)
    away = backups.store.rename(backups.store.with_name("away"))
    assert "does not exist on the controller" in " ".join(backups.make(expect=2).split())
    assert backups.places_of() == [("here", "ending")]
    away.rename(backups.store)
    backups.make()
    assert backups.files() == {backups.active()[0][0]} and backups.places_of() == [("here", "done")]


@pytest.mark.long
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"backup_name": ""}, "bootflow_backup_name is not set"),
        ({"backup_type": ""}, "bootflow_backup_type must have 1 to 255 characters"),
        ({"backup_type": "x" * 256}, "bootflow_backup_type must have 1 to 255 characters"),
        ({"backup_rotation": -1}, "bootflow_backup_rotation"),
        ({"backup_rotation": "many"}, "bootflow_backup_rotation"),
        ({"snapshot_store": "none"}, "ImageStoreNotFound"),
        ({"snapshot_properties": {"k": [1]}}, "InvalidMetadata"),
        ({"names": ["none"]}, "InstanceNotFound"),
    ],
)
def test_bad_input_is_refused_before_anything_is_touched(backups: Backups, given: dict[str, t.Any], words: str) -> None:
    before = backups.site.query("SELECT count(*) FROM images"), backups.states()
    names = given.pop("names", ["web"])
    assert words in " ".join(backups.make(*names, expect=2, **given).split())
    assert (backups.site.query("SELECT count(*) FROM images"), backups.states()) == before
    assert "instance_snapshot" not in {m for host in backups.site.hosts.values() for m in host.asked()}


@pytest.mark.long
def test_what_is_missing_is_named(backups: Backups) -> None:
    play = backups.site.play
    assert "bootflow_backup_name is not set" in play("create_backup", expect=2, names=["web"])
    assert "bootflow_backup_type is not set" in play("create_backup", expect=2, names=["web"], backup_name="b")
    given = {"backup_name": "b", "backup_type": "daily"}
    assert "bootflow_backup_rotation is not set" in play("create_backup", expect=2, names=["web"], **given)
    assert backups.active() == []


@pytest.mark.long
def test_a_root_on_a_volume_is_refused(backups: Backups) -> None:
    with contextlib.closing(sqlite3.connect(backups.site.ledger_path)) as ledger:
        ledger.execute("UPDATE request_specs SET spec = json_set(spec, '$.is_bfv', json('true'))")
        ledger.commit()
    output = " ".join(backups.make(expect=2).split())
    assert "Backup is not supported for volume-backed instances: web" in output
    assert backups.active() == [] and backups.states() == {("active", None)}


def test_a_killed_run_leaves_none(backups: Backups) -> None:
    site = backups.site
    backups.make(backup_rotation=1)
    before = backups.active()
    host = site.hosts[backups.places["web"]]
    host.is_slow("instance_snapshot", 60.0)
    given = {"backup_name": "b", "backup_type": "daily", "backup_rotation": 0}
    process = site.begin("create_backup", names=["web"], **given)
    try:
        site.wait_until(lambda: ("active", "image_backup") in backups.states())
        site.wait_for_module(host.name, "instance_snapshot", process)
    finally:
        site.kill(process)
    assert backups.states() == {("active", None), ("active", "image_backup")}
    host.heal()
    site.play("audit", expect=0)
    assert backups.states() == {("active", None)} and backups.active() == before
    backups.make(backup_rotation=1)
    assert len(backups.active()) == 1 and backups.active() != before
