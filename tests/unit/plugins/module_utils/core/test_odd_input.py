# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of the wrong type end in an error of the family, never in a traceback."""

from __future__ import annotations

import datetime
import json

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks import boot_from_volume, image_checks
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.block_device_mapping import image_devices
from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import BootflowError
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest import drive_files
from ansible_collections.bootflow.compute.plugins.module_utils.core.instances import quotas, retry
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Image
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks import ipam, names
from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.types.registry import NETWORK_TYPES
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.hostname import sanitize_hostname
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.server_request import parse_az
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.numa.topology import reserved_pages
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci import request as pci_request
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci import spec as pci_spec
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.catalogue import VolumeTypes
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.create_request import Known, volume_request
from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.model import PoolState, VolumeRequest
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domains import device_places

ODD = (
    *(1, -1, 1.5, True, float("nan"), float("inf"), 10**400),
    *("x", "\u00b2", "\ud800", "\0", " ", b"bytes", datetime.date(2026, 1, 1)),
    *((1, 2), [None], [[]], [1], {"a": 1}, {1: 2}, {None: None}, {(1, 2): "x"}, {"x"}),
)


def _info(value):
    return {"format": "qcow2", "virtual-size": 1, "format-specific": value}


READERS = [
    parse_az,
    sanitize_hostname,
    reserved_pages,
    pci_request.parse_aliases,
    pci_spec.parse_device_specs,
    pci_spec.split_address,
    drive_files.unpack_files,
    drive_files.check_path,
    device_places,
    names.check_interface,
    NETWORK_TYPES["network"].check_source,
    lambda value: image_checks.check_info(value, "raw", "i"),
    lambda value: image_checks.check_info(_info(value), "qcow2", "i"),
    lambda value: image_checks.check_info(_info({"data": value}), "qcow2", "i"),
    lambda value: boot_from_volume.image_of_volume({"min_disk": value}, 1),
    lambda value: image_devices(Image("i", "i", "raw", properties={"block_device_mapping": value, "bdm_v2": True})),
    lambda value: image_devices(
        Image("i", "i", "raw", properties={"block_device_mapping": [{"source_type": value}], "bdm_v2": True})
    ),
    lambda value: ipam.validate_pools("10.0.0.0/24", value, None),
    lambda value: quotas.limits_of(value, "p"),
    lambda value: quotas.limits_of({"projects": value}, "p"),
    lambda value: quotas.limits_of({"projects": {"p": value}}, "p"),
    lambda value: quotas.limits_of({"cores": value}, "p"),
    lambda value: retry.populate_retry(value, 3, "uuid"),
    lambda value: retry.populate_retry({"num_attempts": value}, 3, "uuid"),
    lambda value: retry.populate_retry({"hosts": value}, 3, "uuid"),
    lambda value: retry.populate_retry({"hosts": [value]}, 3, "uuid"),
    lambda value: PoolState(host="h@b#p", volume_count=value),
    lambda value: VolumeRequest.from_dict({"size": value}),
]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("value", ODD, ids=ascii)
def test_a_value_is_read_or_refused(read, value):
    try:
        read(value)
    except BootflowError as error:
        assert error.message and json.dumps(error.as_dict())


@pytest.mark.parametrize("value", ODD, ids=ascii)
def test_hints_of_volumes_can_be_stored(value):
    known = Known(types=VolumeTypes(), image=lambda name: pytest.fail("it has no image"))
    try:
        request = volume_request({"size": 1, "scheduler_hints": {"same_host": value}}, known)
    except BootflowError as error:
        assert "scheduler_hints" in error.message
    else:
        json.dumps(request.as_dict(), allow_nan=False)
