# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same examples in each run, so that a change is judged by what it changed; BOOTFLOW_HISTORIES=N looks for new ones."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None)
if not os.environ.get("BOOTFLOW_HISTORIES"):
    settings.load_profile("same")
