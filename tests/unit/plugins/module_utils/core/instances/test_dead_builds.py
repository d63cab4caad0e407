# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A build of a dead run by what its host says: no guest that is built is removed."""

from __future__ import annotations

import itertools

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import moves
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.dead_builds import (
    ADOPT,
    CLEAN,
    KEEP,
    WAIT,
    Seen,
    seen_in,
    verdict,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.power_states import POWER_STATES

POWERS = (None, *POWER_STATES)


@pytest.mark.parametrize(
    ("is_complete", "power_state", "moving", "in_ledger"),
    list(itertools.product((False, True), POWERS, ("", *moves.MOVING), (False, True))),
)
def test_what_becomes_of_a_build(is_complete: bool, power_state: int | None, moving: str, in_ledger: bool) -> None:
    seen = Seen(is_complete, power_state, "web", moving)
    if moving in (moves.LEAVES, moves.COMES):
        wanted = WAIT
    elif not is_complete:
        wanted = CLEAN
    elif power_state is None or moving == moves.LEFT or not in_ledger:
        wanted = KEEP
    else:
        wanted = ADOPT
    assert verdict(seen, in_ledger) == wanted
    assert verdict(Seen(is_complete, power_state, "web", moving, at_work=True), in_ledger) == WAIT


def test_what_a_report_says() -> None:
    domain = {"uuid": "a", "name": "web", "power_state": 4, "moving": moves.ENDED_HERE}
    facts = {"domains": [domain, {"uuid": "b", "name": "db", "power_state": 1}], "complete_guests": ["a", "c"]}
    assert seen_in({**facts, "at_work": ["d"]}) == {
        "a": Seen(True, 4, "web", moves.ENDED_HERE),
        "b": Seen(False, 1, "db"),
        "c": Seen(True),
        "d": Seen(at_work=True),
    }
    assert seen_in({}) == {}
