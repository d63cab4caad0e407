# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several volumes at once: how much more room would have been enough, as scheduling again with so much more shows."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import NoValidBackend
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.model import (
    PoolState,
    VolumeRequest,
    VolumeType,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.scheduler.batch import (
    Choice,
    select_backends,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.scheduler.explain import explanation_text
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.scheduler.select import BackendSelection
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples

A, B, C = "a@lvm#vg", "b@lvm#vg", "c@lvm#vg"


def pool(host: str, free: float | str, total: float = 100, **more: t.Any) -> PoolState:
    return PoolState(host, total, free, **more)


def thin(host: str, free: float, provisioned: float, ratio: float | str = 2.0, total: float = 100) -> PoolState:
    return pool(
        host,
        free,
        total,
        provisioned_capacity_gb=provisioned,
        thin_provisioning_support=True,
        max_over_subscription_ratio=ratio,
    )


def wanted(*sizes: int, **more: t.Any) -> list[VolumeRequest]:
    return [VolumeRequest(size, "v%d" % n, **more) for n, size in enumerate(sizes)]


def changes(choices: t.Sequence[Choice]) -> list[dict[str, t.Any]]:
    """The smallest changes of those without a backend, each once."""
    found = []
    for choice in choices:
        decision = choice.details.get("decision") if isinstance(choice, NoValidBackend) else None
        change = (decision or {}).get("nearest_miss") and decision["nearest_miss"]["smallest_change"]
        if change and {**change, "host": decision["nearest_miss"]["host"]} not in found:
            found.append({**change, "host": decision["nearest_miss"]["host"]})
    return found


def texts(choices: t.Sequence[Choice]) -> list[str]:
    return [change["text"] for change in changes(choices)]


def grown(states: t.Sequence[PoolState], change: t.Mapping[str, t.Any], by: float = 0) -> list[PoolState]:
    """The pools with what a change names. :arg by: GB more than that"""
    return [
        dataclasses.replace(
            s,
            free_capacity_gb=t.cast(float, s.free_capacity_gb) + (change["free_gb"] and change["free_gb"] + by),
            provisioned_capacity_gb=s.provisioned - (change["provisioned_gb"] and change["provisioned_gb"] + by),
        )
        if s.host == change["host"]
        else s
        for s in states
    ]


def fit(choices: t.Sequence[Choice]) -> list[bool]:
    return [isinstance(choice, BackendSelection) for choice in choices]


@pytest.mark.parametrize(
    ("states", "text"),
    [
        ([pool(A, 41.97), pool(B, 5)], "8.1 GiB of disk more free on %s" % A),
        ([pool(A, 50, reserved_percentage=10)], "10 GiB of disk more free on %s" % A),
        ([thin(A, 60, 180)], "30 GiB less provisioned on %s" % A),
        ([thin(A, 10, 20)], "15 GiB of disk more free on %s" % A),
        ([thin(A, 10, 180)], "15 GiB of disk more free and 30 GiB less provisioned on %s" % A),
    ],
)
def test_what_would_have_been_enough_for_one(states: list[PoolState], text: str) -> None:
    found = select_backends(states, wanted(50))
    assert texts(found) == [text + " would have been enough"]
    (change,) = changes(found)
    assert fit(select_backends(grown(states, change), wanted(50))) == [True]
    assert fit(select_backends(grown(states, change, by=-0.1), wanted(50))) == [False]
    (error,) = found
    assert isinstance(error, NoValidBackend)
    assert error.remedy == "Smallest change: %s would have been enough. %s" % (text, NoValidBackend.remedy)
    lines = explanation_text(error.details["decision"])
    assert "  smallest change: %s would have been enough" % text in lines


def test_what_would_have_been_enough_for_all() -> None:
    """Not what the next one lacks: with that the others would still be without a backend."""
    states = [pool(A, 25), pool(B, 18)]
    found = select_backends(states, wanted(*[10] * 6))
    assert fit(found) == [True] * 3 + [False] * 3
    assert texts(found) == [
        "for all 3 volumes without a backend, 22 GiB of disk more free on b@lvm#vg would have been enough"
    ]
    assert all(fit(select_backends(grown(states, changes(found)[0]), wanted(*[10] * 6))))


def test_each_backend_for_those_that_it_may_take() -> None:
    states = [pool(A, 5), pool(B, 8, availability_zone="b")]
    requests = [*wanted(10, 10, availability_zone="nova"), *wanted(10, availability_zone="b")]
    found = select_backends(states, requests)
    assert texts(found) == [
        "for 2 of 3 volumes without a backend, 15 GiB of disk more free on %s would have been enough" % A,
        "for 1 of 3 volumes without a backend, 2 GiB of disk more free on %s would have been enough" % B,
    ]
    for change, placed in zip(changes(found), ([True, True, False], [False, False, True])):
        assert fit(select_backends(grown(states, change), requests)) == placed


def test_a_clone_needs_room_on_the_backend_of_its_source() -> None:
    """Which may not be the one that lacks least."""
    states = [pool(A, 5), pool(B, 9)]
    found = select_backends(states, wanted(10, resource_backend=A))
    assert texts(found) == ["5 GiB of disk more free on %s would have been enough" % A]


@pytest.mark.parametrize(
    ("states", "requests"),
    [
        ([pool(A, "unknown", disabled=True)], wanted(10)),
        ([pool(A, 5, disabled=True)], wanted(10)),
        ([pool(A, 5, availability_zone="b")], wanted(10, availability_zone="nova")),
        ([thin(A, 50, 20, ratio=0.5)], wanted(60)),
        ([thin(A, 90, 10)], wanted(250)),  # more than the whole pool may promise
        ([], wanted(10)),
        # With 5 GiB more there, the small volume would go there first.
        ([pool(A, 10), pool(B, 10)], wanted(10, 15)),
    ],
)
def test_where_no_amount_is_known(states: list[PoolState], requests: list[VolumeRequest]) -> None:
    found = select_backends(states, requests)
    assert isinstance(found[-1], NoValidBackend) and texts(found) == []
    assert found[-1].remedy == NoValidBackend.remedy


THICK = VolumeType("thick", {"provisioning:type": "thick"})
pools = st.builds(
    lambda free, provisioned, is_thin, ratio, reserved: pool(
        A,
        free / 4,
        60,
        provisioned_capacity_gb=provisioned / 4,
        thin_provisioning_support=is_thin,
        max_over_subscription_ratio=ratio,
        reserved_percentage=reserved,
    ),
    st.integers(0, 240),
    st.integers(0, 400),
    st.booleans(),
    st.sampled_from([1.0, 1.1, 1.5, 20.0, "auto"]),
    st.sampled_from([0, 5, 33]),
)


@settings(max_examples=examples(200))
@given(
    st.lists(pools, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=8),
)
def test_what_is_said_is_true(states: list[PoolState], sizes: list[tuple[int, bool]]) -> None:
    states = [dataclasses.replace(state, host="%s@lvm#vg" % "abcd"[n]) for n, state in enumerate(states)]
    requests = [
        VolumeRequest(size, "v%d" % n, volume_type=THICK if is_thick else None)
        for n, (size, is_thick) in enumerate(sizes)
    ]
    before = [dataclasses.replace(state) for state in states]
    found = select_backends(states, requests)
    assert states == before
    for change in changes(found):
        choices = select_backends(grown(states, change), requests)
        placed = [
            fits
            for fits, choice in zip(fit(choices), found)
            if isinstance(choice, NoValidBackend)
            and choice.details["decision"]["nearest_miss"]["host"] == change["host"]
        ]
        assert len(placed) == change["volumes"] and all(placed)
