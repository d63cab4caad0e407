# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The volume drivers, by the word that an entry of bootflow_storage_backends has for each."""

from __future__ import annotations

import typing as t

from ....module_utils.core.volumes.drivers.registry import driver_of
from .lvm import LvmDriver
from .rbd import RbdDriver
from .volume_driver import VolumeDriver

_LVM: VolumeDriver = LvmDriver()
_RBD: VolumeDriver = RbdDriver()
_DRIVERS = (_LVM, _RBD)
VOLUME_DRIVERS: t.Mapping[str, VolumeDriver] = {driver.kind.name: driver for driver in _DRIVERS}


def volume_driver(configuration: t.Mapping[str, t.Any]) -> VolumeDriver:
    """Return the driver of a backend."""
    return VOLUME_DRIVERS[driver_of(configuration).name]
