# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.device import (
    PF,
    STANDARD,
    VF,
    PciDevice,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.pools import (
    choose_devices,
    free_devices,
    hand_out,
    pools_of,
    supports,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.request import PciRequest
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples

QAT = {"vendor_id": "8086", "product_id": "0443"}
GPU = {"vendor_id": "10de", "product_id": "1eb8"}


def device(number, numa_node=None, dev_type=STANDARD, parent=None, product="0443", vendor="8086", tags=None):
    return PciDevice("0000:00:%02x.0" % number, vendor, product, numa_node, dev_type, parent, tags or {})


def ask(count=1, policy="legacy", *alternatives, **spec):
    return PciRequest(count, alternatives or (spec or QAT,), "a", policy)


def addresses(chosen):
    return None if chosen is None else [[int(d.address[8:10], 16) for d in picked] for dummy, picked in chosen]


def test_a_device_survives_as_dict():
    made = device(1, 1, VF, "0000:00:00.0", tags={"physical_network": "p", "trusted": None})
    assert PciDevice.from_dict(made.as_dict()) == made
    assert PciDevice.from_dict({"address": "a", "vendor_id": "1", "product_id": "2", "dev_id": "pci_x"}) == PciDevice(
        "a", "1", "2"
    )


def test_pools_have_alike_devices_fewest_tags_first_then_lowest_address():
    tagged = device(0, 0, tags={"physical_network": "p"})
    pools = pools_of([device(4, 1), device(3, 0), device(2, 1), tagged, device(1, 0, VF)])
    assert [(p.numa_node, p.dev_type, dict(p.tags), [d.address[8:10] for d in p.devices]) for p in pools] == [
        (0, VF, {}, ["01"]),
        (1, STANDARD, {}, ["02", "04"]),
        (0, STANDARD, {}, ["03"]),
        (0, STANDARD, {"physical_network": "p"}, ["00"]),
    ]
    assert pools[3].as_dict() == {
        "vendor_id": "8086",
        "product_id": "0443",
        "numa_node": 0,
        "dev_type": STANDARD,
        "physical_network": "p",
        "count": 1,
    }


@pytest.mark.parametrize(
    ("devices", "requests", "cells", "expected"),
    [
        ([1, 2], [ask(2)], None, [[1, 2]]),
        ([1, 2], [ask(3)], None, None),
        ([2, 1], [ask(1)], None, [[1]]),
        ([], [], None, []),
        ([], [ask(0)], None, [[]]),
        ([], [ask(1)], None, None),
        # in turn, from the same pool
        ([1, 2, 3], [ask(2), ask(1)], None, [[1, 2], [3]]),
        ([1, 2], [ask(2), ask(1)], None, None),
        # over several pools
        ([(1, 0), (2, 1)], [ask(2)], None, [[1, 2]]),
        # alternatives of an alias
        ([1, (2, None, STANDARD, None, "1eb8", "10de")], [ask(2, "legacy", QAT, GPU)], None, [[1, 2]]),
        ([1], [ask(1, **GPU)], None, None),
        ([1], [ask(1, vendor_id="8086")], None, [[1]]),
        ([(1, None, STANDARD, None, "abcd")], [ask(1, product_id="ABCD")], None, [[1]]),
        # types: a PF only for who asks for one
        ([(1, None, PF)], [ask(1)], None, None),
        ([(1, None, PF)], [ask(1, dev_type=PF)], None, [[1]]),
        ([(1, None, VF)], [ask(1)], None, [[1]]),
        ([(1, None, VF)], [ask(1, dev_type=STANDARD)], None, None),
        ([(1, None, VF)], [ask(1, dev_type=VF)], None, [[1]]),
        # tags
        ([1, (2, None, VF, None, "0443", "8086", {"physical_network": "P"})], [ask(1, physical_network="p")], 0, [[2]]),
        ([1], [ask(1, physical_network="p")], None, None),
        # NUMA: without cells nobody cares
        ([(1, 1)], [ask(1, "required")], None, [[1]]),
        ([(1, 1)], [ask(1, "required")], (), [[1]]),
        # required
        ([(1, 1)], [ask(1, "required")], (0,), None),
        ([1], [ask(1, "required")], (0,), None),
        ([1, (2, 0)], [ask(1, "required")], (0,), [[2]]),
        ([(1, 0), (2, 1)], [ask(2, "required")], (0, 1), [[1, 2]]),
        # legacy: those without affinity as well, but only where the near ones do not suffice
        ([1, (2, 0)], [ask(1, "legacy")], (0,), [[2]]),
        ([1, (2, 0)], [ask(2, "legacy")], (0,), [[1, 2]]),
        ([(1, 1)], [ask(1, "legacy")], (0,), None),
        ([(1, 1)], [ask(1, "")], (0,), None),
        ([1], [ask(1, "legacy")], (0,), [[1]]),
        # preferred: local, then without affinity, then any
        ([(1, 1), 2, (3, 0)], [ask(1, "preferred")], (0,), [[3]]),
        ([(1, 1), 2, (3, 0)], [ask(2, "preferred")], (0,), [[2, 3]]),
        ([(1, 1), 2, (3, 0)], [ask(3, "preferred")], (0,), [[2, 3, 1]]),
        ([(1, 1)], [ask(1, "preferred")], (0,), [[1]]),
        ([(1, 1)], [ask(2, "preferred")], (0,), None),
        # a PF counts towards what is near before it is left out, as in Nova
        ([(1, 0, PF), (2, None, VF)], [ask(1)], (0,), None),
    ],
)
def test_who_gets_what(devices, requests, cells, expected):
    made = [device(*(item if isinstance(item, tuple) else (item,))) for item in devices]
    assert addresses(choose_devices(made, requests, cells or None if cells != () else ())) == expected
    assert supports(made, requests, cells or None) == (expected is not None)


CARD = [
    device(1, 0, PF, product="10fb"),
    *(device(n, 0, VF, "0000:00:01.0", "10ed") for n in (2, 3)),
    device(4, 0, PF, product="10fb"),
    *(device(n, 0, VF, "0000:00:04.0", "10ed") for n in (5, 6)),
]
PF_WISH, VF_WISH = {"product_id": "10fb", "dev_type": PF}, {"product_id": "10ed", "dev_type": VF}


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([ask(1, **PF_WISH), ask(2, **VF_WISH)], [[1], [5, 6]]),
        ([ask(1, **PF_WISH), ask(3, **VF_WISH)], None),
        ([ask(1, **VF_WISH), ask(1, **PF_WISH)], [[2], [4]]),
        ([ask(3, **VF_WISH), ask(1, **PF_WISH)], None),
        ([ask(2, **PF_WISH)], [[1, 4]]),
        ([ask(2, **PF_WISH), ask(1, **VF_WISH)], None),
        ([ask(4, **VF_WISH)], [[2, 3, 5, 6]]),
        ([ask(6, "legacy", PF_WISH, VF_WISH)], None),  # both ways to the same card in one request
    ],
)
def test_a_physical_function_and_its_virtual_functions_exclude_each_other(requests, expected):
    assert addresses(choose_devices(CARD, requests)) == expected
    assert supports(CARD, requests) == (expected is not None)


