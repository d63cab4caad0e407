# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Outcome of an instance on the hosts of its move."""

from __future__ import annotations

import typing as t

from ... import errors
from .. import states


class Ending(t.NamedTuple):
    """The end of a move, or of its revert."""

    power_state: int = states.NOSTATE  # of the guest where the instance is; NOSTATE: not known, unless it is gone
    error: errors.BootflowError | None = None  # why it failed
    cleaned: bool = True  # the destination has nothing of the instance, where it is not there
    domain_missing: bool = False  # the host where it is has no domain of it, which is known
