# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a guest's file systems stand still while a copy of its disk ends, which its agent does. A separate file, so that hosts load little."""

from __future__ import annotations

NO = "no"  # the agent is not asked
TRY = "try"  # it is asked, and the copy is made in any case
REQUIRE = "require"  # without it there is no copy
QUIESCES = (NO, TRY, REQUIRE)
