# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Backends that cannot be meant, and amounts; the rest is on real LVM, in tests/storage_py/test_storage_role.py."""

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm import prepare
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm.lvm import VolumeGroup

MIB = 1024**2


def test_a_backend_has_the_names_of_the_driver_where_it_says_nothing():
    assert prepare.wanted_of({"name": "lvm"}) == prepare.Wanted("lvm", "cinder-volumes")
    thin = prepare.wanted_of({"name": "lvm", "volume_group": "vg", "provisioning": "thin", "thin_pool": None})
    assert thin.pool == "vg-pool"


@pytest.mark.parametrize(
    "wrong",
    [
        {"volume_group": "-rf"},
        {"volume_group": "a b"},
        {"provisioning": "thin", "thin_pool": "a/b"},
        {"devices": ["sdb"]},
        {"devices": ["/etc/passwd"]},
        {"devices": ["/dev/../etc/passwd"]},
    ],
    ids=str,
)
def test_what_is_no_group_pool_or_device_is_refused(wrong):
    with pytest.raises(InvalidInput):
        prepare.wanted_of(dict(wrong, name="lvm"))


def test_a_name_given_twice_is_refused_before_anything_is_asked():
    with pytest.raises(InvalidInput, match="given more than once: a"):
        prepare.prepare_backends([{"name": "a"}, {"name": "a"}])


@pytest.mark.parametrize(("size", "room"), [(1020 * MIB, 968 * MIB), (4 * MIB, 0), (0, 0)])
def test_a_pool_gets_whole_extents_and_leaves_some(size, room):
    group = VolumeGroup("vg", "uuid", 1020 * MIB, size, 4 * MIB)
    assert prepare.pool_room(group, size) == room
