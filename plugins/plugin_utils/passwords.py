# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Admin passwords: the request's, or derived from the run's secret. Neither is stored or handed around."""

from __future__ import annotations

import hashlib
import hmac
import random

from ansible_collections.bootflow.compute.plugins.module_utils.core.reading.identifiers import generate_password
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.guest_data import GuestSecrets
from ansible_collections.bootflow.compute.plugins.plugin_utils.ledger_action import RUN_SECRET


def password_of(uuid: str, secrets: GuestSecrets | None) -> str:
    """The password of an instance in this run."""
    if secrets is not None and secrets.admin_password:
        return secrets.admin_password
    digest = hmac.new(RUN_SECRET, uuid.encode(), hashlib.sha256).digest()
    # A separate generator for each password, seeded with a secret of 256 bits: the same in every worker.
    return generate_password(random.Random(digest))
