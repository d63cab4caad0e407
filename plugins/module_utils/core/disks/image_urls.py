# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""URLs of images."""

from __future__ import annotations

from urllib.parse import quote, unquote, urlsplit, urlunsplit

#: Of the file of an image that only a host of the inventory has: no person writes it, and no program reads it but ours.
_OF_HOST = "host://"


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


def url_on_host(host: str, path: str) -> str:
    """Return the URL of a file of a host of the inventory, as an image has it whose only store is there."""
    return "%s%s%s" % (_OF_HOST, quote(host, safe=""), quote(path))


def host_and_path(url: str) -> tuple[str, str]:
    """Return the host and the path of url_on_host(); empty for any other URL."""
    if not url.startswith(_OF_HOST):
        return "", ""
    host, slash, path = url[len(_OF_HOST) :].partition("/")
    return unquote(host), slash + unquote(path)


def host_of(url: str) -> str:
    """Return the host of url_on_host(); "" for any other URL."""
    return host_and_path(url)[0]


def local_source(path: str) -> str:
    """Return a path of the host that reads it as a file:// URL."""
    return "file://" + quote(path)
