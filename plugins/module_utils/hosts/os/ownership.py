# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose a domain, a folder or a logical volume is: several ledgers may share a host, and each touches only its own.

A mark is the id of the ledger that made the item. Items without one were made by hand, or by a caller without a ledger.
"""

from __future__ import annotations

import os
import typing as t

from ...core.errors import Conflict
from .batch import progress
from .files import read_text, write_file
from .paths import make_dirs

LEDGER_ARGUMENTS: dict[str, dict[str, t.Any]] = {"ledger_id": {"type": "str", "default": ""}}

_MARK = "ledger"  # not the name of a disk


def is_of_another(found: str, ledger_id: str) -> bool:
    """Whether an item with the mark ``found`` belongs to another ledger than ``ledger_id``."""
    return bool(found and ledger_id and found != ledger_id)


def check_owner(what: str, found: str, ledger_id: str) -> None:
    """:raises Conflict: it belongs to another ledger."""
    if is_of_another(found, ledger_id):
        raise Conflict(
            message="%s belongs to the ledger %s, not to this one (%s)" % (what, found, ledger_id),
            remedy="Nothing was changed. Work with the ledger that it belongs to.",
        )


def mark_folder(folder: str, ledger_id: str) -> bool:
    """Make the folder of an instance with the mark. Returns whether the mark was missing.

    :raises Conflict: it belongs to another ledger.
    """
    found = ledger_of_folder(folder)
    check_owner("folder %s" % folder, found, ledger_id)
    if found or not ledger_id:
        return False
    progress.mark_changed()
    make_dirs(folder)
    write_file(os.path.join(folder, _MARK), ledger_id.encode() + b"\n")
    return True


def ledger_of_folder(folder: str) -> str:
    """The mark of an instance's folder; "" without one."""
    return read_text(os.path.join(folder, _MARK))
