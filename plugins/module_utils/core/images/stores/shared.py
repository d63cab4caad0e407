# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A directory that the controller and all hosts have at the same path, as of a file server. Hosts read the file there."""

from __future__ import annotations

from urllib.parse import quote

from .store_kind import WRITTEN, Source, StoreKind


class SharedStore(StoreKind):
    name = "shared"
    summary = "a directory that the controller and all hosts have at the same path"
    mode = "0644"  # to a file server root of a host is another user

    def source(self, path: str, store_host: str) -> Source:
        return Source(url="file://" + quote(path))

    def way_from(self, host: str, store_host: str) -> str:
        return WRITTEN
