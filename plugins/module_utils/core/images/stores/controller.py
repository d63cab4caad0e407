# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A directory of the controller. Hosts get a copy of the file from it."""

from __future__ import annotations

from .store_kind import FETCHED, Source, StoreKind


class ControllerStore(StoreKind):
    name = "controller"
    summary = "a directory of the controller, which sends the file to hosts"

    def source(self, path: str, store_host: str) -> Source:
        return Source(path=path)

    def way_from(self, host: str, store_host: str) -> str:
        return FETCHED
