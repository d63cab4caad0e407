# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Access to an image on a web server, in a separate file: hosts load it each time that they make disks."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class ImageAccess:
    """Access of a host to an image on its web server. The ledger does not store it: it has secrets."""

    validate_certs: bool = True
    ca_path: str = ""  # files of the host that fetches
    client_cert: str = ""
    client_key: str = ""
    url_username: str = ""
    url_password: str = field(default="", repr=False)
    headers: t.Mapping[str, str] = field(default_factory=dict, repr=False)
    use_proxy: bool = True

    def for_server_of(self, url: str, image_url: str) -> ImageAccess:
        """Return the access to another file of the image: without what identifies the client where another server than the image's has it.

        :arg image_url: a path, too: then what identifies the client can be meant for ``url`` only.
        """
        if not image_url.startswith(("http://", "https://")) or server_of(url) == server_of(image_url):
            return self
        return replace(self, client_cert="", client_key="", url_username="", url_password="", headers={})


def server_of(url: str) -> tuple[str, str | None, int | None]:
    """Return (scheme, host, port) of a URL. hosts/images/web.py, a program that stands alone, has its own."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return scheme, parts.hostname, parts.port or _PORTS.get(scheme)