def test_cards_stay_whole_as_long_as_they_can():
    without_vfs = device(7, 0, PF, product="10fb")
    assert addresses(choose_devices([*CARD, without_vfs], [ask(1, **PF_WISH), ask(4, **VF_WISH)])) == [
        [7],
        [2, 3, 5, 6],
    ]
    split = free_devices(CARD, ["0000:00:05.0"])
    assert addresses(choose_devices(split, [ask(1, **VF_WISH), ask(1, **PF_WISH), ask(1, **VF_WISH)])) is None
    assert addresses(choose_devices(split, [ask(1, **VF_WISH), ask(1, **PF_WISH)])) == [[6], [1]]


@pytest.mark.parametrize(
    ("taken", "free"),
    [
        ([], [1, 2, 3, 4, 5, 6]),
        ([1], [4, 5, 6]),
        ([2], [3, 4, 5, 6]),
        ([2, 3], [4, 5, 6]),
        ([2, 4], [3]),
        ([9], [1, 2, 3, 4, 5, 6]),
    ],
)
def test_what_is_free_beside_what_is_taken(taken, free):
    left = free_devices(reversed(CARD), ["0000:00:%02x.0" % n for n in taken])
    assert [int(d.address[8:10], 16) for d in left] == free


def test_a_virtual_function_is_not_free_when_its_card_is_taken_but_no_longer_reported():
    assert free_devices([CARD[1]], ["0000:00:01.0"]) == []


