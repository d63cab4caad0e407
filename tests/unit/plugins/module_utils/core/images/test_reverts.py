# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which image an instance goes back to: every combination of what an image was made of and what the request names."""

from __future__ import annotations

import itertools
import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.images import life, reverts
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.image import PUBLIC, Place, StoredImage
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.resolve import LedgerImages
from ansible_collections.bootflow.compute.plugins.module_utils.core.images.stores.registry import read_stores

STORES = read_stores([{"name": "nfs", "path": "/net/images", "kind": "shared"}], [])
OWN, OTHER = "11111111-0000-4000-8000-00000000000a", "22222222-0000-4000-8000-00000000000a"
#: made of -> the instance of the record
MADE_OF = {"itself": OWN, "another": OTHER, "a file": None}


def image(number: int, made_of: str | None, **fields: t.Any) -> StoredImage:
    given = {"name": "web-snap", "project": "p", "status": life.ACTIVE, "disk_format": "qcow2", **fields}
    places = (Place("nfs", life.DONE),)
    return StoredImage(id="99999999-0000-4000-8000-%012d" % number, instance_uuid=made_of, places=places, **given)


def chosen(word: str, *images: StoredImage, project: str = "p", bfv: bool = False) -> str:
    """The id of the image, or the code of the error."""
    spec = {"is_bfv": bfv, "flavor": {"name": "small"}}
    try:
        return reverts.image_of(word, LedgerImages(images, STORES), "web", OWN, project, spec).id
    except errors.BootflowError as e:
        return e.code


#: (what images of the name were made of) -> the number of the image, or the error
TABLE: dict[tuple[str, ...], int | str] = {
    (): "LedgerImageNotFound",
    ("itself",): 0,
    ("another",): "ImageUnacceptable",
    ("a file",): "ImageUnacceptable",
    ("itself", "another"): 0,
    ("another", "itself"): 1,
    ("itself", "a file"): 0,
    ("a file", "itself"): 1,
    ("itself", "itself"): "ImageAmbiguous",
    ("another", "another"): "ImageAmbiguous",
    ("another", "a file"): "ImageAmbiguous",
    ("a file", "another"): "ImageAmbiguous",
    ("a file", "a file"): "ImageAmbiguous",
}


def test_the_table_is_whole() -> None:
    assert set(TABLE) == {c for n in range(3) for c in itertools.product(MADE_OF, repeat=n)}


@pytest.mark.parametrize(("made_of", "expected"), TABLE.items(), ids=str)
def test_by_the_name(made_of: tuple[str, ...], expected: int | str) -> None:
    images = [image(number, MADE_OF[word]) for number, word in enumerate(made_of)]
    wanted = expected if isinstance(expected, str) else images[expected].id
    assert chosen("web-snap", *images) == chosen("%(name)s-snap", *images) == wanted


@pytest.mark.parametrize("made_of", MADE_OF)
def test_by_the_id(made_of: str) -> None:
    named = image(5, MADE_OF[made_of])
    wanted = named.id if made_of == "itself" else "ImageUnacceptable"
    assert chosen(named.id, named, image(6, OWN)) == wanted


@pytest.mark.parametrize("bfv", [False, True])
@pytest.mark.parametrize("project", ["p", "q"])
@pytest.mark.parametrize("visibility", ["private", PUBLIC])
def test_a_root_that_is_a_volume_and_an_image_of_another_project(visibility: str, project: str, bfv: bool) -> None:
    named = image(7, OWN, visibility=visibility)
    visible = project == "p" or visibility == PUBLIC
    expected = "NotSupportedYet" if bfv else named.id if visible else "LedgerImageNotFound"
    assert chosen("web-snap", named, project=project, bfv=bfv) == expected


def test_the_refusal_says_whose_image_it_is_and_what_to_do() -> None:
    with pytest.raises(errors.ImageUnacceptable) as caught:
        reverts.image_of("s", LedgerImages([image(1, OTHER, name="s")], STORES), "web", OWN, "p", {})
    assert OTHER in caught.value.message and OWN in caught.value.message and "rebuild" in caught.value.remedy


def test_the_image_has_to_be_named() -> None:
    for word in (None, ""):
        with pytest.raises(errors.InvalidInput, match="bootflow_revert_image is not set"):
            reverts.read_word(word)
    assert reverts.read_word("web-snap") == "web-snap"
