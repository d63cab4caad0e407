# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.columns import Fleet
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.filters.json_query import OPERATORS
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.host_state import HostState
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.placement import select_destinations
from ansible_collections.bootflow.compute.plugins.module_utils.core.scheduler.request_spec import RequestSpec

from ..reference import make_options
from .test_filters import verdict

HOST = {
    "memory_mb": 4096,
    "memory_mb_used": 1024,
    "local_gb": 100,
    "vcpus": 8,
    "hypervisor_type": "QEMU",
    "stats": {"rack": "r7", "deep": {"er": 5, "list": [1, 2]}, "nothing": None},
    "metrics": {"cpu.percent": 40.0},
}


def asked(query, host=None):
    """The same as text and as data."""
    made = {**HOST, **(host or {})}
    text = json.dumps(query)
    ok = verdict("JsonFilter", made, scheduler_hints={"query": text})[0]
    assert verdict("JsonFilter", made, scheduler_hints={"query": [text]})[0] == ok
    assert verdict("JsonFilter", made, scheduler_hints={"query": query})[0] == ok
    return ok


CASES = [
    (["=", 1, 1], True), (["=", 1, 2], False), (["=", 1, 1, 1], True), (["=", 1, 1, 2], False), (["=", "a", "a"], True), (["=", 1, "1"], False),
    (["<", 1, 2], True), (["<", 1, 1], False), (["<", 2, 1], False), (["<", 1, 2, 3], True), (["<", 2, 3, 1], False), (["<", "a", "b"], True),
    ([">", 2, 1], True), ([">", 2, 2], False), ([">", 2, 3], False), ([">", 3, 2, 1], True), ([">", 3, 2, 4], False),
    (["<=", 1, 2], True), (["<=", 1, 1], True), (["<=", 2, 1], False), ([">=", 2, 1], True), ([">=", 2, 2], True), ([">=", 2, 3], False),
    (["in", 1, 1], True), (["in", 1, 1, 2, 3], True), (["in", 4, 1, 2, 3], False), (["in", "a", "abc"], False), (["in", 1], False),
    (["not", True], False), (["not", False], True), (["not", True, False, True, False], True), (["not", True, True, True], False), (["not"], False),
    (["or", True, False], True), (["or", False, False], False), (["or"], False),
    (["and", True, True], True), (["and", False, False], False), (["and", True, False], False), (["and"], True),
    (["and", ["or", True, False], [">", 2, 1]], True),
    (["and", ["not", True, True]], True),  # a list with entries, which is true
    (["not", ["not", True]], False),  # so is this one
    (["=", ["not", True], ["not", True]], True),
    (["=", ["=", 1, 1], True], True),
    ([">", 1], False), (["=", 1], False), ([">"], False),
    ([">", ["and", ["or", ["not", ["<", [">=", ["<=", ["in"]]]]]]]], False),
    ([], True), ({}, True), (["and", []], True), (["=", [], True], True), (0, True), ("", True), (None, True), (False, True),
    ([">=", "$free_ram_mb", 3072], True), ([">=", "$free_ram_mb", 3073], False), ([">=", "$free_disk_mb", 102400], True),
    (["and", [">=", "$free_ram_mb", 1024], [">=", "$vcpus_total", 8]], True),
    (["=", "$hypervisor_type", "QEMU"], True), (["=", "$hypervisor_type", "qemu"], False),
    (["not", "$service.disabled"], True), (["=", "$service.disabled", False], True),
    (["=", "$stats.rack", "r7"], True), (["in", "$stats.rack", "r6", "r7"], True), (["=", "$stats.deep.er", 5], True),
    (["=", "$stats.deep.list", [">", 1]], False),
    (["<", "$metrics.cpu.percent", 50], True), (["<", "$metrics.cpu.percent", 30], False),
    (["=", "$........", 1, 1], True), (["=", "$foo", 2, 2], True), (["=", "$foo.bar", 2, 3], False),  # nothing of the kind is left out
    (["=", "$foo", 2], False), (["=", "$stats.no.such", 2], False), (["=", "$stats.nothing.x", 2], False), (["not", "$foo"], False), (["and", "$foo"], True),
    (["=", None, 1, 1], True), (["=", "", 1, 1], True), (["=", "$", 1, 1], True), (["=", "$__class__", 1, 1], True),
    (["or", "text"], True), (["or", 0], False), (["and", {}], False), (["and", {"a": 1}], True),
]  # fmt: skip


