# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core import errors
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.device import PF, VF, PciDevice
from ansible_collections.bootflow.compute.plugins.module_utils.core.resources.pci.spec import (
    admitted,
    parse_device_specs,
    split_address,
)

CARD = PciDevice("0000:0a:00.0", "8086", "10fb", 0, PF)
PORT = PciDevice("0000:0a:10.1", "8086", "10ed", 0, VF, "0000:0a:00.0")
PLAIN = PciDevice("0001:02:1f.7", "10de", "1eb8")


class Lookup:
    def function_of_interface(self, name):
        return {"eth0": ("0000:0a:00.0", True), "eth1": ("0001:02:1f.7", False)}.get(name, (None, False))

    def is_physical_function(self, address):
        return address == "0000:0a:00.0"


def names(*entries, lookup=None):
    found = admitted([PLAIN, PORT, CARD], parse_device_specs(list(entries), lookup or Lookup()))
    return [{CARD.address: "card", PORT.address: "port", PLAIN.address: "plain"}[d.address] for d in found]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, ["card", "port", "plain"]),
        ({"vendor_id": "8086"}, ["card", "port"]),
        ({"vendor_id": " 8086 ", "product_id": "10FB"}, ["card"]),
        ({"vendor_id": "*", "product_id": "1eb8"}, ["plain"]),
        ({"vendor_id": "8087"}, []),
        ({"address": ""}, ["card", "port", "plain"]),
        ({"address": "*:0a:*.*"}, ["card", "port"]),
        ({"address": "*:a:*.*"}, ["card", "port"]),
        ({"address": ":0a:00."}, ["card"]),
        ({"address": "0a:10.1"}, ["port"]),
        ({"address": "10."}, ["port"]),
        ({"address": ".7"}, ["plain"]),
        ({"address": "0001:02:1f"}, ["plain"]),
        ({"address": "0001:02:1F.7"}, ["plain"]),
        # the address of a PF stands for its VFs too; one pattern among several addresses does not
        ({"address": "0000:0a:00.0"}, ["card", "port"]),
        ({"address": "0000:0a:00.*"}, ["card"]),
        ({"address": "0000:0a:00.0", "product_id": "10ed"}, ["port"]),
        ({"address": {"domain": ".*", "bus": "0a", "slot": "[01]0", "function": "[0-1]"}}, ["card", "port"]),
        ({"address": {"bus": "0"}}, ["card", "port", "plain"]),  # a pattern matches from the beginning, not to the end
        ({"address": {"function": "[2-7]"}}, ["plain"]),
        ({"address": {"domain": "0000", "bus": "0a", "slot": "00", "function": "0"}}, ["card", "port"]),
        ({"devname": "eth0"}, ["card", "port"]),
        ({"devname": "eth1"}, ["plain"]),
        ({"devname": "eth9"}, []),
        ({"devname": "eth0", "vendor_id": "10de"}, []),
    ],
)
def test_which_devices_an_entry_admits(entry, expected):
    assert names(entry) == expected


def test_tags_that_say_what_is_done_anyway():
    said = {"managed": "yes", "one_time_use": False, "remote_managed": "no", "trusted": "false"}
    (spec,) = parse_device_specs([said])
    assert spec.tags["managed"] == "yes"


def test_without_entries_nothing_is_admitted():
    assert names() == []
    assert admitted([PLAIN], parse_device_specs(None)) == []


def test_nova_conf_forms_and_without_a_host_to_ask():
    specs = parse_device_specs('[{"product_id": "10fb"}, {"address": "0000:0a:00.0"}]')
    assert [d.address for d in admitted([PLAIN, PORT, CARD], specs)] == [CARD.address]
    assert admitted([CARD], parse_device_specs({"devname": "eth0"})) == []


def test_the_first_entry_that_admits_a_device_gives_its_tags():
    found = admitted(
        [PORT, PLAIN],
        parse_device_specs(
            [
                {"product_id": "10ed", "physical_network": "p1", "trusted": True},
                {"physical_network": None, "trusted": False},
            ]
        ),
    )
    assert [dict(d.tags) for d in found] == [
        {"physical_network": "p1", "trusted": "true"},
        {"physical_network": None, "trusted": "false"},
    ]
    assert not PORT.tags


