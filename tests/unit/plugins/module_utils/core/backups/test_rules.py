# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which backup is full and why, what an increment needs, and what retention deletes."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.backups import backup, retention
from ansible_collections.bootflow.compute.plugins.module_utils.core.backups.backup import Backup, choose
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import BackupInUse, BackupNotFound


def made(
    name: str,
    parent: str | None = None,
    state: str = backup.COMPLETE,
    host: str = "h1",
    checkpoint: bool = True,
    damage: str = "",
) -> Backup:
    """A backup whose age follows from its name, as b1, b2."""
    kind = backup.FULL if parent is None else backup.INCREMENTAL
    mark = "bootflow-" + name if checkpoint else ""
    return Backup(name, parent, kind, state, host, float(name[1:]), mark, "why", damage)


def ids(backups: list[Backup]) -> list[str]:
    return [b.id for b in backups]


def test_an_increment_needs_the_whole_chain_of_the_newest() -> None:
    chain = [made("b1"), made("b2", "b1"), made("b3", "b2")]
    choice = choose(chain[::-1], "h1", False, 30)
    assert choice.reason == "" and ids(list(choice.chain)) == ["b1", "b2", "b3"]
    assert choice.parent is not None and choice.parent.id == "b3"


def test_the_first_one_is_full() -> None:
    assert choose([], "h1", False, 30).reason == backup.NO_PARENT
    assert choose([made("b1", state=backup.FAILED), made("b2", state=backup.RUNNING)], "h1", False, 30).chain == ()


def test_a_person_asks_for_a_full_one() -> None:
    choice = choose([made("b1")], "h1", True, 30)
    assert choice.parent is None and choice.reason == "bootflow_backup_full is set"


def test_a_failed_one_is_no_parent() -> None:
    choice = choose([made("b1"), made("b2", "b1", backup.FAILED)], "h1", False, 30)
    assert choice.parent is not None and choice.parent.id == "b1"


def test_an_increment_of_a_deleted_backup_is_no_parent() -> None:
    choice = choose([made("b1", state=backup.DELETING), made("b2", "b1")], "h1", False, 30)
    assert choice.parent is None and "one that it needs is missing" in choice.reason
    assert choose([made("b2", "b1")], "h1", False, 30).parent is None


def test_a_chain_ends_at_its_length() -> None:
    chain = [made("b1"), made("b2", "b1"), made("b3", "b2")]
    choice = choose(chain, "h1", False, 3)
    assert choice.parent is None and "3 backups need each other" in choice.reason
    assert choose(chain, "h1", False, 4).parent is not None


def test_an_instance_that_moved_gets_a_full_one() -> None:
    assert choose([made("b1", host="h2")], "h1", False, 30).reason == "the last backup was made on host h2"


def test_a_backup_of_a_stopped_guest_does_not_end_the_chain() -> None:
    cold = made("b2", checkpoint=False)
    choice = choose([made("b1"), cold], "h1", False, 30)
    assert choice.parent is not None and choice.parent.id == "b1"
    assert choose([cold], "h1", False, 30).reason == "the last backup has no checkpoint: why"


def test_a_loop_of_parents_is_no_chain() -> None:
    backups = [made("b1", "b2"), made("b2", "b1")]
    assert choose(backups, "h1", False, 30).parent is None


def test_retention_keeps_what_kept_ones_need() -> None:
    backups = [made("b1"), made("b2", "b1"), made("b3"), made("b4", "b3"), made("b5", "b4")]
    assert ids(retention.beyond(backups, 1)) == ["b2", "b1"]
    assert ids(retention.beyond(backups, 3)) == ["b2", "b1"]
    assert ids(retention.beyond(backups, 4)) == []
    assert ids(retention.beyond(backups, 0)) == ["b5", "b4", "b3", "b2", "b1"]


def test_retention_keeps_the_parent_of_one_that_is_being_made() -> None:
    backups = [made("b1"), made("b2", "b1"), made("b3", "b1", backup.RUNNING)]
    assert ids(retention.beyond(backups, 0)) == ["b2"]
    with pytest.raises(BackupInUse):
        retention.named(backups, ["b1", "b2"])


def test_only_whole_ends_of_chains_are_deleted_by_name() -> None:
    backups = [made("b1"), made("b2", "b1"), made("b3", "b2")]
    assert ids(retention.named(backups, ["b2", "b3"])) == ["b3", "b2"]
    with pytest.raises(BackupInUse, match="b3 has only what was written after it"):
        retention.named(backups, ["b2"])
    with pytest.raises(BackupNotFound):
        retention.named(backups, ["b9"])


@pytest.mark.parametrize("damaged", ["b1", "b2", "b3"])
def test_nothing_follows_on_a_chain_with_a_damaged_backup(damaged: str) -> None:
    parents = {"b1": None, "b2": "b1", "b3": "b2"}
    by_id = {n: made(n, p, damage="bad sectors" if n == damaged else "") for n, p in parents.items()}
    choice = choose(list(by_id.values()), "h1", False, 30)
    assert choice.parent is None and "not usable" in choice.reason and "bad sectors" in choice.reason
    whole = [n for n in by_id if backup.chain_of(by_id[n], by_id) is not None]
    assert whole == [n for n in by_id if n < damaged], "what was made before it is restored"
    assert [n for n in by_id if not backup.damage_of(by_id[n], by_id)] == whole


def test_backups_that_cannot_be_restored_are_not_kept_in_the_place_of_good_ones() -> None:
    backups = [made("b1"), made("b2", damage="gone"), made("b3", "b2"), made("b4"), made("b5", damage="gone")]
    assert ids(retention.beyond(backups, 1)) == ["b3", "b2", "b1"], "b5 may be put back as it was"
    assert ids(retention.beyond(backups, 2)) == []
    assert ids(retention.beyond(backups[:3], 1)) == [], "the only good one stays"
    assert ids(retention.beyond(backups, 0)) == ["b5", "b4", "b3", "b2", "b1"]
