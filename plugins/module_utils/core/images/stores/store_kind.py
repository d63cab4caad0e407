# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A kind of store: who reaches its directory, and how a host gets an image from it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...reading.fields import Fields

#: The host of the inventory on which the controller works on its own files.
CONTROLLER = "localhost"


class Source(t.NamedTuple):
    """How a host gets an image, in the fields of core.model.Image."""

    path: str = ""  # a file of the controller
    url: str = ""  # also of a file of another host: see core.disks.image_urls


#: How the bytes of a host's disk come into a store: the host writes them there, the controller fetches them, or the store's host receives them from it.
WRITTEN, FETCHED, RECEIVED = "written", "fetched", "received"


class StoreKind:
    """One kind. ``summary``: for the documentation."""

    name = ""
    summary = ""
    mode = "0600"  # of its files: an image has what its guests have

    def read_host(self, fields: Fields, hosts: t.Collection[str]) -> str:
        """Return the host that works on the files of the store. :arg hosts: of the inventory"""
        fields.refuse(
            "host",
            fields.raw("host") is not None,
            "has no effect in a store of the kind %s" % self.name,
            "Leave it out.",
        )
        return CONTROLLER

    def source(self, path: str, store_host: str) -> Source:
        """Return how any host gets the file at ``path`` of the store. :arg store_host: that works on its files"""
        raise NotImplementedError

    def way_from(self, host: str, store_host: str) -> str:
        """Return how a compute host's bytes come into the store: WRITTEN, FETCHED or RECEIVED. :arg store_host: that works on its files"""
        raise NotImplementedError


@dataclass(frozen=True)
class ImageStore:
    """A store of bootflow_image_stores."""

    name: str
    kind: StoreKind
    path: str  # of its directory
    host: str = CONTROLLER  # that works on its files

    def file_of(self, image_id: str) -> str:
        """Return the path of the file of an image. Only a whole, verified file has it."""
        return "%s/%s" % (self.path.rstrip("/"), image_id)

    def source_of(self, image_id: str) -> Source:
        """Return how any host gets an image of the store."""
        return self.kind.source(self.file_of(image_id), self.host)

    def way_from(self, host: str) -> str:
        """Return how a compute host's bytes come into the store: see StoreKind.way_from()."""
        return self.kind.way_from(host, self.host)
