# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""First shape of the ledger."""

from __future__ import annotations

import typing as t

from .. import tables

revision = "0001"


def upgrade(op: t.Any) -> None:
    tables.metadata.create_all(op.get_bind())
