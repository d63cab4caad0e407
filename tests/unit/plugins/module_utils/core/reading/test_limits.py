# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.limits import is_volume_resource


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("volumes", True),
        ("gigabytes_x", True),
        ("snapshots", True),
        ("per_volume_gigabytes", True),
        ("cores", False),
        ("volumesx", False),
        (5, False),
    ],
)
def test_words_of_volumes(name, is_one):
    assert is_volume_resource(name) is is_one
