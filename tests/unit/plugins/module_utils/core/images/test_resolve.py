# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One resolver for images of the inventory and of the ledger: by id, else by name, never by chance."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.image_urls import (
    host_and_path,
    host_of,
    url_on_host,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import life
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.image import Place, StoredImage
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.resolve import LedgerImages, resolve
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Image

STORES = read_stores(
    [
        {"name": "here", "path": "/srv/images"},
        {"name": "nfs", "path": "/net/images", "kind": "shared"},
        {"name": "far", "path": "/srv/images", "kind": "host", "host": "kvm1"},
    ],
    ["kvm1"],
)
DEBIAN = Image(name="debian", id="id-debian", disk_format="qcow2", url="http://images.example/debian")
CATALOGUE = {"debian": DEBIAN}
ONE = "11111111-2222-4333-8444-55555555555a"
TWO = "22222222-2222-4333-8444-55555555555a"


def stored(
    image_id: str = ONE, name: str = "web", project: str = "red", store: str = "here", **fields: t.Any
) -> StoredImage:
    given: dict[str, t.Any] = {
        "status": life.ACTIVE,
        "size": 9,
        "checksum": "ab" * 32,
        "disk_format": "qcow2",
        "places": (Place(store, life.DONE),),
    }
    return StoredImage(id=image_id, name=name, project=project, **{**given, **fields})


def find(word: str, *images: StoredImage, project: str | None = "red") -> Image:
    return resolve(word, CATALOGUE, LedgerImages(images, STORES), project)


def test_an_image_of_either_kind_by_name_or_id() -> None:
    assert find("debian") == find("id-debian") == DEBIAN
    for word in ("web", ONE, ONE.upper()):
        found = find(word, stored())
        assert (found.id, found.name, found.path, found.url) == (ONE, "web", "/srv/images/" + ONE, "")
        assert (found.checksum, found.size, found.status) == ("ab" * 32, 9, "active")


def test_hosts_get_it_as_the_store_says() -> None:
    assert find("web", stored(store="nfs")).url == "file:///net/images/" + ONE
    both = (Place("far", life.DONE), Place("nfs", life.DONE))
    assert find("web", stored(places=both)).url == "file:///net/images/" + ONE


def test_one_of_a_store_of_a_host_comes_from_that_host_unless_another_store_has_it() -> None:
    found = find("web", stored(store="far"))
    assert host_and_path(found.url) == ("kvm1", "/srv/images/" + ONE) and not found.path
    both = (Place("far", life.DONE), Place("here", life.DONE))
    assert find("web", stored(places=both)).path == "/srv/images/" + ONE


@pytest.mark.parametrize("host, path", [("kvm1", "/srv/images/i"), ("a/b c", "/srv/a b/%41"), ("::1", "/x")])
def test_the_url_of_a_file_of_a_host_has_both_whatever_they_are(host: str, path: str) -> None:
    url = url_on_host(host, path)
    assert host_and_path(url) == (host, path) and host_of(url) == host and " " not in url
    assert host_and_path("http://%s" % url[7:]) == ("", "") and host_of("") == ""


def test_one_without_a_known_store_is_named_with_the_reason() -> None:
    with pytest.raises(errors.ImageNotReadable, match=r"none of its stores \(gone\)"):
        find("web", stored(store="gone"))


def test_a_name_of_two_is_refused_and_their_ids_are_not() -> None:
    with pytest.raises(errors.ImageAmbiguous) as caught:
        find("web", stored(), stored(TWO, project="blue", visibility="public"))
    assert ONE in caught.value.message and TWO in caught.value.message and caught.value.status == 409
    assert find(TWO, stored(), stored(TWO, project="blue", visibility="public")).id == TWO
    with pytest.raises(errors.ImageAmbiguous, match="id-debian in bootflow_images"):
        find("debian", stored(name="debian"))
    assert find(ONE, stored(name="debian")).id == ONE


@pytest.mark.parametrize(
    ("visibility", "by_name", "by_id"), [("private", False, False), ("public", True, True), ("community", False, True)]
)
def test_what_other_projects_see(visibility: str, by_name: bool, by_id: bool) -> None:
    image = stored(visibility=visibility)
    for word, seen in (("web", by_name), (ONE, by_id)):
        if seen:
            assert find(word, image, project="blue").id == ONE
        else:
            with pytest.raises(errors.ImageNotFound):
                find(word, image, project="blue")
        assert find(word, image).id == find(word, image, project=None).id == ONE


def test_another_projects_private_image_neither_hides_nor_names_a_name() -> None:
    assert find("debian", stored(name="debian", project="blue")) == DEBIAN
    with pytest.raises(errors.ImageNotFound) as caught:
        find("wep", stored(project="blue"))
    assert "web" not in caught.value.remedy
    with pytest.raises(errors.ImageNotFound) as caught:
        find("wep", stored())
    assert "web" in caught.value.remedy


@pytest.mark.parametrize("status", [life.QUEUED, life.SAVING])
def test_one_that_is_not_active_says_so(status: str) -> None:
    assert find("web", stored(status=status, places=())).status == status


@pytest.mark.parametrize("status", [life.KILLED, life.DELETED])
def test_one_without_bytes_is_not_found(status: str) -> None:
    with pytest.raises(errors.ImageNotFound):
        find("web", stored(status=status, places=()))
