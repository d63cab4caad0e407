# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.extra_specs_ops import OPERATORS, match

CASES = [
    ("1", "1", True), ("1", "", False), ("1", "3", False), ("3", "1", False), ("", "", True), (None, "x", False), ("a b", "a b", True),
    ("123", "= 123", True), ("124", "= 123", True), ("34", "= 234", False), ("34", "=", False), ("1.5", "= 1.25", True),
    ("123", "== 123", True), ("123.0", "== 123", True), ("124", "== 123", False), ("abc", "== 123", False),
    ("123", "!= 123", False), ("124", "!= 123", True),
    ("123", ">= 123", True), ("124", ">= 123", True), ("34", ">= 234", False),
    ("123", "<= 123", True), ("122", "<= 123", True), ("321", "<= 123", False),
    ("9", "<= 10", True), ("-1", "<= 0", True), ("nonsense", ">= 1", False),
    ("123", "s== 123", True), ("123", "s== 123.0", False), ("1234", "s== 123", False),
    ("1234", "s!= 123", True), ("123", "s!= 123", False),
    ("1234", "s>= 1000", True), ("1234", "s>= 1234", True), ("234", "s>= 1000", True), ("1000", "s>= 1234", False),
    ("2", "s> 12", True), ("2", "s> 2", False), ("12", "s> 2", False),
    ("12", "s< 2", True), ("2", "s< 2", False), ("a", "s< b", True),
    ("1000", "s<= 1234", True), ("1234", "s<= 1234", True), ("2", "s<= 1234", False),
    ("12311321", "<in> 11", True), ("12310321", "<in> 11", False), ("abc", "<in>", False),
    ("12311321", "<all-in> 11 12", True), ("12311321", "<all-in> 11 99", False), ("['aes', 'avx']", "<all-in> aes avx", True),
    ("12", "<or> 11 <or> 12", True), ("13", "<or> 11 <or> 12", False), ("11", "<or> 11", True), ("<or>", "<or> 11 <or> 12", False),
    ("12", "<or> 11 <or> 12 <or>", True), ("12", "<or>", False),
    ("x", "s== x y z", True),  # one operand
    (None, "== 1", False), (None, "<or> 1", False), ("a", "> 5", False), ("> 5", "> 5", True), ("5", "< 6", False),
    ("2", "  >=   2  ", True),
]  # fmt: skip


@pytest.mark.parametrize(("value", "requirement", "expected"), CASES)
def test_match(value, requirement, expected):
    assert match(value, requirement) is expected


def test_every_operator_is_in_the_table():
    used = {requirement.split()[0] for _v, requirement, _e in CASES if requirement.split()}
    assert set(OPERATORS) <= used


@pytest.mark.parametrize("op", ["=", "==", "!=", ">=", "<="])
def test_a_number_that_is_none(op):
    with pytest.raises(InvalidInput, match="'lots' in the requirement"):
        match("1", "%s lots" % op)
