# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What becomes of an instance in a resize, a cold migration and a revert: all combinations of answers."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.verdicts import cold
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.verdicts.answer import Answer, silence
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.verdicts.cold import Move, Verdict

from .outcomes import FAILED, RUNNING, expanded, said

WORDS = ("answer", "error", "silence")
#: Of the destination at last: it failed and has nothing of the instance, or failed and may have something.
SETTLED = ("answer", "cleaned", "error", "silence")

# Where the instance is, vm_state, power_state, whether it failed, and whether the destination owes a cleanup. Nova casts from stage to stage:
# where a host dies, nobody notices, and the instance stays in its task_state until somebody resets it or the host starts again.
OVER = """
answer  answer  answer  *        | destination resized RUNNING           | resized on the destination (finish_resize)
answer  answer  error   *        | destination resized NOSTATE failed    | ERROR on the destination: finish_resize failed
answer  answer  silence *        | destination resized NOSTATE failed    | stays in resize_finish on the destination
answer  answer  cleaned answer   | source active RUNNING failed          | ERROR on the destination: finish_resize failed
answer  answer  cleaned error    | source active NOSTATE failed          | ERROR on the destination: finish_resize failed
answer  answer  cleaned silence  | source active NOSTATE failed          | ERROR on the destination: finish_resize failed
answer  error/silence answer answer    | source active RUNNING failed owes | migrate_disk_and_power_off failed: back to ACTIVE, or ERROR on the source
answer  error/silence answer error     | source active NOSTATE failed owes | ERROR on the source
answer  error/silence answer silence   | source active NOSTATE failed owes | stays in resize_migrating
answer  error/silence cleaned answer   | source active RUNNING failed | migrate_disk_and_power_off failed: back to ACTIVE, or ERROR on the source
answer  error/silence cleaned error    | source active NOSTATE failed | ERROR on the source
answer  error/silence cleaned silence  | source active NOSTATE failed | stays in resize_migrating
answer  error/silence error/silence answer  | source active RUNNING failed owes | ERROR on the source; the destination keeps what was copied
answer  error/silence error/silence error   | source active NOSTATE failed owes | ERROR on the source; the destination keeps what was copied
answer  error/silence error/silence silence | source active NOSTATE failed owes | stays in resize_migrating
error/silence *     *       answer   | source active RUNNING failed  | resize_instance failed: back to ACTIVE, or ERROR on the source
error/silence *     *       error    | source active NOSTATE failed  | ERROR on the source
error/silence *     *       silence  | source active NOSTATE failed  | stays in resize_migrating
"""
# A resize on one host: its source has to give back what was there before, and owes a cleanup of the new part where it does not.
ON_ONE_HOST = OVER.replace(
    "answer  answer  cleaned error    | source active NOSTATE failed ",
    "answer  answer  cleaned error    | source active NOSTATE failed owes",
).replace(
    "answer  answer  cleaned silence  | source active NOSTATE failed ",
    "answer  answer  cleaned silence  | source active NOSTATE failed owes",
)
# answer of the destination, answer of the source
REVERT = """
cleaned answer   | source active RUNNING            | the old vm_state on the source (finish_revert_resize)
cleaned error    | source active NOSTATE failed     | ERROR on the source: finish_revert_resize failed
cleaned silence  | source active NOSTATE failed     | stays in resize_reverting
error   *        | destination resized NOSTATE failed | ERROR on the destination: revert_resize failed
silence *        | destination resized NOSTATE failed | stays in resize_reverting
"""
# The same where the destination is forced down.
REVERT_FROM_LOST = REVERT.replace(
    "silence *        | destination resized NOSTATE failed | stays in resize_reverting",
    """silence answer   | source active RUNNING owes       | stays in resize_reverting: revert_resize runs on the dead host
    silence error    | source active NOSTATE failed owes | stays in resize_reverting: revert_resize runs on the dead host
    silence silence  | source active NOSTATE failed owes | stays in resize_reverting: revert_resize runs on the dead host""",
)
REVERT_ON_ONE_HOST = REVERT.replace(
    "error    | source active NOSTATE failed  ", "error    | source active NOSTATE failed owes  "
).replace("silence  | source active NOSTATE failed  ", "silence  | source active NOSTATE failed owes  ")


def settled_answer(word: str, host: str, its: Move) -> Answer:
    if word == "cleaned":  # of a revert it is the success
        return {"cleaned": True} if its.reverts else {"cleaned": True, "error": FAILED}
    return said(word, host, RUNNING, {"cleaned": False, "error": FAILED})


def outcome_of(its: Move, departed: Answer, arrived: Answer, settled: Answer, returned: Answer) -> str:
    """Return what comes of an instance of this run alone, which the ledger takes to its destination and back as it is asked to."""
    arrival = cold.Arrival(True, None) if its.reverts else cold.arrival(departed, arrived)
    switched = not its.reverts and arrival.error is None
    verdict = cold.settled(its, switched, arrival.reached, arrival.error, settled)
    starts = not verdict.stays and cold.starts_at_source(its, verdict.comes_back, False, False)
    restores = verdict.comes_back and its.on_one_host
    end = cold.ending(verdict, returned, starts, restores)
    there = verdict.stays
    words = ["destination" if there else "source", cold.vm_state(states.ACTIVE, there, end)]
    words += ["RUNNING" if end.power_state == states.RUNNING else "NOSTATE"]
    words += ["failed"] if end.error is not None else []
    words += ["owes"] if verdict.ignored_error or not (there or end.cleaned) else []
    return " ".join(words)


