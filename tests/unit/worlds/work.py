# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How much work something is, the same on any machine however busy it is."""

from __future__ import annotations

import sys
import types
import typing as t


def lines_run(function: t.Callable[[], t.Any], most: int | None = None) -> int:
    """How many lines of Python it runs, those of everything that it calls too. It is ended when it runs more than ``most``."""
    count = 0

    def local(frame: types.FrameType, event: str, argument: t.Any) -> t.Any:
        nonlocal count
        count += event == "line"
        assert most is None or count <= most, "it runs more than %d lines" % most
        return local

    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: local)
    try:
        function()
    finally:
        sys.settrace(before)
    return count
