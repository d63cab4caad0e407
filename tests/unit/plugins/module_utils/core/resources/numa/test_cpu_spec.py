# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.cpu_spec import (
    format_cpu_spec,
    parse_cpu_spec,
    size_in_kb,
)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0", {0}),
        ("0-3", {0, 1, 2, 3}),
        ("0-3,^2", {0, 1, 3}),
        ("^2,0-3", {0, 1, 3}),  # taken out wherever it stands
        (" 1 , 3 - 5 ,", {1, 3, 4, 5}),
        ("", set()),
        ("1,1,1", {1}),
        (5, {5}),
        ("2-2", {2}),
        ("^9", set()),
        ("0-7,^2-4", {0, 1, 5, 6, 7}),
        ("^0-1,0-3", {2, 3}),
    ],
)
def test_sets_of_cpus_are_read(text, cpus):
    assert parse_cpu_spec(text) == cpus


@pytest.mark.parametrize(
    "text", ["a", "-1", "3-1", "1-", "1-2-3", "^", "^a", "^3-1", "1;2", "0-999999999999", "²", "1.5"]
)
def test_what_is_no_set_of_cpus_is_an_error(text):
    with pytest.raises(errors.InvalidInput, match="Invalid (range|inclusion|exclusion) expression"):
        parse_cpu_spec(text)


@pytest.mark.parametrize(
    ("cpus", "text"), [([], ""), ([3], "3"), ([1, 2], "1-2"), ([5, 1, 0, 2, 7, 5], "0-2,5,7"), ([0, 2, 4], "0,2,4")]
)
def test_sets_of_cpus_are_written_shortly(cpus, text):
    assert format_cpu_spec(cpus) == text


@given(st.frozensets(st.integers(0, 300)))
def test_what_is_written_is_read_again(cpus):
    assert parse_cpu_spec(format_cpu_spec(cpus)) == cpus


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2048", 2048),
        (4, 4),
        ("4KB", 4),
        ("2MB", 2048),
        ("1GB", 1048576),
        ("2MiB", 2048),
        ("1.5MB", 1536),
        (" 2MB ", 2048),
        ("16Mb", 2048),  # bits
        ("16Mbit", 2048),
        ("2048B", 2),
        ("0", None),
        ("0MB", None),
        ("-5", None),
        ("512B", None),
        ("1537B", None),
        ("2mb", None),
        ("2M", None),
        ("", None),
        ("large", None),
        ("1e3", None),
        (None, None),
    ],
)
def test_sizes(text, size):
    assert size_in_kb(text) == size
