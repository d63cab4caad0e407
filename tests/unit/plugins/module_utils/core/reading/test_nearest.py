# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guess that is wrong misleads more than none."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.nearest import field_suggestion, nearest

FIELDS = ("flavor", "image", "key_name", "metadata", "networks", "security_groups", "tags", "user_data", "volume_type")


@pytest.mark.parametrize(
    "asked, near",
    [
        ("flavour", "flavor"),
        ("falvor", "flavor"),
        ("userData", "user_data"),
        ("user-data", "user_data"),
        ("securitygroups", "security_groups"),
        ("Tags", "tags"),
        ("gats", "tags"),
        ("type", "volume_type"),
        ("server_group", ""),
        ("mode", ""),
        ("dns", ""),
        ("ip", ""),
        ("", ""),
        ("x" * 100_000, ""),
    ],
)
def test_only_what_is_near_is_named(asked: str, near: str) -> None:
    assert nearest(asked, FIELDS) == near


def test_without_a_near_one_all_are_listed_where_they_are_few() -> None:
    assert field_suggestion("dns", FIELDS, "docs/x.md") == "Known fields: %s." % ", ".join(FIELDS)
    assert field_suggestion("dns", [*FIELDS, *"abcdef"], "docs/x.md") == "Remove it; docs/x.md lists the fields."