def test_hand_out_tells_who_comes_short():
    assert [len(picked) for dummy, picked in hand_out([device(1)], [ask(2), ask(1)])] == [1, 0]


# --- laws


def world():
    kinds = st.tuples(st.sampled_from(["0443", "1eb8"]), st.sampled_from([None, 0, 1]))
    plain = st.lists(kinds, max_size=6).map(
        lambda items: [device(n, node, product=product) for n, (product, node) in enumerate(items)]
    )
    cards = st.lists(st.tuples(st.sampled_from([None, 0, 1]), st.integers(0, 3)), max_size=2).map(_cards)
    return st.tuples(plain, cards).map(lambda pair: pair[0] + pair[1])


def _cards(shapes):
    numbers = itertools.count(32)
    result = []
    for node, vfs in shapes:
        pf = device(next(numbers), node, PF, product="10fb")
        result += [pf] + [device(next(numbers), node, VF, pf.address, "10ed") for dummy in range(vfs)]
    return result


WISHES = st.lists(
    st.builds(
        PciRequest,
        count=st.integers(0, 3),
        spec=st.lists(
            st.sampled_from([{"product_id": "0443"}, {"product_id": "1eb8"}, {}, VF_WISH, PF_WISH, {"dev_type": VF}]),
            min_size=1,
            max_size=2,
        ).map(tuple),
        numa_policy=st.sampled_from(["legacy", "required", "preferred"]),
    ),
    max_size=3,
)
CELLS = st.sampled_from([None, (0,), (1,), (0, 1)])


@settings(max_examples=examples(300))
@given(world(), WISHES, CELLS)
def test_what_is_promised_is_what_is_handed_out(devices, requests, cells):
    chosen = choose_devices(devices, requests, cells)
    assert supports(devices, requests, cells) == (chosen is not None)
    assert choose_devices(list(reversed(devices)), requests, cells) == chosen
    if chosen is None:
        return
    assert [request for request, dummy in chosen] == requests
    given_away = [d for dummy, picked in chosen for d in picked]
    assert len({d.address for d in given_away}) == len(given_away)
    assert all(d in devices for d in given_away)
    parents = {d.parent_addr for d in given_away if d.dev_type == VF}
    assert not parents & {d.address for d in given_away if d.dev_type == PF}
    for request, picked in chosen:
        assert len(picked) == request.count
        for d in picked:
            fields = d.as_dict()
            assert any(all(fields[k] == v for k, v in spec.items()) for spec in request.spec)
            assert d.dev_type != PF or any(spec.get("dev_type") == PF for spec in request.spec)
            if cells and request.numa_policy != "preferred":
                assert d.numa_node in cells or (d.numa_node is None and request.numa_policy == "legacy")


@settings(max_examples=examples(200))
@given(world(), st.data())
def test_free_devices_are_exactly_those_a_next_guest_may_have(devices, data):
    taken = data.draw(st.sets(st.sampled_from([d.address for d in devices]))) if devices else set()
    free = free_devices(devices, taken)
    by_address = {d.address: d for d in devices}
    for d in devices:
        relatives = [d.parent_addr] if d.dev_type == VF else [v.address for v in devices if v.parent_addr == d.address]
        assert (d in free) == (d.address not in taken and not taken.intersection(relatives))
    assert free_devices(free, taken) == free
    assert free_devices([by_address[d.address] for d in free], ()) == free


@settings(max_examples=examples(200))
@given(world(), WISHES, WISHES, CELLS)
def test_two_guests_never_share_a_device_nor_a_card_in_two_forms(devices, first, second, cells):
    one = choose_devices(devices, first, cells) or []
    taken = {d.address for dummy, picked in one for d in picked}
    two = choose_devices(free_devices(devices, taken), second, cells) or []
    both = [d for dummy, picked in one + two for d in picked]
    assert len({d.address for d in both}) == len(both)
    assert not {d.parent_addr for d in both} & {d.address for d in both}
