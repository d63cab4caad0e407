# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What people are told of interfaces that are neither attached nor taken back."""

from __future__ import annotations

from ansible_collections.bootflow.compute.plugins.action import instance_interface
from ansible_collections.bootflow.compute.plugins.module_utils.core import errors


def test_an_error_of_several_interfaces_is_told_once_of_each() -> None:
    one = errors.HypervisorUnavailable(host="h1", reason="no socket")
    before = one.as_dict()
    first, second = (instance_interface._kept(one) for _number in range(2))
    assert one.as_dict() == before
    for each in (first, second):
        assert (each.code, each.message) == (one.code, one.message)
        assert each.remedy == "The ledger has the interface: run the same again, or detach it. " + one.remedy
