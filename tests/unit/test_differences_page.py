# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/differences.md names each field, hint, extra spec and property of Nova and Cinder that the code refuses as not supported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.request import hints, later
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes import create_request

PAGE = Path(__file__).resolve().parents[2] / "docs" / "differences.md"
#: The names of the page: those of the first column of its tables, which is Nova's and Cinder's.
NAMED = {
    name
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ")
    for name in re.findall(r"`([^` ]+)`", line.split(" | ")[0])
}


@pytest.mark.parametrize("name", [*later._FIELDS, *sorted(hints._CELLS), *create_request._LATER, "source_replica"])
def test_a_field_or_hint(name: str) -> None:
    assert name in NAMED


@pytest.mark.parametrize("name", [later._KERNEL, later._RAMDISK])
def test_a_property_of_an_image(name: str) -> None:
    assert name in NAMED and list(later.later_properties({name: "x"}))


@pytest.mark.parametrize("asked", later._ASKED, ids=lambda asked: asked[0].pattern)
def test_an_extra_spec(asked: tuple[re.Pattern[str], str, bool, str | None]) -> None:
    """By a name of the page that the code refuses, too."""
    names = [name for name in NAMED if asked[0].match(name)]
    assert names, "no name of the page is one that is refused here: %s" % asked[1]
    for name in names:
        refused = list(later.later_specs(Flavor("f", 1, 1, extra_specs={name: "true"}), {}))
        assert [type(error) for error in refused] == [errors.NotSupportedYet]
