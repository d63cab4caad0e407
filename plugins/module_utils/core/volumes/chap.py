# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CHAP credentials that both ends of an export accept. source: RFC 3720"""

from __future__ import annotations

import re

from ..errors import InvalidInput
from .names import ChapCredentials

# tgt's files separate words by blanks and lines, # and <> have a meaning, and tgt-admin passes the words to a shell.
_CHAP_WORD = re.compile(r"[A-Za-z0-9._-]+\Z")
#: RFC 3720 (8.2.1) requires 96 bits; some initiators reject more than 16 characters, LIO accepts up to 255.
CHAP_SECRET_LENGTHS = (12, 255)


def chap_of(user: str | None, secret: str | None, volume_id: str) -> ChapCredentials | None:
    """The credentials; None when neither is given.

    :raises InvalidInput: one without the other, or characters that a configuration file cannot hold. Shows no secret.
    """
    if not user and not secret:
        return None
    if not user or not secret:
        raise InvalidInput(reason="volume %s has a chap_user or a chap_secret, not both" % volume_id)
    least, most = CHAP_SECRET_LENGTHS
    if not _CHAP_WORD.match(user) or not _CHAP_WORD.match(secret) or not least <= len(secret) <= most:
        raise InvalidInput(
            reason="the CHAP credentials of volume %s cannot be used" % volume_id,
            remedy="Letters, digits, dots, underscores and hyphens; the secret has %d to %d of them." % (least, most),
        )
    return ChapCredentials(user, secret)
