# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A new domain takes the first of its names that is free on the host, with a libvirt of our own."""

from __future__ import annotations

import dataclasses
import re
import types

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import Conflict, InstanceExists, LibvirtError
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest import nvram
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domains, running

ME, OTHER = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11", "5ec0d000-0000-4000-8000-000000000002"
XML = "<domain type='qemu'><name>%s</name><uuid>%s</uuid></domain>"
NO_DOMAIN, FAILED = 42, 9


class Error(Exception):
    def __init__(self, code):
        super().__init__("no")
        self.code = code

    def get_error_code(self):
        return self.code

    def get_error_domain(self):
        return 0

    def get_error_message(self):
        return "no"


class Domain:
    def __init__(self, xml):
        self.xml = xml

    def name(self):
        return re.search("<name>(.*)</name>", self.xml)[1]

    def UUIDString(self):
        return re.search("<uuid>(.*)</uuid>", self.xml)[1]

    def XMLDesc(self, _flags):
        return self.xml

    def state(self):
        return [5, 0]

    def isPersistent(self):
        return 1


class Libvirt:
    """A host. :arg faster: the name that another build defines at the last moment."""

    def __init__(self, *names, faster=""):
        self.domains = [Domain(XML % (name, OTHER)) for name in names]
        self.faster = faster

    def _find(self, method, value):
        found = [d for d in self.domains if getattr(d, method)() == value]
        if not found:
            raise Error(NO_DOMAIN)
        return found[0]

    def lookupByName(self, name):
        return self._find("name", name)

    def lookupByUUIDString(self, uuid):
        return self._find("UUIDString", uuid)

    def defineXMLFlags(self, xml, _flags):
        if self.faster:
            self.domains.append(Domain(XML % (self.faster, OTHER)))
            self.faster = ""
        new = Domain(xml)
        if any(d.name() == new.name() and d.UUIDString() != new.UUIDString() for d in self.domains):
            raise Error(FAILED)
        self.domains = [d for d in self.domains if d.UUIDString() != new.UUIDString()] + [new]
        return new


@pytest.fixture(autouse=True)
def libvirt(monkeypatch):
    stand_in(monkeypatch)


def stand_in(monkeypatch):
    """For the library libvirt, as the modules of hosts know it."""
    names = ("VIR_FROM_REMOTE", "VIR_FROM_RPC", "VIR_ERR_NO_CONNECT", "VIR_ERR_INVALID_CONN", "VIR_ERR_RPC")
    names += ("VIR_ERR_SYSTEM_ERROR", "VIR_ERR_INTERNAL_ERROR", "VIR_ERR_NO_NETWORK", "VIR_ERR_NO_SECRET")
    flags = {"VIR_DOMAIN_XML_INACTIVE": 2, "VIR_DOMAIN_DEFINE_VALIDATE": 1}
    codes = {name: 100 + number for number, name in enumerate(names)}
    fake = types.SimpleNamespace(libvirtError=Error, VIR_ERR_NO_DOMAIN=NO_DOMAIN, **flags, **codes)
    for module in (domains, running, libvirt_connection):
        monkeypatch.setattr(module, "libvirt", fake)


def define(host, *spare_names, name="web", check_mode=False):
    spec = domains.DomainSpec(ME, name, XML % (name, ME), state="defined", spare_names=spare_names)
    spec = dataclasses.replace(spec, differences=lambda wanted, there: [] if wanted == there else ["changed"])
    return domains.ensure_domain(host, spec, check_mode)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        (Libvirt(), "web"),
        (Libvirt("db"), "web"),
        (Libvirt("web"), "web-2f4c1c0e"),
        (Libvirt("web", "web-2f4c1c0e"), "web-" + ME),
        (Libvirt(faster="web"), "web-2f4c1c0e"),
        (Libvirt("web", faster="web-2f4c1c0e"), "web-" + ME),
    ],
)
def test_the_first_free_name_is_taken_and_kept(host, name):
    """Also where another build takes the first one in the middle, and when the guest is defined again."""
    others = [d.xml for d in host.domains]
    spare = ("web-2f4c1c0e", "web-" + ME)
    for again in (False, True):
        result = define(host, *spare)
        assert (result["name"], host.lookupByUUIDString(ME).name(), result["defined"]) == (name, name, not again)
        assert [d.xml for d in host.domains][: len(others)] == others
    host.domains = [d for d in host.domains if d.UUIDString() == ME]
    assert define(host, *spare)["name"] == name, "an existing guest keeps its name, though the shorter one is free now"


def test_a_plan_has_the_name_that_is_free():
    assert define(Libvirt("web"), "web-2f4c1c0e", check_mode=True)["name"] == "web-2f4c1c0e"


