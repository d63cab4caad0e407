# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes import quotas

TYPES = ("lvm", "fast")


def limits(given_=None, project="p"):
    return quotas.limits_of(given_, project, TYPES)


def test_cinders_defaults():
    found = limits()
    assert (found["volumes"], found["snapshots"], found["gigabytes"]) == (10, 10, 1000)
    assert found["per_volume_gigabytes"] == -1
    assert found["volumes_lvm"] == found["gigabytes_fast"] == found["snapshots_lvm"] == -1


def test_projects_have_limits_of_their_own_and_instances_are_left_alone():
    given_ = {"volumes": "3", "instances": 7, "projects": {"p": {"gigabytes_fast": 5, "cores": 1}, "q": {"volumes": 0}}}
    assert (limits(given_)["volumes"], limits(given_)["gigabytes_fast"]) == (3, 5)
    assert limits(given_, "q")["volumes"] == 0
    assert "instances" not in limits(given_)


@pytest.mark.parametrize(
    "bad",
    [
        {"volumes": -2},
        {"volumes": "x"},
        {"volumes": "--1"},
        {"volumes": "\u00b2"},
        {"volumes": True},
        {"volumes": 2**31},
        {"gigabytes_gone": 1},
        {"projects": []},
        {"projects": [1]},
        {"projects": {"p": 5}},
        [1],
        5,
    ],
)
def test_bad_limits(bad):
    if isinstance(bad, dict) and not bad.get("projects", True):
        assert limits(bad) == limits()
        return
    with pytest.raises(errors.InvalidInput):
        limits(bad)


def test_what_is_taken():
    assert quotas.for_volume(5, "lvm") == {"volumes": 1, "gigabytes": 5, "volumes_lvm": 1, "gigabytes_lvm": 5}
    assert quotas.for_volume(5, None) == {"volumes": 1, "gigabytes": 5}
    assert quotas.for_snapshot(5, "lvm") == {"snapshots": 1, "gigabytes": 5, "snapshots_lvm": 1, "gigabytes_lvm": 5}
    assert quotas.for_snapshot(5, "lvm", no_snapshot_gb_quota=True) == {"snapshots": 1, "snapshots_lvm": 1}
    assert quotas.for_extend(5, 8, "lvm") == {"gigabytes": 3, "gigabytes_lvm": 3}


def create(size, volume_type, used, limits):
    quotas.check_size(size, limits)
    amounts = quotas.for_volume(size, volume_type)
    quotas.check_reserve(amounts, used, limits, quotas.VOLUMES, size)
    return amounts


def snapshot(size, volume_type, used, limits, no_snapshot_gb_quota=False):
    amounts = quotas.for_snapshot(size, volume_type, no_snapshot_gb_quota)
    quotas.check_reserve(amounts, used, limits, quotas.SNAPSHOTS, size)
    return amounts


def extend(size, new_size, volume_type, used, limits):
    quotas.check_size(new_size, limits)
    amounts = quotas.for_extend(size, new_size, volume_type)
    quotas.check_reserve(amounts, used, limits, quotas.VOLUMES, new_size - size)
    return amounts


CASES = [
    # size, type, used, limits, error, text
    (5, None, {}, {"gigabytes": 5}, None, ""),
    (6, None, {}, {"gigabytes": 5}, errors.VolumeSizeExceedsAvailableQuota,
     "Requested volume or snapshot exceeds allowed gigabytes quota. Requested 6G, quota is 5G and 0G has been consumed."),
    (1, None, {"volumes": 10}, {}, errors.VolumeLimitExceeded,
     "Maximum number of volumes allowed (10) exceeded for quota 'volumes'."),
    (6, None, {"volumes": 10, "gigabytes": 3}, {"gigabytes": 5}, errors.VolumeSizeExceedsAvailableQuota,
     "quota is 5G and 3G has been consumed"),
    (6, "fast", {"gigabytes_fast": 2}, {"gigabytes_fast": 5}, errors.VolumeSizeExceedsAvailableQuota,
     "allowed gigabytes_fast quota. Requested 6G"),
    (6, "lvm", {"gigabytes_fast": 2}, {"gigabytes_fast": 5}, None, ""),
    (1, "fast", {"volumes_fast": 2}, {"volumes_fast": 2}, errors.VolumeLimitExceeded, "(2) exceeded for quota 'volumes_fast'"),
    (1, "fast", {"volumes_fast": 2, "volumes": 3}, {"volumes_fast": 2, "volumes": 3}, errors.VolumeLimitExceeded,
     "(3) exceeded for quota 'volumes'"),
    (6, None, {}, {"per_volume_gigabytes": 5, "gigabytes": 1}, errors.VolumeSizeExceedsLimit,
     "Requested volume size 6G is larger than maximum allowed limit 5G."),
    (5, None, {}, {"per_volume_gigabytes": 5}, None, ""),
    (10**6, "fast", {"volumes": 10**6}, {"volumes": -1, "gigabytes": -1}, None, ""),
    (1, None, {}, {"volumes": 0}, errors.VolumeLimitExceeded, "(0) exceeded"),
]  # fmt: skip


