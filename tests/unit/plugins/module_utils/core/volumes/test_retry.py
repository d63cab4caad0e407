# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.retry import as_copy_failure, is_rescheduled

RETRY = {"num_attempts": 1, "backends": ["h@b#p"]}


class Broken(errors.BootflowError):
    msg_fmt = "broken"


NEVER = [
    errors.ImageCopyFailure(reason="x"),
    errors.VolumeNotFound(volume_id="x"),
    errors.SnapshotNotFound(snapshot_id="x"),
    errors.VolumeTypeNotFound(volume_type_id="x"),
    errors.VolumeTypeNotFoundByName(volume_type_name="x"),
    errors.ImageUnacceptable(image_id="x", reason="y"),
    errors.ImageTooBig(image_id="x", reason="y"),
    errors.ImageChecksumMismatch(image_id="x", actual="a", expected="b"),
    errors.ImageNotFound(image_id="x"),
]
ELSEWHERE = [
    errors.VolumeBackendAPIException(data="x"),
    errors.DriverNotInitialized(),
    errors.CommandFailed(cmd="lvcreate", rc=5, stderr="no room"),
    errors.HostUnreachable(host="h", reason="x"),
    errors.DiskFull(host="h", path="/", reason="x"),
    errors.InvalidInput(reason="x"),
    errors.ImageDownloadFailed(image_id="x", url="y", reason="z"),  # none of Cinder's list: nothing was made yet
    Broken(),
]


@pytest.mark.parametrize("error", NEVER, ids=lambda e: e.code)
def test_what_no_other_backend_would_do_better_ends_in_error(error):
    assert not is_rescheduled(error, RETRY)


@pytest.mark.parametrize("error", ELSEWHERE, ids=lambda e: e.code)
def test_everything_else_is_tried_elsewhere(error):
    assert is_rescheduled(error, RETRY)


@pytest.mark.parametrize("error", ELSEWHERE, ids=lambda e: e.code)
@pytest.mark.parametrize(
    "more",
    [{"retry": None}, {"retry": {}}, {"retry": RETRY, "copying": True}],
)
def test_unless_it_may_not_be_or_the_copy_had_begun(error, more):
    assert not is_rescheduled(error, **more)


def test_errors_of_a_copy_get_one_name():
    wrapped = as_copy_failure(errors.CommandFailed(cmd="qemu-img", rc=1, stderr="x"))
    assert isinstance(wrapped, errors.ImageCopyFailure)
    assert wrapped.message == "Failed to copy image to volume: qemu-img failed with exit code 1: x"
    cut_off = as_copy_failure(errors.ImageDownloadFailed(image_id="x", url="y", reason="z"))
    assert isinstance(cut_off, errors.ImageCopyFailure)
    assert not is_rescheduled(cut_off, RETRY)
    for kept in (
        errors.ImageUnacceptable(image_id="x", reason="y"),
        errors.ImageTooBig(image_id="x", reason="y"),
        wrapped,
    ):
        assert as_copy_failure(kept) is kept


@pytest.mark.parametrize("error", [*NEVER, *ELSEWHERE[:-1]], ids=lambda e: e.code)
def test_errors_survive_as_plain_data(error):
    again = errors.from_dict(error.as_dict())
    assert type(again) is type(error)
    assert again.as_dict() == error.as_dict()
