# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.weighers.base import Changes, Weigher
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.weighing import Ranking
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples

from .reference import make_options


class Numbers(Weigher):
    """Weighs by a list that the test may change."""

    def __init__(self, values, minval=None, maxval=None, multiplier=1.0, per_host=True):
        super().__init__(make_options())
        self.values = np.array(values, dtype=float)
        self.minval, self.maxval, self.multiplier, self.per_host = minval, maxval, multiplier, per_host

    def raw(self, fleet, spec, rows):
        return self.values[rows]


def ranking(*weighers):
    return Ranking(None, None, np.arange(len(weighers[0].values)), weighers)


@pytest.mark.parametrize(
    ("values", "minval", "maxval", "expected"),
    [
        ([1, 2, 3], None, None, [0, 0.5, 1]),
        ([3000, 3000], 0, None, [1, 1]),
        ([3000, 3000], None, None, [0, 0]),
        ([0, 0], 0, None, [0, 0]),
        ([-5, -3], 0, None, [0, 1]),  # below the fixed end: the scale is stretched
        ([-5, -5], 0, None, [0, 0]),
        ([-100, 0, 100], 0, None, [0, 0.5, 1]),
        ([1, 2], 0, 4, [0.25, 0.5]),
        ([1, 8], 0, 4, [0.125, 1]),
        ([50, 100], 0, None, [0.5, 1]),
    ],
)
def test_normalisation(values, minval, maxval, expected):
    made = ranking(Numbers(values, minval, maxval))
    assert made.score.tolist() == pytest.approx(expected)


def test_sum_of_multiplied_parts():
    made = ranking(Numbers([0, 1], multiplier=2), Numbers([4, 0], multiplier=-0.5), Numbers([7, 7], multiplier=9))
    assert made.score.tolist() == [-0.5, 2.0]
    assert made.order.tolist() == [1, 0]


def test_one_host_is_not_weighed():
    assert ranking(Numbers([5], minval=0)).score.tolist() == [0.0]


@settings(max_examples=examples(300), deadline=None)
@given(
    st.integers(1, 8).flatmap(
        lambda n: st.tuples(*[st.lists(st.sampled_from([-3, 0, 0.1, 0.3, 1, 5]), min_size=n, max_size=n)] * 2)
    ),
    st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from([-4, 0, 0.1, 0.3, 2, 9]), st.sampled_from([0, 0, 0, 1, 5])),
        max_size=25,
    ),
    st.booleans(),
)
def test_any_history_of_changes_equals_weighing_anew(columns, steps, per_host):
    """Picks from any place, changes up and down, and hosts that leave."""
    weighers = [Numbers(columns[0], minval=0), Numbers(columns[1], multiplier=-0.7, per_host=per_host)]
    made = ranking(*weighers)
    order = _sorted(weighers, list(range(len(columns[0]))))
    for place, value, leaves in steps:
        if not order:
            break
        place %= len(order)
        row = order.pop(place)
        order.insert(0, row)
        assert made.pick(place) == row
        weighers[0].values[row] = value
        weighers[1].values[row] -= 1
        if leaves == 1:
            made.drop(row)
            order.remove(row)
        elif leaves > 1:
            gone = [r for r in order if r % leaves]
            made.keep(~np.isin(made.rows, gone))
            order = [r for r in order if r not in gone]
        made.update(row)
        order = _sorted(weighers, order)
        assert [int(made.rows[p]) for p in made.order] == order
        assert made.rows.tolist() == sorted(order)
        assert made.score.tolist() == [_weight(weighers, r, order) for r in sorted(order)]


def _sorted(weighers, order):
    return sorted(order, key=lambda r: -_weight(weighers, r, order))


def _weight(weighers, row, rows):
    rows = list(rows)
    if len(rows) <= 1:
        return 0.0
    total = 0.0
    for weigher in weighers:
        seen = [float(weigher.values[r]) for r in rows]
        lo, hi = min(seen), max(seen)
        if weigher.minval is not None:
            lo = min(lo, weigher.minval)
        if lo != hi:
            total += weigher.multiplier * ((float(weigher.values[row]) - lo) / (hi - lo))
    return total


@settings(max_examples=examples(200), deadline=None)
@given(
    st.integers(2, 7).flatmap(
        lambda n: st.tuples(
            st.lists(st.sampled_from([-3, 0, 0.1, 0.3, 1, 5]), min_size=n, max_size=n),
            st.lists(st.sampled_from([-2.0, 0.0, 0.7, 3.0]), min_size=n, max_size=n),
        )
    ),
    st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from([-4, 0, 0.1, 0.3, 2, 9]), st.sampled_from([0, 0, 0, 1, 3])),
        max_size=20,
    ),
)
def test_multipliers_may_differ_from_host_to_host(columns, steps):
    """They go with their hosts, whoever leaves."""
    weighers = [PerHost(columns[0], columns[1], minval=0), Numbers(columns[0], multiplier=0.5)]
    made = ranking(*weighers)
    left = list(range(len(columns[0])))
    for place, value, leaves in steps:
        if not len(made):
            break
        row = made.pick(place % len(made))
        weighers[0].values[row] = value
        if leaves == 1:
            made.drop(row)
            left.remove(row)
        elif leaves:
            made.keep(made.rows % leaves != 0)
            left = [r for r in left if r % leaves]
        made.update(row)
        assert made.rows.tolist() == left
        if len(left) > 1:
            fresh = Ranking(None, None, np.array(left), weighers)
            assert made.score.tolist() == fresh.score.tolist()
            scores = made.score[made.order].tolist()
            assert scores == sorted(scores, reverse=True)


class PerHost(Numbers):
    def __init__(self, values, multipliers, **more):
        super().__init__(values, **more)
        self.of_hosts = np.array(multipliers)

    def multipliers(self, fleet, rows):
        return self.of_hosts[rows]


def test_what_no_pick_changes_is_not_asked_again():
    class Fixed(Numbers):
        asked = 0

        def raw(self, fleet, spec, rows):
            self.asked += 1
            return super().raw(fleet, spec, rows)

        def changes(self, fleet, spec):
            return Changes.NONE

    fixed = Fixed([3, 1, 2])
    made = ranking(fixed)
    for _each in range(4):
        made.update(made.pick())
    assert fixed.asked == 1
