# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.cpu import CpuConfig, CpuTuneConfig
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.domain import (
    DomainConfig,
    render,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.numa import (
    HugePageConfig,
    MemNodeConfig,
    MemoryBackingConfig,
    NumaCellConfig,
    NumaTuneConfig,
    VcpuPinConfig,
    VcpuSchedConfig,
)
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain.platform import OsConfig

from .schema import assert_valid
from .texts import parse_domain

ELEMENTS = {
    "cputune": (
        """<cputune><shares>2048</shares><vcpupin vcpu='0' cpuset='2'/><vcpupin vcpu='1' cpuset='4-7,9'/>
        <emulatorpin cpuset='0-1'/><vcpusched vcpus='1' scheduler='fifo' priority='1'/></cputune>""",
        CpuTuneConfig(
            shares=2048,
            vcpupins=(VcpuPinConfig(0, "2"), VcpuPinConfig(1, "4-7,9")),
            emulatorpin="0-1",
            vcpuscheds=(VcpuSchedConfig("1", "fifo", 1),),
        ),
    ),
    "numatune": (
        """<numatune><memory mode='strict' nodeset='0-1'/><memnode cellid='0' mode='strict' nodeset='1'/>
        <memnode cellid='1' mode='strict' nodeset='0'/></numatune>""",
        NumaTuneConfig("strict", "0-1", (MemNodeConfig(0, "strict", "1"), MemNodeConfig(1, "strict", "0"))),
    ),
    "pages": (
        """<memoryBacking><hugepages><page size='2048' unit='KiB' nodeset='0'/>
        <page size='1048576' unit='KiB' nodeset='1'/></hugepages><nosharepages/><locked/></memoryBacking>""",
        MemoryBackingConfig((HugePageConfig(2048, "KiB", "0"), HugePageConfig(1048576, "KiB", "1")), True, True),
    ),
    "cells": (
        """<cpu mode='host-model'><topology sockets='1' cores='2' threads='2'/><numa>
        <cell id='0' cpus='0-1' memory='524288' unit='KiB' memAccess='shared'/>
        <cell id='1' cpus='2-3' memory='524288' unit='KiB'/></numa></cpu>""",
        CpuConfig(
            mode="host-model",
            sockets=1,
            cores=2,
            threads=2,
            numa_cells=(
                NumaCellConfig(0, "0-1", 524288, "KiB", "shared"),
                NumaCellConfig(1, "2-3", 524288, "KiB"),
            ),
        ),
    ),
}


@pytest.mark.parametrize("name", sorted(ELEMENTS))
def test_elements_are_written_and_read(name):
    text, config = ELEMENTS[name]
    node = etree.fromstring(text, etree.XMLParser(remove_blank_text=True))
    assert etree.tostring(config.to_xml(), method="c14n") == etree.tostring(node, method="c14n")
    assert type(config).from_xml(node) == config


def test_a_domain_with_all_of_them_is_valid_and_read_again():
    domain = DomainConfig(
        name="d",
        memory_unit="KiB",
        memory=1048576,
        vcpus=4,
        memory_backing=ELEMENTS["pages"][1],
        cputune=ELEMENTS["cputune"][1],
        numatune=ELEMENTS["numatune"][1],
        os=OsConfig(type="hvm"),
        cpu=ELEMENTS["cells"][1],
    )
    assert_valid(render(domain))
    assert parse_domain(render(domain)) == domain
