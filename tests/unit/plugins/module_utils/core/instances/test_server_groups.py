# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.instances.server_groups import (
    POLICIES,
    ServerGroup,
    late_check,
)

ANTI = "Anti-affinity instance group policy was violated."
TOGETHER = "Affinity instance group policy was violated."


@pytest.mark.parametrize(
    ("policy", "most", "counts", "expected"),
    [
        ("anti-affinity", 1, {}, None),
        ("anti-affinity", 1, {"b": 4}, None),
        ("anti-affinity", 1, {"a": 1}, ANTI),
        ("anti-affinity", 1, {"a": 0}, None),
        ("anti-affinity", 3, {"a": 2}, None),
        ("anti-affinity", 3, {"a": 3}, ANTI),
        ("affinity", 1, {}, None),
        ("affinity", 1, {"b": 0}, None),
        ("affinity", 1, {"a": 1}, None),
        ("affinity", 1, {"a": 1, "b": 1}, None),
        ("affinity", 1, {"b": 1}, TOGETHER),
        ("soft-affinity", 1, {"b": 1}, None),
        ("soft-anti-affinity", 1, {"a": 1}, None),
    ],
)
def test_late_check(policy, most, counts, expected):
    assert late_check(ServerGroup("g", "g", policy, most, host_counts=counts), "a", "u") == expected


def test_hosts_are_those_with_members():
    assert ServerGroup("g", "g", "affinity", host_counts={"a": 2, "b": 0}).hosts == {"a"}
    assert len(POLICIES) == 4