@pytest.mark.parametrize(("size", "volume_type", "used", "given_", "error", "text"), CASES)
def test_a_new_volume(size, volume_type, used, given_, error, text):
    if error is None:
        assert create(size, volume_type, used, limits(given_)) == quotas.for_volume(size, volume_type)
        return
    with pytest.raises(error) as caught:
        create(size, volume_type, used, limits(given_))
    assert text in caught.value.message
    assert caught.value.status == 413
    assert isinstance(caught.value, errors.OverQuota)


def test_snapshots_and_growth():
    with pytest.raises(errors.SnapshotLimitExceeded, match=r"Maximum number of snapshots allowed \(10\) exceeded"):
        snapshot(1, None, {"snapshots": 10}, limits())
    with pytest.raises(errors.VolumeSizeExceedsAvailableQuota, match="Requested 5G, quota is 1000G and 996G"):
        snapshot(5, None, {"snapshots": 10, "gigabytes": 996}, limits())
    assert snapshot(5, None, {"gigabytes": 996}, limits(), no_snapshot_gb_quota=True) == {"snapshots": 1}
    assert extend(5, 9, None, {"gigabytes": 996}, limits()) == {"gigabytes": 4}
    with pytest.raises(errors.VolumeSizeExceedsAvailableQuota, match="Requested 5G, quota is 1000G and 996G"):
        extend(5, 10, None, {"gigabytes": 996}, limits())
    with pytest.raises(errors.VolumeSizeExceedsLimit):
        extend(5, 10, None, {}, limits({"per_volume_gigabytes": 9}))


def test_the_quota_that_growth_exceeds_is_named():
    """Cinder tells of gigabytes here, whichever it was."""
    with pytest.raises(
        errors.VolumeSizeExceedsAvailableQuota, match="gigabytes_fast quota. Requested 2G, quota is 5G and 4G"
    ):
        extend(1, 3, "fast", {"gigabytes": 7, "gigabytes_fast": 4}, limits({"gigabytes_fast": 5}))
    with pytest.raises(
        errors.VolumeSizeExceedsAvailableQuota, match="allowed gigabytes quota. Requested 2G, quota is 8G and 7G"
    ):
        extend(1, 3, "fast", {"gigabytes": 7}, limits({"gigabytes_fast": 1, "gigabytes": 8}))


@pytest.mark.parametrize("size", ["5", None, 5.0, True, [5]])
def test_sizes_are_whole_numbers(size):
    for call in (
        lambda: create(size, None, {}, limits()),
        lambda: create(size, None, {}, limits({"per_volume_gigabytes": 5})),
        lambda: snapshot(size, None, {}, limits()),
        lambda: extend(1, size, None, {}, limits()),
    ):
        with pytest.raises(errors.InvalidInput, match="is not a size in whole GiB"):
            call()


def test_something_unexpected():
    with pytest.raises(errors.UnexpectedOverQuota, match="Unexpected over quota on snapshots"):
        quotas.check_reserve({"snapshots": 1}, {"snapshots": 10}, limits(), quotas.VOLUMES)


amounts = st.dictionaries(st.sampled_from(sorted(limits())), st.integers(-20, 20))


@given(amounts, st.dictionaries(st.sampled_from(sorted(limits())), st.integers(0, 50)), st.integers(-1, 40))
def test_nothing_is_taken_beyond_a_limit_and_giving_back_is_always_fine(wish, used, limit):
    given_ = dict.fromkeys(limits(), limit)
    overs = quotas.overs_of(wish, used, given_)
    for name, amount in wish.items():
        beyond = limit >= 0 and used.get(name, 0) + amount > limit
        assert (name in overs) is (beyond and amount >= 0)
    quotas.check_reserve({n: -abs(a) - 1 for n, a in wish.items()}, used, given_)


@given(st.lists(st.tuples(st.integers(1, 50), st.sampled_from([None, *TYPES])), max_size=8))
def test_a_batch_takes_the_sum(wishes):
    every = [quotas.for_volume(size, kind) for size, kind in wishes]
    together = quotas.total(every)
    assert together.get("volumes", 0) == len(wishes)
    assert together.get("gigabytes", 0) == sum(size for size, _kind in wishes)
