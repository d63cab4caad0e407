# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SSH host keys that guests get on their config drives, so that they are known before the first login."""

from __future__ import annotations

import hashlib
import hmac

from ...module_utils.core.optional import optional_import, require
from ..run.ledger_action import RUN_SECRET


def key_pair(uuid: str) -> tuple[str, str]:
    """Return the host key of a guest in this run: the private key in OpenSSH's format, and the line of the public key.

    Every worker of the run derives the same key from the secret of the run; it is stored nowhere, and ends with the run.

    :raises MissingLibrary: without cryptography, which ansible-core depends on.
    """
    serialization = optional_import("cryptography.hazmat.primitives.serialization")
    ed25519 = optional_import("cryptography.hazmat.primitives.asymmetric.ed25519")
    require(ed25519, "cryptography", "cryptography")
    seed = hmac.new(RUN_SECRET, (uuid + " ssh host key").encode(), hashlib.sha256).digest()
    key = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
    formats, encodings = serialization.PrivateFormat, serialization.Encoding
    private = key.private_bytes(encodings.PEM, formats.OpenSSH, serialization.NoEncryption()).decode("ascii")
    public = key.public_key().public_bytes(encodings.OpenSSH, serialization.PublicFormat.OpenSSH).decode("ascii")
    return private, public
