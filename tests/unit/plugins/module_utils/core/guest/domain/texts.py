# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Domains as text and back, and PCI addresses as libvirt writes them."""

from __future__ import annotations

from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.config import guest_config
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.address import AddressConfig
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.domain import DomainConfig, render
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse


def guest_xml(guest, host):
    return render(guest_config(guest, host))


def parse_domain(text):
    return DomainConfig.from_xml(parse(text))


def pci_address(slot, bus=0, function=0):
    return AddressConfig(
        type="pci", domain="0x0000", bus="0x%02x" % bus, slot="0x%02x" % slot, function="0x%x" % function
    )
