# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.domain import (
    DomainConfig,
    render,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.element import parse
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.hostdev import HostdevConfig

from .texts import parse_domain, pci_address

XML = """
<hostdev mode='subsystem' type='pci' managed='yes'>
  <driver name='vfio'/>
  <source><address domain='0x0000' bus='0x0a' slot='0x10' function='0x1'/></source>
  <alias name='hostdev0'/>
  <address type='pci' domain='0x0000' bus='0x00' slot='0x07' function='0x0'/>
</hostdev>
"""
DEVICE = HostdevConfig(
    domain="0x0000", bus="0x0a", slot="0x10", function="0x1", alias="hostdev0", address=pci_address(7)
)


def test_it_reads_what_libvirt_reports():
    assert HostdevConfig.from_xml(parse(XML)) == DEVICE


def test_it_is_a_device_for_libvirt_and_comes_back_the_same():
    config = DomainConfig(
        name="n",
        memory=1024,
        hostdevs=(DEVICE, HostdevConfig(managed=False, domain="0x1", bus="0x00", slot="0x1f", function="0x7")),
        os=None,
    )
    text = render(config)
    assert parse_domain(text).hostdevs == config.hostdevs
    assert [node.get("managed") for node in parse(text).iter("hostdev")] == ["yes", "no"]
