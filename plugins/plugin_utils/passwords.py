# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Admin passwords: the request's, or derived from the run's secret. Neither is stored or handed around (row A12)."""

from __future__ import annotations

import base64
import hashlib
import hmac

from ansible_collections.bootflow.compute.plugins.module_utils.core.model import ServerRequest
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import RUN_SECRET

LENGTH = 12  # Nova's password_length


def password_of(uuid: str, request: ServerRequest | None) -> str:
    """The password of an instance in this run."""
    if request is not None and request.admin_password:
        return request.admin_password
    digest = hmac.new(RUN_SECRET, uuid.encode(), hashlib.sha256).digest()
    return base64.b32encode(digest).decode().lower()[:LENGTH]
