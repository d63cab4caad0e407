# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""URLs of images."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit, urlunsplit


def split_login(url: str) -> tuple[str, str, str]:
    """(the URL without user and password, user, password); what is not a URL stays as it is."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url, "", ""
    login, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, "", ""
    user, _colon, password = login.partition(":")
    return urlunsplit(parts._replace(netloc=host)), unquote(user), unquote(password)
