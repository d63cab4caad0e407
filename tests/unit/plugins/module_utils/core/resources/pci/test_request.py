# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.model import Flavor
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.request import (
    PciRequest,
    parse_aliases,
    pci_requests,
)

QAT = {"name": "qat", "vendor_id": "8086", "product_id": "0443"}
GPU = {"name": "gpu", "vendor_id": "10de", "product_id": "1eb8", "device_type": "type-PF", "numa_policy": "required"}


def flavor(text=None, **specs):
    return Flavor("f", 1, 1, extra_specs={**({} if text is None else {"pci_passthrough:alias": text}), **specs})


def test_an_alias_is_a_request_with_its_policy_and_type():
    assert pci_requests(flavor("qat:2, gpu:1"), [QAT, GPU]) == (
        PciRequest(2, ({"vendor_id": "8086", "product_id": "0443"},), "qat", "legacy"),
        PciRequest(1, ({"vendor_id": "10de", "product_id": "1eb8", "dev_type": "type-PF"},), "gpu", "required"),
    )


def test_definitions_of_one_name_are_alternatives():
    second = {**QAT, "product_id": "0442", "numa_policy": "legacy"}
    (request,) = pci_requests(flavor("qat:1"), [QAT, json.dumps(second)])
    assert [spec["product_id"] for spec in request.spec] == ["0443", "0442"]


def test_the_same_alias_twice_is_two_requests():
    assert [r.count for r in pci_requests(flavor("qat:1,qat:2"), parse_aliases([QAT]))] == [1, 2]


def test_a_flavor_without_the_extra_spec_asks_nothing_and_looks_at_no_alias():
    assert pci_requests(flavor(), [{"no": "alias"}]) == ()


def test_fields_that_may_be_left_out():
    assert parse_aliases([{"name": " any ", "capability_type": "pci"}])["any"].spec == ({},)


def test_a_request_survives_as_dict():
    (request,) = pci_requests(flavor("gpu:3"), [GPU])
    assert PciRequest.from_dict(json.loads(json.dumps(request.as_dict()))) == request
    assert str(request) == "3 x gpu"
    assert str(PciRequest(1, ({"vendor_id": "8086"},))) == "1 x vendor_id=8086"


@pytest.mark.parametrize(
    ("definitions", "text"),
    [
        ([{"vendor_id": "8086"}], "needs a name"),
        ([{"name": ""}], "needs a name"),
        ([{"name": "x" * 257}], "needs a name"),
        ([{**QAT, "product_id": 291}], "product_id 291 is not a text"),
        ([{**QAT, "product_id": "44"}], "four hex digits"),
        ([{**QAT, "vendor_id": "80g6"}], "four hex digits"),
        ([{**QAT, "vendor_id": "8086\n"}], "four hex digits"),
        ([{**QAT, "device_type": "PF"}], "device_type 'PF' is not one of type-PCI, type-PF, type-VF"),
        ([{**QAT, "numa_policy": "socket"}], "numa_policy"),
        ([{**QAT, "capability_type": "usb"}], "capability_type"),
        ([{**QAT, "device_id": "0443"}], "unexpected"),
        (["{"], "not JSON"),
        ([["qat"]], "not a mapping"),
        ([QAT, {**QAT, "numa_policy": "required"}], "NUMA policy mismatch for alias 'qat'"),
        ([QAT, {**QAT, "device_type": "type-VF"}], "Device type mismatch for alias 'qat'"),
    ],
)
def test_wrong_definitions_are_refused(definitions, text):
    with pytest.raises(errors.PciInvalidAlias, match=text) as caught:
        pci_requests(flavor("qat:1"), definitions)
    assert caught.value.status == 400


@pytest.mark.parametrize("text", ["", "qat", "qat:", "qat:x", "qat:1:2", "qat:1,", "qat:-1", "qat:1.5"])
def test_malformed_extra_specs_are_refused(text):
    with pytest.raises(errors.PciInvalidAlias, match="of flavor f is not of the form name:count"):
        pci_requests(flavor(text), [QAT])


def test_an_unknown_alias_is_refused_with_those_that_are_known():
    with pytest.raises(errors.PciRequestAliasNotDefined, match="PCI alias fpga is not defined") as caught:
        pci_requests(flavor("qat:1,fpga:1"), [QAT, GPU])
    assert (caught.value.status, caught.value.remedy) == (400, "Defined are: gpu, qat.")


@pytest.mark.parametrize(
    ("of_flavor", "of_image", "expected"),
    [
        (None, None, "required"),
        ("preferred", None, "preferred"),
        (None, "legacy", "legacy"),
        ("legacy", "legacy", "legacy"),
    ],
)
def test_flavor_or_image_may_replace_the_alias_policy(of_flavor, of_image, expected):
    specs = {"hw:pci_numa_affinity_policy": of_flavor} if of_flavor else {}
    image = {"hw_pci_numa_affinity_policy": of_image} if of_image else {}
    assert pci_requests(flavor("gpu:1", **specs), [GPU], image)[0].numa_policy == expected


@pytest.mark.parametrize(
    ("of_flavor", "of_image", "error"),
    [
        ("near", "", errors.InvalidPCINUMAAffinity),
        ("", "near", errors.InvalidPCINUMAAffinity),
        ("legacy", "required", errors.ImagePCINUMAPolicyForbidden),
    ],
)
def test_policies_that_are_unknown_or_differ_are_refused(of_flavor, of_image, error):
    with pytest.raises(error) as caught:
        pci_requests(
            flavor("gpu:1", **{"hw:pci_numa_affinity_policy": of_flavor}),
            [GPU],
            {"hw_pci_numa_affinity_policy": of_image},
        )
    assert caught.value.status == 400
