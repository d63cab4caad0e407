# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Access to an image on a web server, in a file of its own: hosts load it each time that they make disks."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ImageAccess:
    """How a host fetches an image from its web server. The ledger does not store it: it has secrets."""

    validate_certs: bool = True
    ca_path: str = ""  # files of the host that fetches
    client_cert: str = ""
    client_key: str = ""
    url_username: str = ""
    url_password: str = field(default="", repr=False)
    headers: t.Mapping[str, str] = field(default_factory=dict, repr=False)
    use_proxy: bool = True
