# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of modules that work on incremental backups."""

from __future__ import annotations

import re

from ..backups.backup import KINDS
from ..disks.local import QCOW2
from .guests import power_state, seconds
from .outcomes import outcomes
from .shapes import Field, Fields, choice, flag, items, maybe, message, name, path, size, text

_sha256 = text(64, least=64, pattern=re.compile("[0-9a-f]+"))
_MADE = "success, not in check mode"

ANSWERS: dict[str, tuple[Fields, Fields]] = {
    "instance_backup": (
        {
            "outcomes": outcomes(
                "The outcome of each instance, by its UUID.",
                "Whether the backup was, or in check mode would be, made.",
                {
                    "power_state": Field(power_state, "Nova's number for the guest's state, 1 for running."),
                    "kind": Field(
                        choice(*KINDS), "Whether the backup is full, or has what was written since its parent."
                    ),
                    "parent_id": Field(maybe(name), "Id of the backup that it needs; null of a full one."),
                    "reason": Field(text(4096), "Why it is full."),
                },
                {
                    "live": Field(flag, "Whether QEMU wrote the backup of a guest that it runs, or has paused."),
                    "quiesced": Field(flag, "Whether the guest's file systems stood still at its begin."),
                    "folder": Field(path, "Where the file is.", _MADE),
                    "file": Field(name, "Name of the file.", _MADE),
                    "size": Field(size, "Size of the file in bytes.", _MADE),
                    "virtual_size": Field(size, "Size of the disk in bytes.", _MADE),
                    "checksum": Field(_sha256, "The sha256 of the file.", _MADE),
                    "checkpoint": Field(text(), "libvirt's name of its checkpoint; empty without one.", _MADE),
                    "checkpoint_xml": Field(message, "The checkpoint as libvirt describes it.", _MADE),
                    "removed": Field(items(name), "Ids of backups of which nothing is left."),
                    "seconds": Field(seconds, "Duration in seconds."),
                },
            )
        },
        {},
    ),
    "instance_backup_image": (
        {
            "outcomes": outcomes(
                "The outcome of each image, by its key.",
                "Whether the image was, or in check mode would be, made.",
                {"disk_format": Field(choice(QCOW2), "Format of the file.")},
                {
                    "size": Field(size, "Size of the file in bytes.", _MADE),
                    "checksum": Field(_sha256, "Its sha256.", _MADE),
                    "path": Field(path, "Where the file is.", _MADE),
                    "seconds": Field(seconds, "Duration in seconds."),
                },
            )
        },
        {},
    ),
    "instance_backup_check": (
        {
            "outcomes": outcomes(
                "The outcome of each backup, by its id.",
                "Always false: nothing is written.",
                {"damage": Field(text(4096), "What is wrong with its file, in words; empty if nothing is.")},
                {"seconds": Field(seconds, "Duration in seconds.")},
            )
        },
        {},
    ),
    "instance_backup_removal": (
        {
            "outcomes": outcomes(
                "The outcome of each backup, by its id.",
                "Whether something of it was, or in check mode would be, removed.",
            )
        },
        {},
    ),
}
