# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.domain import (
    address,
    cpu,
    devices,
    disk,
    domain,
    element,
    interface,
    metadata,
    platform,
)
from ansible_collections.bootflow.compute.tests.unit.worlds.examples import examples

from .texts import parse_domain, pci_address

TEXT = st.text(
    alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x2FFF, blacklist_categories=("Cs", "Cc", "Cn")),
    min_size=1,
    max_size=12,
)
KINDS = {
    "str": TEXT,
    "int": st.integers(-1, 2**40),
    "bool": st.booleans(),
    "switch": st.booleans(),
    "flag": st.booleans(),
}


def configs(cls: t.Any) -> st.SearchStrategy[t.Any]:
    """Any value of a config class, made from what its fields say of themselves."""
    fields = {}
    for field in dataclasses.fields(cls):
        place = field.metadata["bootflow"]
        if place.kind == "one":
            fields[field.name] = st.one_of(st.none(), configs(place.cls))
        elif place.kind == "many":
            item = TEXT if place.cls is str else configs(place.cls)
            fields[field.name] = st.lists(item, max_size=2).map(tuple)
        elif place.kind == "flag" or field.default is not None:
            fields[field.name] = KINDS[place.kind]
        else:
            fields[field.name] = st.one_of(st.none(), KINDS[place.kind])
    return st.builds(cls, **fields)


CLASSES = sorted(
    {
        cls
        for module in (address, cpu, devices, disk, domain, interface, metadata, platform)
        for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, element.Element) and cls.TAG
    },
    key=lambda cls: cls.__name__,
)


def test_every_class_is_covered():
    names = {cls.__name__ for cls in CLASSES}
    assert {"DomainConfig", "DiskConfig", "InterfaceConfig", "NovaPortConfig", "OsConfig", "TimerConfig"} <= names
    assert len(names) >= 33


@pytest.mark.hypothesis
@pytest.mark.parametrize("cls", [cls for cls in CLASSES if cls is not domain.DomainConfig], ids=lambda c: c.__name__)
def test_law_reading_what_was_written_gives_the_same(cls):
    @settings(max_examples=examples(25), deadline=None)
    @given(configs(cls))
    def law(config):
        assert cls.from_xml(config.to_xml()) == config
        assert cls.from_xml(element.parse(domain.render(config))) == config
        assert domain.render(cls.from_xml(element.parse(domain.render(config)))) == domain.render(config)

    law()


@settings(max_examples=examples(25), deadline=None)
@given(
    st.builds(
        domain.DomainConfig,
        name=TEXT,
        uuid=st.uuids().map(str),
        memory=st.integers(1, 2**40),
        vcpus=st.integers(1, 99),
        metadata=st.one_of(st.none(), configs(metadata.NovaInstanceConfig)),
        os=st.one_of(st.none(), configs(platform.OsConfig)),
        cpu=st.one_of(st.none(), configs(cpu.CpuConfig)),
        disks=st.lists(configs(disk.DiskConfig), max_size=2).map(tuple),
        interfaces=st.lists(configs(interface.InterfaceConfig), max_size=2).map(tuple),
        rngs=st.lists(configs(devices.RngConfig), max_size=1).map(tuple),
    )
)
def test_law_of_the_whole_domain(config):
    assert parse_domain(domain.render(config)) == config


def test_what_is_none_or_false_is_not_written():
    xml = domain.render(disk.DiskConfig(source_file="/a"))
    assert xml == '<disk type="file" device="disk">\n  <source file="/a"/>\n</disk>\n'


def test_specials_are_escaped():
    config = disk.DiskConfig(source_file="/a\"<&'>", serial="<s>&amp;")
    node = element.parse(domain.render(config))
    assert node.find("source").get("file") == "/a\"<&'>"
    assert node.findtext("serial") == "<s>&amp;"
    assert len(node) == 2


@pytest.mark.parametrize("text", ["a\x00b", "a\x1bb", "\ud800"])
def test_characters_that_xml_cannot_carry(text):
    with pytest.raises(InvalidInput, match="serial of the disk"):
        disk.DiskConfig(serial=text).to_xml()


@pytest.mark.parametrize("text", ["", "no xml", "<domain>", "<a></b>", b"\xff\xfe<"])
def test_what_is_no_xml(text):
    with pytest.raises(InvalidInput):
        element.parse(text)


def test_entities_are_not_expanded(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    text = '<!DOCTYPE domain [<!ENTITY x SYSTEM "file://%s">]><domain type="kvm"><name>&x;</name><memory>1</memory></domain>'
    assert "s3cret" not in domain.render(parse_domain(text % secret))


def test_wrong_element_and_wrong_number():
    with pytest.raises(InvalidInput, match="expected the element disk"):
        disk.DiskConfig.from_xml(etree.Element("interface"))
    with pytest.raises(InvalidInput, match="must be a number"):
        parse_domain("<domain type='kvm'><name>a</name><memory>much</memory></domain>")


def test_elements_unknown_to_us_are_left_out():
    config = parse_domain("<domain type='kvm'><name>a</name><memory>1</memory><novelty/></domain>")
    assert "novelty" not in domain.render(config)
    assert config.name == "a"


def test_an_element_with_attributes_only_has_no_text():
    config = platform.OsConfig(loader_secure=True)
    assert platform.OsConfig.from_xml(config.to_xml()).loader is None


def test_metadata_is_in_novas_namespace():
    xml = domain.render(metadata.NovaInstanceConfig(name="web", ports=(metadata.NovaPortConfig(uuid="p"),)))
    root = etree.fromstring(xml)
    assert root.tag == "{http://openstack.org/xmlns/libvirt/nova/1.1}instance"
    assert root.find("{*}ports/{*}port").get("uuid") == "p"
    assert xml.startswith("<nova:instance xmlns:nova=")


def test_addresses():
    assert domain.render(pci_address(5)) == (
        '<address type="pci" domain="0x0000" bus="0x00" slot="0x05" function="0x0"/>\n'
    )
    assert domain.render(address.drive_address(0)) == (
        '<address type="drive" controller="0" bus="0" target="0" unit="0"/>\n'
    )
