# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A controller whose clock is not that of the others must not take over what they work on."""

from __future__ import annotations

import time
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.action import ledger as ledger_action
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.ledger.db import clocks
from ansible_collections.bootflow.compute.tests.unit.worlds.actions import WorldPorts, action_of
from ansible_collections.bootflow.compute.tests.unit.worlds.world import World


@pytest.mark.parametrize("wrong", [0.0, 120.0, -75.0])
def test_how_far_ahead_the_clock_of_the_controller_is(world: World, wrong: float) -> None:
    with world.ledger.read() as tx:
        found = clocks.ahead(tx, lambda: time.time() + wrong)
        is_server = tx.dialect.name == "postgresql"
    assert found == pytest.approx(wrong if is_server else 0.0, abs=0.9)
    assert found == 0.0 or wrong, "the clock of the same machine"


def test_what_an_answer_that_takes_long_hides(world: World) -> None:
    with world.ledger.read() as tx:
        times = iter((time.time() - 3.0, time.time() + 5.0))
        assert clocks.ahead(tx, lambda: next(times)) == 0.0


@pytest.mark.parametrize(
    ("wrong", "warned", "refused"),
    [
        (0.0, "", ""),
        (30.0, "30 s ahead of", ""),
        (-30.0, "30 s behind", ""),
        (61.0, "", "61 s ahead"),
        (-90.0, "", "90 s behind"),
    ],
)
def test_clocks_that_differ_are_told_and_refused_where_leases_do_not_allow_for_it(
    world: World, wrong: float, warned: str, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "ahead", lambda _tx: wrong)

    def opened(check_mode: bool = False, **options: t.Any) -> list[str]:
        ports = WorldPorts(world, "a")
        action_of(ledger_action, ports, {}, check_mode, **options).act()
        return ports.warnings

    if refused:
        with pytest.raises(errors.ClocksDiffer, match=refused) as caught:
            opened()
        assert "leases allow for 60 s" in caught.value.message and not caught.value.retryable
        assert refused in opened(check_mode=True)[0], "nothing is written"
    else:
        assert [warned in text for text in opened()] == [True] * bool(warned)
