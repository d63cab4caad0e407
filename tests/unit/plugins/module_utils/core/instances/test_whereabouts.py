# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a guest is whose live migration nobody watched to its end."""

from __future__ import annotations

import itertools

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import moves, power_states
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.moves import Seen, migration_completed

RUNS, OFF = power_states.RUNNING, power_states.SHUTDOWN
SEEN = [
    None,
    Seen(),
    Seen(RUNS),
    Seen(OFF),
    Seen(RUNS, moves.LEAVES),
    Seen(RUNS, moves.COMES),
    *(Seen(OFF, why) for why in (moves.LEFT, moves.ENDED_HERE, moves.FAILED_HERE)),
]


@pytest.mark.parametrize("source, destination", list(itertools.product(SEEN, SEEN)))
def test_laws(source: Seen | None, destination: Seen | None) -> None:
    over = migration_completed(source, destination)
    if destination is not None and destination.goes_on:
        assert over is True
    elif source is None or source.moving == moves.LEAVES:
        assert over is None, "who is on its way, or may be, is nowhere yet"
    elif source.goes_on:
        assert over is False
    elif source.moving == moves.LEFT:
        assert over is True
    elif destination is None or destination.moving == moves.COMES:
        assert over is None, "off here says nothing of there"
    elif source.moving == moves.ENDED_HERE:
        assert over is False, "off on both: it ended where it was"
    elif destination.power_state is None or destination.moving == moves.FAILED_HERE:
        assert over is False, "it never arrived"
    else:
        assert over is True, "off on both, and defined on the new host: it had arrived"


def test_a_paused_guest_goes_on() -> None:
    assert migration_completed(Seen(power_states.POWER_PAUSED), Seen()) is False
    assert migration_completed(Seen(OFF), Seen(power_states.POWER_PAUSED)) is True
    assert migration_completed(Seen(OFF), Seen(power_states.POWER_PAUSED, moves.COMES)) is None


def test_what_is_copied() -> None:
    """source: Nova's _live_migration_data_gb"""
    gib = 1024**3
    assert moves.data_gb(512, []) == 2 and moves.data_gb(8192, []) == 8
    assert moves.data_gb(3072, [gib, 20 * gib]) == 3 + 2 + 20
