# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CHAP credentials of attachments: derived from the run's secret, the same in every worker, stored and printed nowhere.

A target knows one pair for each initiator. So what a run attaches to several guests of a host has the same, where the host
logs in for all of them. A later run has another secret: it gives the target new credentials, and then connects with them.
"""

from __future__ import annotations

import hashlib
import hmac
import random

from ...module_utils.core.volumes.names import ChapCredentials, generate_chap, normal_name
from ..run.ledger_action import RUN_SECRET


def chap_of(volume_id: str, initiator: str) -> ChapCredentials:
    """With what an initiator logs in to a volume in this run. Pass them in options that are no_log only."""
    digest = hmac.new(
        RUN_SECRET, ("chap:%s %s" % (volume_id, normal_name(initiator))).encode(), hashlib.sha256
    ).digest()
    # A separate generator for each, seeded with a secret of 256 bits.
    return generate_chap(random.Random(digest))
