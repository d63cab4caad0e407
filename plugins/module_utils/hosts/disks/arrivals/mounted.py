# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that come to this host as files in a file system of the instance, on one logical volume."""

from __future__ import annotations

import os
from dataclasses import replace

from ....core.disks.local import DISK, QCOW2
from ...os.paths import checked_disk_name
from ..stores.files import ensure_files
from ..stores.mounted import make_holder
from .files import ArrivingFiles
from .volumes import ArrivingInGroup


class ArrivingMounted(ArrivingInGroup, ArrivingFiles):
    """Files in the file system of the instance."""

    def prepare(self) -> None:
        sizes = {}
        for disk in self.disks:
            name = checked_disk_name(disk["name"])
            sizes[name] = max(int(disk["record"]["virtual_size"]), self.sizes.get(name, 0))
        sizes.update({spec.name: spec.size for spec in self.made})
        make_holder(self.group.vg, self.folder, list(sizes.values()))

    def place(self) -> str:
        return os.path.join(self.folder, DISK)

    def create(self) -> None:
        if self.made:
            ensure_files(self.place(), [replace(spec, backend=QCOW2) for spec in self.made], {}, False)
