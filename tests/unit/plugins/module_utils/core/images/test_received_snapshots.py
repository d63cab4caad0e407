# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What became of an image that one host makes and another one stores: all combinations of what the two answer."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.snapshots import (
    LEFT,
    check_received,
    with_received,
)

MADE = {"size": 9, "checksum": "a" * 64, "power_state": 1, "error": None}
FULL = errors.DiskFull(host="kvm1", path="/srv", reason="full").as_dict()
FAILED = {"error": FULL, "power_state": 1, LEFT: False}


@pytest.mark.parametrize(
    "made, stored, error, left",
    [
        (MADE, {"u": {"changed": True, "error": None}}, None, None),
        (MADE, {"u": {"error": FULL, LEFT: False}}, "DiskFull", False),
        (MADE, {"u": {"error": FULL}}, "DiskFull", None),
        (MADE, {}, "HostUnreachable", None),
        (MADE, None, "HostUnreachable", None),
        (FAILED, {"u": {"changed": True, "error": None}}, "DiskFull", False),
        (FAILED, None, "DiskFull", False),
    ],
)
def test_the_two_answers_are_one(made: t.Any, stored: t.Any, error: str | None, left: bool | None) -> None:
    found = with_received({"u": made, "v": MADE}, stored, ["u"], "kvm1")
    assert (found["u"]["error"] or {}).get("code") == error and found["u"].get(LEFT) is left
    assert found["u"]["power_state"] == 1, "the guest is as its own host says"
    assert found["v"] == MADE, "who was written by its own host is not asked of"


@pytest.mark.parametrize("lie", [{"size": 8}, {"checksum": "b" * 64}, {"size": None}, {"checksum": None}])
def test_a_host_that_says_that_it_stored_something_else_is_not_believed(lie: dict[str, t.Any]) -> None:
    check_received("kvm1", "one", MADE, MADE)
    with pytest.raises(errors.InvalidAnswer, match="kvm1"):
        check_received("kvm1", "one", MADE, {**MADE, **lie})
