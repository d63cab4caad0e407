# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""bootflow_image_stores: what it reads, and what it refuses."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores

HOSTS = ["kvm1", "kvm2"]


def test_the_three_kinds() -> None:
    stores = read_stores(
        {
            "here": {"path": "/srv/images/"},
            "nfs": {"path": "/net/a b", "kind": "shared"},
            "far": {"path": "/srv/images", "kind": "host", "host": "kvm2"},
        },
        HOSTS,
    )
    assert [(s.name, s.kind.name, s.path, s.host) for s in stores] == [
        ("here", "controller", "/srv/images", "localhost"),
        ("nfs", "shared", "/net/a b", "localhost"),
        ("far", "host", "/srv/images", "kvm2"),
    ]
    assert stores.default().name == "here"
    assert stores.get("here").source_of("i") == ("/srv/images/i", "")
    assert stores.get("nfs").source_of("i") == ("", "file:///net/a%20b/i")
    assert stores.get("far").source_of("i") == ("", "host://kvm2/srv/images/i")
    assert [s.name for s in stores.known(["far", "here", "gone"])] == ["here", "far"]


def test_no_store_is_an_error_where_one_is_needed() -> None:
    stores = read_stores(None, HOSTS)
    assert len(stores) == 0
    with pytest.raises(errors.ImageStoreNotFound) as caught:
        stores.default()
    assert "bootflow_image_stores" in caught.value.remedy
    with pytest.raises(errors.ImageStoreNotFound, match="nfs"):
        stores.get("nfs")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"name": "a", "path": "images"}, "path must be an absolute path"),
        ({"name": "a", "path": "/srv/../etc"}, "path must be an absolute path"),
        ({"name": "a"}, "path must be an absolute path"),
        ({"name": "a", "path": "/"}, "must not be the root directory"),
        ({"path": "/srv"}, "name is missing"),
        ({"name": "a", "path": "/srv", "kind": "s3"}, "kind must be one of controller, host, shared"),
        ({"name": "a", "path": "/srv", "kind": "host"}, "host is missing"),
        ({"name": "a", "path": "/srv", "kind": "host", "host": "kvm3"}, "kvm3 is not in the inventory"),
        ({"name": "a", "path": "/srv", "host": "kvm1"}, "host has no effect in a store of the kind controller"),
        ({"name": "a", "path": "/srv", "size": 3}, "Unknown field 'size'"),
    ],
)
def test_what_does_not_fit_is_named_with_its_path(entry: dict[str, t.Any], words: str) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        read_stores([entry], HOSTS)
    (error,) = caught.value.errors
    assert words in error["message"] and error["path"].startswith("image_stores[") and error["remedy"]


def test_names_and_places_are_used_once_and_all_errors_are_named() -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        read_stores([{"name": "a", "path": "/x"}, {"name": "a", "path": "/y"}, {"name": "b", "path": "/x/"}], HOSTS)
    assert [e["message"].split(" ", 1)[1] for e in caught.value.errors] == [
        "'a' is used twice",
        "/x is also the path of the store a",
    ]
