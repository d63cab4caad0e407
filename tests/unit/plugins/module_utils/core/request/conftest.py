# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidRequest
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.catalogue import parse_catalogue
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.options import RequestOptions
from ansible_collections.bootflow.compute.plugins.module_utils.core.request.server_request import parse_requests

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me@here"
SHA = "ab" * 32

FLAVORS = [
    {"name": "small", "memory_mb": 512, "vcpus": 1, "root_gb": 1, "flavorid": "42"},
    {"name": "big", "memory_mb": 4096, "vcpus": 4, "root_gb": 20, "ephemeral_gb": 5, "swap": 512},
    {"name": "old", "memory_mb": 512, "vcpus": 1, "disabled": True},
]
IMAGES = [
    {"name": "tiny", "disk_format": "qcow2", "checksum": SHA, "min_disk": 1, "url": "http://example.com/tiny.qcow2"},
    {"name": "fat", "disk_format": "raw", "checksum": SHA, "path": "/images/fat.raw", "min_disk": 10, "min_ram": 1024},
    {
        "name": "hungry",
        "disk_format": "raw",
        "checksum": SHA,
        "path": "/images/hungry.raw",
        "min_ram": 513,
        "min_disk": 1,
    },
]
NETWORKS = [
    {
        "name": "blue",
        "subnets": [
            {
                "name": "blue-v4",
                "cidr": "10.0.0.0/24",
                "allocation_pools": [{"start": "10.0.0.10", "end": "10.0.0.20"}],
            },
            {"name": "blue-v6", "cidr": "fd00:1::/64"},
        ],
        "enforce_allocation_pools": True,
    },
    {"name": "red", "type": "bridge", "source": "br-red", "subnets": [{"cidr": "10.0.1.0/24"}]},
    {"name": "bare"},
]
KEYPAIRS = [{"name": "mine", "public_key": KEY}]


@pytest.fixture(name="catalogue", scope="session")
def catalogue_fixture():
    return parse_catalogue(FLAVORS, IMAGES, NETWORKS, KEYPAIRS)


@pytest.fixture(name="base")
def base_fixture():
    return {"name": "web", "flavor": "small", "image": "tiny", "networks": ["blue"]}


@pytest.fixture(name="parse")
def parse_fixture(catalogue, base):
    """parse(field=value, ...) -> the request of one entry, the base with these fields; None takes a field away."""

    def parse(_options=None, **fields):
        return parse_requests([{**base, **fields}], catalogue, _options or RequestOptions())[0]

    return parse


@pytest.fixture(name="errors")
def errors_fixture(parse):
    """errors(field=value, ...) -> the errors of that entry as (path behind instances[0]., code, status, message)."""

    def errors(_options=None, **fields):
        with pytest.raises(InvalidRequest) as caught:
            parse(_options, **fields)
        for error in caught.value.errors:
            assert set(error) == {"path", "code", "status", "message", "remedy"}
            assert error["message"] and error["remedy"], error
        return [
            (e["path"].replace("instances[0].", ""), e["code"], e["status"], e["message"]) for e in caught.value.errors
        ]

    return errors
