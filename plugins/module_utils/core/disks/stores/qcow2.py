# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are qcow2 files: layers over the base images of the host. source: Nova's imagebackend.Qcow2"""

from __future__ import annotations

from ...amounts import MIB
from ..local import QCOW2
from .store_type import FilesType

#: Content of a file besides its data: tables, and internal snapshots of a guest that has some.
_METADATA, _SNAPSHOTS = 64 * MIB, 2


class Qcow2(FilesType):
    name = record_format = QCOW2
    is_layered = True
    content = "a file of %d bytes"

    def has_length(self, sent: int, size: int) -> bool:
        return 0 < sent <= _SNAPSHOTS * size + _METADATA
