# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mark and check the ledger of a domain, a folder or a logical volume: several ledgers may share a host, and each touches only its own.

A mark is the id of the ledger that made the item. Items without one were made by hand, or by a caller without a ledger.

A second mark names the move or the build that made the folder of an instance on this host, see core.instances.move_mark. The host itself
decides by it what may be removed of a move that failed, or of a build whose run died.
"""

from __future__ import annotations

import os
import typing as t

from ...core.errors import Conflict
from ...core.instances.move_mark import arrived, incomplete, is_arrived, is_complete, made_at
from .batch import progress
from .files import read_text, write_file
from .paths import make_dirs

LEDGER_ARGUMENTS: dict[str, dict[str, t.Any]] = {"ledger_id": {"type": "str", "default": ""}}

_MARK = "ledger"  # not the name of a disk
_MADE_FOR = "made_for"  # likewise
MARKS = (_MARK, _MADE_FOR)


def is_of_another(owner: str, ledger_id: str) -> bool:
    """Return whether an item with the mark ``owner`` belongs to another ledger than ``ledger_id``."""
    return bool(owner and ledger_id and owner != ledger_id)


def check_owner(what: str, owner: str, ledger_id: str) -> None:
    """Check the mark. :raises Conflict: it belongs to another ledger."""
    if is_of_another(owner, ledger_id):
        raise Conflict(
            message="%s belongs to the ledger %s, not to this one (%s)" % (what, owner, ledger_id),
            remedy="Nothing was changed. Use the ledger to which it belongs.",
        )


def mark_folder(folder: str, ledger_id: str) -> bool:
    """Make the folder of an instance with the mark. Returns whether the mark was missing.

    :raises Conflict: it belongs to another ledger.
    """
    owner = ledger_of_folder(folder)
    check_owner("folder %s" % folder, owner, ledger_id)
    if owner or not ledger_id:
        return False
    progress.mark_changed()
    make_dirs(folder)
    write_file(os.path.join(folder, _MARK), ledger_id.encode() + b"\n")
    return True


def ledger_of_folder(folder: str) -> str:
    """Return the mark of an instance's folder; "" without one."""
    return read_text(os.path.join(folder, _MARK))


def mark_made_for(folder: str, move: str) -> None:
    """Write into the folder of an instance which move makes it. :arg move: see core.instances.move_mark"""
    if move:
        progress.mark_changed()
        make_dirs(folder)
        write_file(os.path.join(folder, _MADE_FOR), move.encode() + b"\n")


def mark_made_at(folder: str, seconds: float) -> None:
    """Write into the folder of an instance when a boot or a rebuild made it, unless a mark says so already. :arg seconds: since the epoch; 0.0: not known"""
    if seconds and not made_for(folder):
        mark_made_for(folder, made_at(seconds))


def made_for(folder: str) -> str:
    """Return the move that made the folder of an instance; "" if none did."""
    return read_text(os.path.join(folder, _MADE_FOR))


def mark_arrived(folder: str) -> None:
    """Mark a guest that has arrived, or is built: the folder is the instance's, and no failure of its move or build removes it. The time stays."""
    move = made_for(folder)
    if move and not is_arrived(move):
        write_file(os.path.join(folder, _MADE_FOR), arrived(move).encode() + b"\n")


def mark_incomplete(folder: str) -> None:
    """Mark the folder of an instance that is being removed: after an interruption its remains do not count as an arrived guest."""
    mark = made_for(folder)
    if is_arrived(mark):
        write_file(os.path.join(folder, _MADE_FOR), incomplete(mark).encode() + b"\n")


def has_arrived(folder: str, has_domain: bool) -> bool:
    """Return whether the guest of this folder has arrived, or is built. :arg has_domain: whether there is a domain of it"""
    return is_complete(made_for(folder), has_domain)
