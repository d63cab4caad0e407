# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Amounts as people read them."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.amounts import counted, disk, memory


@pytest.mark.parametrize(
    ("mb", "down", "up"),
    [
        (0, "0 MiB", "0 MiB"),
        (511.5, "511 MiB", "512 MiB"),
        (10 * 1024 - 1, "10239 MiB", "10239 MiB"),
        (10 * 1024 + 1, "10 GiB", "10.1 GiB"),
        (247334, "241.5 GiB", "241.6 GiB"),
        (-20 * 1024, "-20 GiB", "-20 GiB"),
    ],
)
def test_memory(mb: float, down: str, up: str) -> None:
    assert (memory(mb), memory(mb, up=True)) == (down, up)


def test_two_amounts_of_memory_have_one_unit() -> None:
    assert (memory(512, other=20480), memory(20480, other=512)) == ("0.5 GiB", "20 GiB")


def test_disk() -> None:
    assert (disk(10240), disk(5632), disk(1, up=True), disk(4025344)) == ("10 GiB", "5.5 GiB", "0.1 GiB", "3931 GiB")


def test_counted() -> None:
    things = ("hosts", "members of its group", "I/O operations", "other hosts", "MiB of memory")
    assert [counted(1, t) for t in things] == [
        "1 host",
        "1 member of its group",
        "1 I/O operation",
        "1 other host",
        "1 MiB of memory",
    ]
    assert (counted(0, "hosts"), counted(2.5, "vCPUs")) == ("0 hosts", "2.5 vCPUs")
