# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A directory of a host of the inventory. Other hosts get its images from that host, by the processes that give images from host to host."""

from __future__ import annotations

import typing as t

from ...disks.image_urls import url_on_host
from ...reading.fields import Fields
from ...reading.nearest import suggestion
from .store_kind import RECEIVED, WRITTEN, Source, StoreKind


class HostStore(StoreKind):
    name = "host"
    summary = "a directory of a host of the inventory"

    def read_host(self, fields: Fields, hosts: t.Collection[str]) -> str:
        host = fields.name("host")
        if host and host not in hosts:
            fields.wrong("host", "%s is not in the inventory" % host, suggestion(host, hosts, "The inventory"))
        return host

    def source(self, path: str, store_host: str) -> Source:
        return Source(url=url_on_host(store_host, path))

    def way_from(self, host: str, store_host: str) -> str:
        return WRITTEN if host == store_host else RECEIVED
