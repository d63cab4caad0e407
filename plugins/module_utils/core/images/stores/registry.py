# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kinds of stores by their names, and the stores of bootflow_image_stores."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...errors import ImageStoreNotFound
from ...reading.fields import Fields, entries_of
from ...reading.nearest import suggestion
from ...reading.problems import Problems
from ...reading.setting import ABSOLUTE
from .controller import ControllerStore
from .host import HostStore
from .shared import SharedStore
from .store_kind import ImageStore, StoreKind

STORE_KINDS: dict[str, StoreKind] = {kind.name: kind for kind in (ControllerStore(), HostStore(), SharedStore())}
DEFAULT = ControllerStore.name


@dataclass(frozen=True)
class ImageStores:
    """The stores, in the order of the inventory."""

    stores: tuple[ImageStore, ...] = ()

    def __iter__(self) -> t.Iterator[ImageStore]:
        return iter(self.stores)

    def __len__(self) -> int:
        return len(self.stores)

    def get(self, name: str) -> ImageStore:
        """:raises ImageStoreNotFound: unknown."""
        for store in self:
            if store.name == name:
                return store
        names = [store.name for store in self]
        raise ImageStoreNotFound(store=name, remedy=suggestion(name, names, "bootflow_image_stores"))

    def default(self) -> ImageStore:
        """Return the first store. :raises ImageStoreNotFound: there is none."""
        for store in self:
            return store
        raise ImageStoreNotFound(
            message="There is no image store.", remedy="Declare one in bootflow_image_stores (docs/images.md)."
        )

    def known(self, names: t.Iterable[str]) -> list[ImageStore]:
        """Return the named stores that the inventory has, in the order of the inventory."""
        wanted = set(names)
        return [store for store in self if store.name in wanted]


def read_stores(data: t.Any, hosts: t.Collection[str]) -> ImageStores:
    """The stores from bootflow_image_stores: a list of {name, kind, path, host}, or a mapping keyed by name.

    :arg hosts: of the inventory.
    :raises InvalidRequest: all errors, the paths beginning with image_stores.
    """
    problems = Problems()
    stores: dict[str, ImageStore] = {}
    places: dict[tuple[str, str], str] = {}
    for fields in entries_of("image_stores", data, problems):
        store = _read(fields, hosts)
        fields.unknown()
        if store.name in stores:
            fields.wrong("name", "%r is used twice" % store.name, "Give each store its own name.")
        other = places.setdefault((store.host, store.path), store.name)
        if store.path and other != store.name:
            fields.wrong("path", "%s is also the path of the store %s" % (store.path, other), "Paths must differ.")
        stores[store.name] = store
    problems.raise_if_any()
    return ImageStores(tuple(stores.values()))


def _read(fields: Fields, hosts: t.Collection[str]) -> ImageStore:
    name = fields.name("name", maximum=255)
    kind = STORE_KINDS[fields.choice("kind", tuple(STORE_KINDS), DEFAULT)]
    path = fields.text("path")
    try:
        path = ABSOLUTE.read(path)
    except ValueError:
        fields.wrong("path", "must be %s" % ABSOLUTE.expects, "Write a directory as /srv/images.")
        path = ""
    if path == "/":
        fields.wrong("path", "must not be the root directory", "Write a directory as /srv/images.")
    return ImageStore(name=name, kind=kind, path=path, host=kind.read_host(fields, hosts))
