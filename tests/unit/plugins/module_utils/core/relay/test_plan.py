# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who gives an image to whom: whatever the hosts are, each link carries it once, and what is lost is replaced."""

from __future__ import annotations

import collections
import io
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.relay import talk
from ansible_collections.bootflow.compute.plugins.module_utils.core.relay.pieces import (
    PIECE,
    Pieces,
    count,
    read_pieces,
    root_of,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.relay.plan import (
    HOLDERS,
    LACKS,
    LAST,
    NEAREST,
    STORED,
    WHOLE,
    Peer,
    Plan,
    givers,
    plan,
)


@st.composite
def fleets(draw: t.Any) -> list[Peer]:
    number = draw(st.integers(0, 40))
    zones, sizes = st.sampled_from(["", "north", "south", "east"]), st.integers(0, 5)
    return [Peer("h%d" % n, draw(zones), draw(sizes), draw(st.integers(0, 9)) == 0) for n in range(number)]


def first_sources(found: Plan) -> dict[str, str]:
    """Of each host that lacks the image; "": the controller, or the web server."""
    return {name: (found.before(name) or ("",))[0] for name in found.names}


@given(fleets())
def test_each_host_gets_the_image_and_no_link_carries_it_twice(peers: list[Peer]) -> None:
    found = plan(peers)
    assert sorted(found.names) == sorted(p.name for p in peers if not p.is_holder)
    assert sorted(found.holders) == sorted(p.name for p in peers if p.is_holder)
    assert all(found.chains)
    sources = first_sources(found)
    assert all(n == 1 for n in collections.Counter(sources.values()).values())
    assert sum(s == "" for s in sources.values()) == (0 if found.holders or not sources else 1)
    for name in sources:
        seen, at = set(), name
        while at in sources:  # it comes from somewhere: no two hosts wait for each other
            assert at not in seen
            seen.add(at)
            at = sources[at]


@given(fleets())
def test_zones_are_crossed_as_seldom_as_can_be(peers: list[Peer]) -> None:
    found, zone_of = plan(peers), {p.name: p.zone for p in peers}
    crossed = [
        (zone_of.get(s, ""), zone_of[n]) for n, s in first_sources(found).items() if s and zone_of[s] != zone_of[n]
    ]
    entered = collections.Counter(zone for _from, zone in crossed)
    assert all(n == 1 for n in entered.values())
    with_holders = {p.zone for p in peers if p.is_holder}
    assert not with_holders & set(entered)


@given(fleets())
def test_who_has_more_of_it_comes_first_in_its_zone(peers: list[Peer]) -> None:
    found = plan(peers)
    size_of, zone_of = {p.name: p.size for p in peers}, {p.name: p.zone for p in peers}
    for chain in found.chains:
        for one, other in zip(chain, chain[1:]):
            assert zone_of[one] != zone_of[other] or size_of[one] >= size_of[other]


@given(fleets(), st.data())
def test_as_long_as_one_of_its_sources_is_there_a_host_is_not_lost(peers: list[Peer], data: t.Any) -> None:
    found = plan(peers)
    if not found.names:
        return
    gone = data.draw(st.sets(st.sampled_from(found.names), max_size=NEAREST - 1))
    there = [n for n in found.names if n not in gone]
    for chain in found.chains:
        left = [n for n in chain if n in there]
        for one, name in zip(left, left[1:]):
            assert one in found.before(name)  # however many of them are gone between the two
    for name in there:
        asked = found.before(name) + found.after(name)
        assert name not in asked and len(asked) == len(set(asked)) <= NEAREST + 1 + HOLDERS + LAST
        assert not set(found.after(name)) & set(found.before(name))


STATES = st.sampled_from([LACKS, WHOLE, STORED, "has", "busy", "local", "failed"])


@given(st.dictionaries(st.sampled_from("abcdefghij"), STATES), st.sampled_from(["", "a", "z"]))
def test_the_host_whose_store_has_an_image_gives_it_first(states: dict[str, str], store_host: str) -> None:
    found = givers(states, store_host)
    if LACKS not in states.values():
        assert found == ()
        return
    assert len(found) == len(set(found)) <= HOLDERS
    assert found[:1] == ((store_host,) if store_host else tuple(n for n, s in states.items() if s == WHOLE)[:1])
    assert all(states[name] == WHOLE for name in found if name != store_host)


# --- pieces -----------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 3 * PIECE), st.integers(0, 255))
def test_pieces_tell_any_change(size: int, fill: int) -> None:
    data = bytes([fill]) * size
    pieces = read_pieces(io.BytesIO(data).read)
    assert pieces.size == size and len(pieces) == count(size)
    for number in range(len(pieces)):
        right = data[number * PIECE : (number + 1) * PIECE]
        assert pieces.is_right(number, right) and pieces.length(number) == len(right)
        assert not pieces.is_right(number, right[:-1]) and not pieces.is_right(number, right + b"x")
        assert not pieces.is_right(number, bytes([fill ^ 1]) + right[1:])
        assert pieces.is_zero(number) == (fill == 0 and len(right) == PIECE)
    digests = pieces.digests(0, len(pieces))
    assert pieces.root() == root_of(size, digests) != root_of(size + 1, digests)


def test_pieces_that_are_none_are_refused() -> None:
    pieces = Pieces()
    with pytest.raises(ValueError, match="no digests"):
        pieces.add(b"short")
    pieces.add(bytes(64))
    with pytest.raises(ValueError, match="do not have 2"):
        pieces.end(PIECE)
    pieces.end(PIECE + 1)
    with pytest.raises(ValueError, match="no digests"):
        pieces.add(bytes(32))
    with pytest.raises(IndexError):
        pieces.is_right(2, b"")


# --- what the controller says -------------------------------------------------------------------------------------------------


def read(data: bytes) -> tuple[int, int, bytes]:
    pipe = io.BytesIO(data)
    return talk.read_feed_head(pipe.readline, pipe.read)


@given(st.integers(0, 2**60), st.integers(0, 2**60), st.binary(max_size=200))
def test_the_head_of_what_the_controller_sends(begin: int, size: int, digests: bytes) -> None:
    assert read(talk.feed_head(begin, size, digests)) == (begin, size, digests)


@given(st.binary(max_size=100))
def test_nonsense_is_no_head(data: bytes) -> None:
    with pytest.raises(ValueError, match=""):
        read(data)


@pytest.mark.parametrize(
    "line", [b"[]\n", b'{"begin": -1, "size": 1, "digests": 0}\n', b'{"begin": 0, "size": 1, "digests": 9}\n123']
)
def test_a_head_without_its_parts_is_none(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"no|end"):
        read(line)
