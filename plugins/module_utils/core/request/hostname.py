# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hostname of a guest, from the instance's display name."""

from __future__ import annotations

import re
import typing as t

from ..errors import InvalidInput

#: dnsmasq's limit, adopted by Nova
MAX_HOSTNAME = 63

_TO_DASH = re.compile(r"[ _.]")
_NOT_IN_HOSTNAME = re.compile(r"[^\w.-]+", re.ASCII)


def sanitize_hostname(name: str, uuid: t.Optional[str] = None) -> str:
    """Return the hostname for an instance named ``name``.

    As in Nova: characters above U+00FF are removed, the rest is cut to 63 characters, blanks, underscores and dots become
    dashes, other non-word characters are removed, lower case, no dash at either end. If nothing is left:
    Server-<uuid>, or the empty string without ``uuid``. Word characters are ASCII's (Nova under Python 3 leaves
    accented letters in, which no hostname has).

    :raises InvalidInput: the name is not a text.
    """
    if not isinstance(name, str):
        raise InvalidInput(reason="the name %r is not a text" % (name,))
    hostname = name.encode("latin-1", "ignore").decode("latin-1")[:MAX_HOSTNAME]
    hostname = _NOT_IN_HOSTNAME.sub("", _TO_DASH.sub("-", hostname)).lower().strip(".-")
    if hostname or uuid is None:
        return hostname
    return ("Server-%s" % uuid)[:MAX_HOSTNAME]


def instance_hostname(request_name: str, instance_name: str, uuid: str, requested: t.Optional[str] = None) -> str:
    """The hostname of one instance of a request: the requested one, or the sanitised name of the request with its number.

    A name that sanitises to nothing gives Server-<uuid>, not the bare number. The number follows the sanitised name, which
    is cut where both have more than 63 characters (Nova's hostname is longer then). source: Nova's _populate_instance_names
    """
    if requested:
        return requested
    hostname = sanitize_hostname(request_name)
    if not hostname:
        return sanitize_hostname("", uuid)
    number = instance_name[len(request_name) :]
    return hostname[: MAX_HOSTNAME - len(number)].rstrip("-") + number