@pytest.mark.parametrize(
    ("table", "its"),
    [(OVER, Move("h1", "h2", True)), (ON_ONE_HOST, Move("h1", "h1", True))],
    ids=["to another host", "on one host"],
)
def test_a_move(table: str, its: Move) -> None:
    for words, outcome in expanded(table, [WORDS, WORDS, SETTLED, WORDS]).items():
        answers = (
            said(words[0], its.source, {"files": []}),
            said(words[1], its.destination, {"changed": True}),
            settled_answer(words[2], its.destination, its),
            said(words[3], its.source, RUNNING),
        )
        assert outcome_of(its, *answers) == outcome, words


@pytest.mark.parametrize(
    ("table", "its"),
    [
        (REVERT, Move("h1", "h2", True, reverts=True)),
        (REVERT_FROM_LOST, Move("h1", "h2", True, reverts=True, forced_down=True)),
        (REVERT_ON_ONE_HOST, Move("h1", "h1", True, reverts=True)),
        (REVERT_ON_ONE_HOST, Move("h1", "h1", True, reverts=True, forced_down=True)),
    ],
    ids=["to another host", "from a lost host", "on one host", "on one host that is forced down"],
)
def test_a_revert(table: str, its: Move) -> None:
    for words, outcome in expanded(table, [SETTLED[1:], WORDS]).items():
        answers = settled_answer(words[0], its.destination, its), said(words[1], its.source, RUNNING)
        assert outcome_of(its, {}, {}, *answers) == outcome, words


def test_the_error_is_that_of_the_first_stage_that_failed() -> None:
    first, second = (errors.LibvirtError(reason=r).as_dict() for r in ("first", "second"))
    its = Move("h1", "h2", True)
    assert cold.arrival({"error": first}, {"error": second}) == (False, first)
    verdict = cold.settled(its, False, True, first, {"error": second, "cleaned": True})
    assert verdict.error == first and "first" in str(cold.ending(verdict, {"error": second}, True, False).error)
    verdict = cold.settled(its, True, True, None, {"error": first, "cleaned": True})
    assert "first" in str(cold.ending(verdict, {"error": second}, True, False).error)


def test_a_destination_that_answers_nonsense_is_not_lost() -> None:
    its = Move("h1", "h2", True, reverts=True, forced_down=True)
    nonsense = errors.InvalidAnswer(message="x").as_dict()
    assert cold.settled(its, False, True, None, {"error": nonsense}).stays
    verdict = cold.settled(its, False, True, None, silence("h2"))
    assert verdict.comes_back and verdict.ignored_error and verdict.error is None


def test_a_silent_destination_of_a_revert_is_to_be_forced_down() -> None:
    its = Move("h1", "h2", True, reverts=True)
    verdict = cold.settled(its, False, True, None, silence("h2"))
    assert verdict.error and verdict.error["remedy"].endswith(cold.IF_LOST % "h2")
    assert "force" not in cold.settled(Move("h1", "h2", True), True, True, None, silence("h2")).error["remedy"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("runs", "came_back", "was_off", "taken_over", "starts"),
    [
        (True, False, False, False, True),
        (True, False, True, False, False),
        (True, True, True, False, True),
        (True, True, False, True, False),
        (False, True, False, False, False),
    ],
)
def test_the_source_starts_what_ran(runs: bool, came_back: bool, was_off: bool, taken_over: bool, starts: bool) -> None:
    assert cold.starts_at_source(Move("h1", "h2", runs), came_back, was_off, taken_over) is starts


@pytest.mark.parametrize(
    ("returned", "vm_state", "failed"),
    [
        (RUNNING, states.ACTIVE, False),
        ({"power_state": states.SHUTDOWN}, states.STOPPED, False),
        ({"power_state": states.NOSTATE, "error": FAILED}, states.ERROR, True),
        ({"error": errors.InstanceNotFound(instance_id="x").as_dict()}, states.ERROR, True),
        ({"error": FAILED}, states.ACTIVE, True),
        (silence("h1"), states.ACTIVE, True),
    ],
)
def test_the_guest_at_the_source(returned: dict[str, t.Any], vm_state: str, failed: bool) -> None:
    end = cold.ending(Verdict(), returned, starts=True, restores=False)
    assert (cold.vm_state(states.ACTIVE, False, end), end.error is not None) == (vm_state, failed)


@pytest.mark.parametrize("returned", [silence("h1"), {}])
def test_a_guest_that_was_off_needs_no_answer(returned: dict[str, t.Any]) -> None:
    end = cold.ending(Verdict(), returned, starts=False, restores=False)
    assert end == (states.SHUTDOWN, None, True, False) and cold.vm_state(states.STOPPED, False, end) == states.STOPPED
    failed = cold.ending(Verdict(), returned or {"error": FAILED}, starts=False, restores=True)
    assert failed.error is not None and not failed.cleaned
