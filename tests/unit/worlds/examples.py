# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many examples a property is tried with."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> int:
    """``count``, or its tenth in the inner loop (the profile few of tests/unit/conftest.py)."""
    return max(1, count * settings.default.max_examples // 100)
