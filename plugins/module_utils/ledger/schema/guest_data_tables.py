# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of user data and injected files. See tables.py."""

from __future__ import annotations

from ..db.sqlalchemy_import import sa
from .base import metadata

# Texts that live instances were booted with. Only controllers with bootflow_user_data_store=ledger write it.
guest_texts = sa.Table(
    "guest_texts",
    metadata,
    sa.Column("sha256", sa.String(64), primary_key=True),  # of the clear text, in hexadecimal digits
    sa.Column("key_id", sa.String(16), nullable=False, default="", server_default=""),  # that encrypts it; "": none
    sa.Column("contents", sa.Text, nullable=False),
)
