# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Root volumes that are written again, as a whole table of rules."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Image
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes import reimage, states
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.model import Volume

GIB = 1024**3
BAD = errors.ImageCopyFailure(reason="broken")


def image(**fields: object) -> Image:
    return Image(**{"name": "debian", "id": "new", "disk_format": "raw", "checksum": "1" * 64, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "has", "named", "written"),
    [
        ("in-use", "old", None, False),
        ("in-use", "old", "old", False),
        ("in-use", "old", "new", True),
        ("in-use", None, "new", True),
        ("in-use", None, None, False),
        ("error", "old", None, True),
        ("error", "old", "old", True),
        ("error", "old", "new", True),
        ("error", None, None, True),
        ("error", None, "new", True),
    ],
)
def test_when_a_root_volume_is_written_again(status: str, has: str | None, named: str | None, written: bool) -> None:
    """As Nova compares the image of the rebuild with the volume's own; and where its content is lost."""
    assert reimage.is_wanted(status, has, named) is written


@pytest.mark.parametrize("guests", [1, 2])
@pytest.mark.parametrize("status", states.VOLUME_STATES)
def test_in_which_status_it_begins(status: str, guests: int) -> None:
    volume = Volume(id="v", size=2, status=status)
    if guests > 1:
        with pytest.raises(errors.Conflict, match="attached to more than one server"):
            reimage.check(volume, image(), guests)
    elif status in ("in-use", "error"):
        reimage.check(volume, image(), guests)
    else:
        with pytest.raises(
            errors.InvalidVolume, match="Volume root status must be in-use or error, but current status is"
        ):
            reimage.check(volume, image(), guests, "root")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, None),
        ({"size": 2 * GIB, "min_disk": 2}, None),
        ({"size": 2 * GIB + 1}, "Size of specified image 3GB is larger than volume size 2GB"),
        ({"min_disk": 3}, "Volume size 2GB cannot be smaller than the image minDisk size 3GB"),
        ({"status": "queued"}, "Image new is not active"),
    ],
    ids=str,
)
def test_which_images_fit(fields: dict[str, object], message: str | None) -> None:
    """As Cinder's check_image_metadata, and as those of a new volume."""
    volume = Volume(id="v", size=2, status="in-use")
    if message is None:
        reimage.check(volume, image(**fields))
        return
    with pytest.raises(errors.InvalidInput, match=message):
        reimage.check(volume, image(**fields))


@pytest.mark.parametrize("former", ["in-use", "error"])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("error", [None, BAD])
@pytest.mark.parametrize("untouched", [False, True])
def test_what_becomes_of_the_volume(
    former: str, begun: bool, error: errors.BootflowError | None, untouched: bool
) -> None:
    """Only what nothing was written of is what it was."""
    previous = "error" if begun else former
    after = reimage.status_after(previous, former, error, untouched)
    if error is None:
        assert after == "in-use"
    else:
        assert after == (former if untouched or not begun else "error")


@pytest.mark.parametrize("status", states.VOLUME_STATES)
@pytest.mark.parametrize("previous", [None, "in-use", "error"])
def test_whose_content_is_not_known(status: str, previous: str | None) -> None:
    """A volume in other work may have any previous_status."""
    assert reimage.is_torn(status, previous) == (status == "error" or (status, previous) == ("reserved", "error"))
