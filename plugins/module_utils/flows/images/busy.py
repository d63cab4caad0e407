# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a run works on an image."""

from __future__ import annotations

from ...core.errors import ImageInUse
from ...core.images import life
from ...ledger.compute import runs
from ...ledger.db.transaction import Transaction
from ...ledger.images.images import ImageRow


def check_not_busy(tx: Transaction, row: ImageRow) -> None:
    """Check that no other live run writes the bytes of the image. :raises ImageInUse: one does"""
    if (
        row.status not in life.BUSY
        or row.run_id in (None, tx.run.id)
        or row.run_id in runs.dead_among(tx, [row.run_id])
    ):
        return
    error = runs.locked_error(tx, row.name, row.run_id)
    raise ImageInUse(image_id=row.id, reason=error.message)