@pytest.mark.parametrize(
    ("entry", "error", "text"),
    [
        ("{", errors.PciConfigInvalidWhitelist, "Invalid entry: '{'"),
        (5, errors.PciConfigInvalidWhitelist, "Expecting dict"),
        ('"text"', errors.PciConfigInvalidWhitelist, "Expecting dict"),
        ({"vendor_id": 8086}, errors.PciConfigInvalidWhitelist, "is not a text"),
        ({"vendor_id": "80x6"}, errors.PciConfigInvalidWhitelist, "does not parse as a hex number"),
        ({"product_id": "10000"}, errors.PciConfigInvalidWhitelist, "greater than the maximum allowable value .FFFF"),
        ({"address": "0000:0a:20.0"}, errors.PciConfigInvalidWhitelist, "property slot .20.*1F"),
        ({"address": "0000:0a:00.8"}, errors.PciConfigInvalidWhitelist, "property function .8.*7"),
        ({"address": "-1:00.0"}, errors.PciConfigInvalidWhitelist, "bus"),
        ({"address": "1:0000:0a:00.0"}, errors.PciDeviceWrongAddressFormat, "incorrect format"),
        ({"address": {"bus": "["}}, errors.PciDeviceWrongAddressFormat, "incorrect format"),
        ({"address": {"bus": 2}}, errors.PciDeviceWrongAddressFormat, "incorrect format"),
        ({"address": {"func": "1"}}, errors.PciDeviceWrongAddressFormat, "incorrect format"),
        ({"address": 5}, errors.PciDeviceWrongAddressFormat, "incorrect format"),
        ({"address": "*", "devname": "eth0"}, errors.PciDeviceInvalidDeviceName, "not both"),
        ({"physical_network": ["p"]}, errors.PciConfigInvalidWhitelist, "the tag physical_network"),
        ({"managed": "no"}, errors.PciConfigInvalidWhitelist, "the tag managed .no. would have no effect"),
        ({"managed": False}, errors.PciConfigInvalidWhitelist, "the tag managed"),
        ({"one_time_use": "true"}, errors.PciConfigInvalidWhitelist, "the tag one_time_use"),
        ({"remote_managed": True}, errors.PciConfigInvalidWhitelist, "the tag remote_managed"),
    ],
)
def test_wrong_entries_are_refused(entry, error, text):
    with pytest.raises(error, match=text) as caught:
        parse_device_specs([entry], Lookup())
    assert caught.value.status == 400


@pytest.mark.parametrize("text", ["", "0000:0a:00", "0a:00.0", "0000:0a:00.", "0000:0a::0.1", "x"])
def test_half_an_address_is_none(text):
    with pytest.raises(errors.PciDeviceWrongAddressFormat):
        split_address(text)


def test_a_domain_of_a_controller_of_its_own():
    """Intel VMD: one such device ended the report of its host with each entry, also with one of another vendor."""
    device = PciDevice("10000:e1:00.0", "8086", "0a54", 0)
    for entry, admits in (
        ({"vendor_id": "10de"}, False),
        ({"address": "10000:e1:00.0"}, True),
        ({"address": "1000:e1:00.0"}, False),
        ({"address": "*:e1:*.*"}, True),
        ({"address": {"domain": "1000[0-9]", "bus": "e."}}, True),
        ({"product_id": "0a54"}, True),
    ):
        assert admitted([device], parse_device_specs([entry])) == ([device] if admits else []), entry
    assert split_address("ffffffff:00:00.0") == ("ffffffff", "00", "00", "0")
    with pytest.raises(errors.PciConfigInvalidWhitelist, match="property domain"):
        split_address("100000000:00:00.0")


def test_an_address_has_all_its_digits():
    assert split_address("0:A:1f.7") == ("0000", "0a", "1f", "7")
