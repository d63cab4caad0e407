# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are raw files: copies of images. source: Nova's imagebackend.Flat"""

from __future__ import annotations

from ..local import RAW
from .store_type import FilesType

_SECTORS = 4096  # bytes that a file is rounded up by


class Raw(FilesType):
    name = record_format = RAW
    rescue_format = RAW

    def has_length(self, sent: int, size: int) -> bool:
        return abs(sent - size) < _SECTORS
