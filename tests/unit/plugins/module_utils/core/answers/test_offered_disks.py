# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host answers of disks that leave it, of every backend, is taken; other formats are not."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.answers import answer
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidAnswer

UUID = "0f0e0d0c-0b0a-4908-8706-050403020100"


def offered(**fields: t.Any) -> dict[str, t.Any]:
    record = {"kind": "image", "format": "qcow2", "virtual_size": 1024, "image_id": UUID, "base": ""}
    record.update(fields.pop("record", {}))
    file = {"name": "disk", "size": 512, "allocated": 512, "record": record, **fields}
    outcome = {"changed": False, "error": None, "files": [file]}
    return {"outcomes": {UUID: outcome}, "port": 49216, "fingerprint": "a" * 64}


@pytest.mark.parametrize(
    "fields",
    [{}, {"record": {"format": "raw"}}, {"record": {"format": "lvm", "volume_group": "guests"}}, {"mounted": True}],
)
def test_disks_of_each_backend(fields: dict[str, t.Any]) -> None:
    answer.check("instance_disks_offer", "h1", offered(**fields))


@pytest.mark.parametrize("fields", [{"record": {"format": "vmdk"}}, {"mounted": "yes"}, {"size": -1}])
def test_nonsense(fields: dict[str, t.Any]) -> None:
    with pytest.raises(InvalidAnswer):
        answer.check("instance_disks_offer", "h1", offered(**fields))
