# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The name under which a host logs in to targets."""

from __future__ import annotations

import hashlib
import re

from ..names import INITIATOR_PREFIX


def host_initiator(host: str, reported: str | None) -> str:
    """Return the initiator to which volumes of the host's instances are exported.

    QEMU accepts any initiator name, so a host without one gets a name derived from its name in the inventory.

    :arg reported: the name in the host's report.
    """
    word = re.sub(r"[^a-z0-9_.-]+", "-", host.lower()).strip("-.")[:128] or "host"
    if word != host:  # another host may become the same word
        word += "-" + hashlib.sha256(host.encode()).hexdigest()[:8]
    return reported or INITIATOR_PREFIX + word
