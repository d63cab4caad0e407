# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The types of volume drivers, by the word that an entry of bootflow_storage_backends has for each."""

from __future__ import annotations

import typing as t

from .driver_type import Configuration, DriverType
from .lvm import Lvm
from .rbd import Rbd

DEFAULT: DriverType = Lvm()
DRIVER_TYPES: t.Mapping[str, DriverType] = {driver.name: driver for driver in (DEFAULT, Rbd())}


def driver_of(configuration: Configuration) -> DriverType:
    """Return the type of a backend. The entry of one that reported before there were others has no word."""
    return DRIVER_TYPES[configuration.get("driver") or DEFAULT.name]