@pytest.mark.parametrize(("query", "passes"), CASES, ids=json.dumps)
def test_query(query, passes):
    assert asked(query) == passes


def test_every_operator_is_in_the_table():
    assert set(OPERATORS) <= {query[0] for query, dummy in CASES if isinstance(query, list) and query}


def test_a_longer_query():
    small = ["and", ["<", "$free_ram_mb", 30], ["<", "$vcpus", 3]]
    large = ["and", [">", "$free_ram_mb", 30], [">", "$vcpus", 3]]
    query = ["and", "$stats.on", ["=", "$stats.opt", "match"], ["or", small, large]]
    base = {"memory_mb_used": 0, "stats": {"opt": "match"}}
    assert asked(query, {**base, "memory_mb": 10, "vcpus": 2})
    assert asked(query, {**base, "memory_mb": 40, "vcpus": 4})
    assert not asked(query, {**base, "memory_mb": 30, "vcpus": 3})
    assert not asked(query, {**base, "memory_mb": 20, "vcpus": 4})
    assert not asked(query, {**base, "memory_mb": 40, "vcpus": 4, "stats": {"on": False, "opt": "match"}})
    assert not asked(query, {**base, "memory_mb": 40, "vcpus": 4, "stats": {"opt": "no-match"}})


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("not json", "is not JSON"),
        ('["=", 1', "is not JSON"),
        ("[" * 100000, "is not JSON"),
        ('["!=", 1, 2]', "'!=' is not an operator; known operators are = < > in <= >= not or and"),
        ('["and", ["or", ["xor", 1]]]', "'xor' is not an operator"),
        ('["AND", true]', "'AND' is not an operator"),
        ("[[1], 2]", r"\[1\] is not an operator"),
        ('"text"', "'text' is not a list of an operator"),
        ("5", "5 is not a list"),
        ('{"=": [1, 1]}', "is not a list"),
        ({"=": [1, 1]}, "is not a list"),
        ('["<", "$hypervisor_type", 5]', "for host h 'QEMU' cannot be compared by < with 5"),
        ('[">", {}, 5]', "{} cannot be compared by > with 5"),
        ('["=", "$vcpus.x", 5]', r"for host h \$vcpus.x: 8 has no keys"),
        (["and", *[json.loads("[" * 1 + '"and"' + "]")] * 2, "x", ["and"] * 3, ["no", 1]], "'no' is not an operator"),
    ],
)
def test_what_is_no_query(query, text):
    with pytest.raises(InvalidInput, match=text) as caught:
        verdict("JsonFilter", HOST, scheduler_hints={"query": query})
    assert caught.value.status == 400
    assert "operator" in caught.value.remedy or "JSON list" in caught.value.remedy


def test_a_query_may_be_deep_but_not_endless():
    query = ["=", 1, 1]
    for _time in range(100):
        query = ["and", query]
    assert asked(query)
    with pytest.raises(InvalidInput, match="nested more than 100 deep"):
        asked(["and", query])


def test_no_query():
    for hints in ({}, {"query": None}, {"query": ""}, {"query": []}):
        assert verdict("JsonFilter", HOST, scheduler_hints=hints)[0]


def test_the_reason_tells_the_query_and_what_the_host_has():
    query = ["and", [">=", "$free_ram_mb", 4000], ["=", "$stats.rack", "r8"], ["=", "$free_ram_mb", 1]]
    dummy, reason = verdict("JsonFilter", HOST, scheduler_hints={"query": query})
    assert reason == "the query %s does not hold ($free_ram_mb is 3072, $stats.rack is r7)" % query


def test_the_query_is_asked_again_of_what_is_left():
    fleet = Fleet([HostState("a", "a", memory_mb=3000), HostState("b", "b", memory_mb=2000)])
    request = RequestSpec(["1", "2"], Flavor("f", 1500, 0), scheduler_hints={"query": '[">=", "$free_ram_mb", 1800]'})
    chosen = select_destinations(fleet, request, make_options(enabled_filters=["JsonFilter"], weighers=["RAMWeigher"]))
    assert [s.host for s in chosen] == ["a", "b"]