def test_without_another_name_nothing_is_touched():
    host = Libvirt("web")
    with pytest.raises(InstanceExists, match="libvirt has a domain with that name and UUID %s" % OTHER):
        define(host)
    assert len(host.domains) == 1
    with pytest.raises(LibvirtError):
        define(Libvirt(faster="web"))


def test_a_lost_domain_is_not_defined_for_volumes_whose_users_were_lost_with_it(tmp_path):
    """Each start would be refused by the target, and a later reboot would take the wrong user from this definition."""
    disk = "<disk><source protocol='iscsi' name='iqn.test:one/1'><auth username='u'/></source></disk>"
    text = (XML % ("web", ME)).replace("</domain>", "<devices>%s</devices></domain>" % disk)
    host = Libvirt()
    wanted = domains.DomainSpec(ME, "web", text, state="defined", keep_disks=True)
    with pytest.raises(Conflict, match="has lost the domain of instance %s, .* to iqn.test:one$" % ME) as caught:
        domains.ensure_domain(host, wanted)
    assert "HARD" in caught.value.remedy and host.domains == []
    assert domains.ensure_domain(host, wanted, check_mode=True)["changed"], (
        "a check does not know what is connected anew"
    )
    domains.ensure_domain(host, dataclasses.replace(wanted, new_logins=("iqn.test:one",)))
    assert [d.UUIDString() for d in host.domains] == [ME]


LAYER = "<backingStore type='file'><format type='raw'/><source file='/%s'/><backingStore/></backingStore>"


@pytest.mark.parametrize(("now", "kept"), [("qcow2", LAYER % "old"), ("raw", ""), ("qcow2", "<backingStore/>")])
def test_a_disk_that_stays_keeps_the_files_below_it(now, kept):
    """The chain of another place is that of another disk: as the base of this one it would be another guest's data."""
    disk = (
        "<domain><devices><disk type='file'><driver type='%s'/><source file='/%s/%s/disk'/>%s</disk></devices></domain>"
    )
    wanted, before = disk % ("qcow2", "new", ME, LAYER % "new"), disk % (now, "old", ME, kept)
    found = etree.fromstring(domains.with_local_disks(wanted, before, ME)).find("devices/disk")
    assert found.find("source").get("file") == "/old/%s/disk" % ME
    assert [element.get("file") for element in found.iterfind("backingStore/source")] == (
        ["/old"] if "old" in kept else []
    )
    assert len(found.findall("backingStore")) == bool(kept)


@pytest.mark.parametrize(
    ("wanted", "before", "has"),
    [
        ("/new/%s/disk.nvram", "/old/%s/disk.nvram", "/old/%s/disk.nvram"),
        ("/new/%s/disk.nvram", "/var/lib/libvirt/qemu/nvram/%s_VARS.fd", "/var/lib/libvirt/qemu/nvram/%s_VARS.fd"),
        ("/new/%s/disk.nvram", "", "/new/%s/disk.nvram"),
        ("/new/%s/disk.nvram", "/new/%s/disk.nvram.rescue", "/new/%s/disk.nvram"),  # a rescue ends
        ("/new/%s/disk.nvram.rescue", "/new/%s/disk.nvram", "/new/%s/disk.nvram.rescue"),  # a rescue begins
        ("", "/new/%s/disk.nvram", ""),
    ],
)
def test_a_guest_keeps_its_uefi_variables(wanted, before, has):
    """Where their file is missing libvirt makes new ones, and says nothing."""
    wanted, before, has = (path % ME if path else path for path in (wanted, before, has))
    text = "<domain><os><nvram>%s</nvram></os><devices/></domain>"
    bios = "<domain><os/><devices/></domain>"
    found = domains.with_local_disks(text % wanted if wanted else bios, text % before if before else bios, ME)
    assert (etree.fromstring(found).findtext("os/nvram") or "") == has


@pytest.mark.parametrize("started", [True, False])
def test_a_guest_keeps_its_uefi_variables_where_its_definition_does_not_name_them(monkeypatch, tmp_path, started):
    """libvirt 9.0 calls them after the domain at each start, and does not write that down."""
    monkeypatch.setattr(nvram, "OF_LIBVIRT", str(tmp_path / "%s_VARS.fd"))
    there = tmp_path / "web-1_VARS.fd"
    if started:
        there.write_bytes(b"variables")
    before = "<domain><name>web-1</name><os firmware='efi'/><devices/></domain>"
    wanted = before.replace("<os firmware='efi'/>", "<os firmware='efi'><nvram>/new/%s/disk.nvram</nvram></os>" % ME)
    found = etree.fromstring(domains.with_local_disks(wanted, before, ME)).findtext("os/nvram")
    assert found == (str(there) if started else "/new/%s/disk.nvram" % ME)
