# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What becomes of an instance in a live migration: all combinations of answers."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.verdicts import live
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.verdicts.answer import Answer, silence
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.verdicts.ending import Ending
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.verdicts.live import Passage, Tries

from .outcomes import FAILED, RUNNING, expanded, said

WORDS = ("answer", "error", "silence")
PREPARED = ("answer", "refusal", "error", "silence")
#: Of the source: the migration failed, and the guest stays; or nobody knows.
MIGRATED = ("answer", "stays", "error", "silence")
#: Of the destination at last: what it says of a guest that came, or of one that it was cleaned of.
SETTLED = ("answer", "cleaned", "error", "silence")
FIRST, LAST, NAMED = Tries(False, 1, 3), Tries(False, 3, 3), Tries(True, 1, 3)
CPU = {"error": errors.InvalidCPUInfo(reason="x").as_dict()}

# What the ledger is told after the stage migrate. The stages: look, prepare, migrate.
PASSAGE = """
answer answer  answer        | left             | _post_live_migration: the instance is on the destination
answer answer  stays         | failed reached   | _rollback_live_migration: task_state none, on the source
answer answer  error/silence | unknown reached  | an error rolls back; where the source dies the instance stays in task_state migrating
answer refusal/silence *     | refused reached  | MigrationPreCheckError, or no answer in time: the conductor tries the next host
answer error   *             | failed reached   | pre_live_migration failed: rollback, on the source
error/silence  *       *     | failed           | check_can_live_migrate_source failed: other hosts are tried, then task_state none, on the source
"""

# What comes of it. Where the guest is, settle, clean.
ENDING = """
left    answer          *       | destination active RUNNING                 | active on the destination
left    cleaned/error/silence * | destination active PAUSED                  | active on the destination; post_live_migration_at_destination failed: ERROR
failed  cleaned         answer  | source active RUNNING failed               | active on the source, migration error
failed  cleaned         error/silence | source active NOSTATE failed         | active on the source, migration error
failed  answer/error/silence answer  | source active RUNNING failed owes     | active on the source; rollback_live_migration_at_destination is a cast
failed  answer/error/silence error/silence | source active NOSTATE failed owes | active on the source; rollback_live_migration_at_destination is a cast
away    *               answer  | source active RUNNING failed               | active on the source, migration error
away    *               error/silence | source active NOSTATE failed         | active on the source, migration error
"""


def prepared(word: str) -> Answer:
    return CPU if word == "refusal" else said(word, "h2", {"devices": {}})


def migrated(word: str) -> Answer:
    return {"stays": True, "error": FAILED} if word == "stays" else said(word, "h1", RUNNING)


def passed(its: Passage) -> str:
    assert bool(its.error) is not its.arrived, "each one that is not there has an error"
    state = "left" if its.arrived else "unknown" if its.unknown else "refused" if its.refused else "failed"
    return state + (" reached" if its.reached and not its.arrived else "")


@pytest.mark.parametrize("tries", [FIRST, LAST, NAMED], ids=["first host", "last host", "named host"])
def test_a_passage(tries: Tries) -> None:
    for words, outcome in expanded(PASSAGE, [WORDS, PREPARED, MIGRATED]).items():
        look = said(words[0], "h1", {"guest": {}})
        its = live.passage(look, prepared(words[1]), migrated(words[2]), tries)
        expected = outcome if tries is FIRST else outcome.replace("refused", "failed")
        assert passed(its) == expected, words


def test_an_ending() -> None:
    for (place, settle, clean), outcome in expanded(ENDING, [("left", "failed", "away"), SETTLED, WORDS]).items():
        settled = (
            {"cleaned": True}
            if settle == "cleaned"
            else said(settle, "h2", RUNNING, {"cleaned": False, "error": FAILED})
        )
        over, error = place == "left", None if place == "left" else FAILED
        its = live.ending(over, place != "away", error, states.POWER_PAUSED, settled, said(clean, "h1", RUNNING))
        words = ["destination" if over else "source", live.vm_state(states.ACTIVE, its.error is not None, its)]
        words += [{states.RUNNING: "RUNNING", states.POWER_PAUSED: "PAUSED"}.get(its.power_state, "NOSTATE")]
        words += ["failed"] if its.error is not None else []
        words += [] if its.cleaned else ["owes"]
        assert " ".join(words) == outcome, (place, settle, clean)


@pytest.mark.parametrize(
    ("cleaned", "error", "vm_state"),
    [
        ({"power_state": states.NOSTATE}, FAILED, states.ERROR),
        ({"power_state": states.POWER_PAUSED}, FAILED, states.PAUSED),
        ({"error": FAILED}, FAILED, states.PAUSED),
        ({"error": FAILED}, errors.InstanceNotFound(instance_id="x").as_dict(), states.ERROR),
        (silence("h1"), FAILED, states.PAUSED),
    ],
)
def test_a_guest_that_is_gone_from_its_source(cleaned: Answer, error: dict[str, t.Any], vm_state: str) -> None:
    its = live.ending(False, True, error, states.NOSTATE, {"cleaned": True}, cleaned)
    assert live.vm_state(states.PAUSED, True, its) == vm_state


def test_a_guest_that_came_and_is_gone_is_no_failure() -> None:
    its = live.ending(True, True, None, states.RUNNING, {"power_state": states.NOSTATE}, {})
    assert its == (states.NOSTATE, None, True, True) and live.vm_state(states.ACTIVE, False, its) == states.ACTIVE


@pytest.mark.parametrize(
    ("its", "with_volumes", "again"),
    [
        (Ending(states.RUNNING, errors.InvalidCPUInfo(reason="x")), True, True),
        (Ending(states.RUNNING, errors.InvalidCPUInfo(reason="x"), cleaned=False), False, True),
        (Ending(states.RUNNING, errors.InvalidCPUInfo(reason="x"), cleaned=False), True, False),
        (Ending(states.NOSTATE, errors.InvalidCPUInfo(reason="x"), domain_missing=True), False, False),
        (Ending(states.RUNNING), False, False),
    ],
)
def test_a_guest_may_try_again(its: Ending, with_volumes: bool, again: bool) -> None:
    assert live.may_try_again(its, with_volumes) is again
