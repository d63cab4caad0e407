# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interfaces of guests that start, stop and keep what they are asked for in the wrong moment, with a libvirt of our own."""

from __future__ import annotations

import concurrent.futures
import time
import types

import pytest
from lxml import etree

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    Conflict,
    DeviceDetachFailed,
    InstanceNotFound,
    InterfaceAttachFailed,
    InvalidInput,
    VirtualInterfaceCreateException,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import connection as libvirt_connection
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import (
    domain_interfaces,
    hot_plug,
    vifs,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domain_interfaces import desired_interface

ME, MAC, OTHER = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11", "fa:16:3e:00:00:01", "fa:16:3e:00:00:02"
NIC = "<interface type='network'><mac address='%s'/><source network='n'/></interface>"
NO_DOMAIN, LIVE, CONFIG = 42, 1, 2


class Error(Exception):
    def get_error_code(self):
        return NO_DOMAIN

    def get_error_domain(self):
        return 0

    def get_error_message(self):
        return "no more PCI slots"


class Guest:
    """A domain with two definitions. ``deaf``: how often it does not let go when it is asked. ``refuses``: any change."""

    def __init__(self, running=(), defined=(), active=True):
        self.parts = {LIVE: list(running), CONFIG: list(defined)}
        self.active, self.deaf, self.refuses, self.starts_after_detach, self.asked = active, 0, False, False, 0
        self.disks, self.saved = "", False

    def hasManagedSaveImage(self, _flags):
        return int(self.saved)

    def managedSaveRemove(self, _flags):
        self.saved = False

    def isActive(self):
        return int(self.active)

    def isPersistent(self):
        return 1

    def XMLDesc(self, flags):
        inner = "".join(NIC % mac for mac in self.parts[CONFIG if flags else LIVE])
        return "<domain><devices>%s%s</devices></domain>" % (self.disks, inner)

    def attachDeviceFlags(self, xml, flags):
        if self.refuses:
            raise Error
        for part in (LIVE, CONFIG):
            if flags & part:
                self.parts[part].append(etree.fromstring(xml).find("mac").get("address"))

    def detachDeviceFlags(self, xml, flags):
        mac = etree.fromstring(xml).find("mac").get("address")
        if flags == LIVE:
            self.asked += 1
            if self.asked <= self.deaf:
                return
        if self.starts_after_detach:
            self.starts_after_detach, self.active = False, True
            self.parts[LIVE] = list(self.parts[CONFIG])
        self.parts[flags].remove(mac)


@pytest.fixture
def libvirt(monkeypatch, tmp_path):
    fake = types.SimpleNamespace(
        VIR_DOMAIN_AFFECT_LIVE=LIVE, VIR_DOMAIN_AFFECT_CONFIG=CONFIG, VIR_DOMAIN_XML_INACTIVE=2, VIR_ERR_NO_DOMAIN=NO_DOMAIN,
        VIR_ERR_OPERATION_INVALID=55, libvirtError=Error,
    )  # fmt: skip
    for module in (libvirt_connection, hot_plug):
        monkeypatch.setattr(module, "libvirt", fake)
    monkeypatch.setattr(hot_plug, "POLL", 0.001)
    monkeypatch.setattr(domain_interfaces, "LOCK_ROOT", str(tmp_path))
    return fake


def ensure(guest, state, check_mode=False, tries=2):
    def lookup(uuid):
        if guest is None:
            raise Error
        return guest

    desired = desired_interface({"uuid": ME, "mac": MAC.upper(), "state": state, "xml": NIC % MAC})
    there = types.SimpleNamespace(lookupByUUIDString=lookup)
    return domain_interfaces.ensure_interface(there, desired, check_mode, tries, 0.002)


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.usefixtures("libvirt")
def test_where_it_is_missing(active):
    guest = Guest([OTHER], [OTHER], active)
    assert ensure(guest, "attached", check_mode=True)["changed"] and guest.parts == {LIVE: [OTHER], CONFIG: [OTHER]}
    done = ensure(guest, "attached")
    assert (done["changed"], done["live"], done["config"]) == (True, active, True)
    assert guest.parts == {LIVE: [OTHER, MAC] if active else [OTHER], CONFIG: [OTHER, MAC]}
    assert not ensure(guest, "attached")["changed"]
    assert ensure(guest, "detached", check_mode=True)["changed"] and MAC in guest.parts[CONFIG]
    assert ensure(guest, "detached")["changed"] and guest.parts == {LIVE: [OTHER], CONFIG: [OTHER]}
    assert not ensure(guest, "detached")["changed"]


@pytest.mark.usefixtures("libvirt")
def test_saved_memory_does_not_bring_an_interface_back():
    guest = Guest([], [], active=False)
    for state in ("attached", "detached"):
        guest.saved = True
        assert ensure(guest, state, check_mode=True)["changed"] and guest.saved
        assert ensure(guest, state)["changed"] and not guest.saved
        guest.saved = True
        assert not ensure(guest, state)["changed"] and guest.saved


@pytest.mark.usefixtures("libvirt")
def test_two_runs_give_it_once():
    """libvirt takes an interface twice, and a guest could not let go of it then."""
    guest = Guest([], [])
    look = guest.XMLDesc
    guest.XMLDesc = lambda flags: (look(flags), time.sleep(0.05))[0]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = [pool.submit(ensure, guest, "attached") for _each in range(2)]
    assert sorted(d.result()["changed"] for d in done) == [False, True]
    assert guest.parts == {LIVE: [MAC], CONFIG: [MAC]}


@pytest.mark.usefixtures("libvirt")
def test_half_of_it_is_there():
    for running, defined in (([MAC], []), ([], [MAC])):
        guest = Guest(running, defined)
        assert ensure(guest, "attached")["changed"] and guest.parts == {LIVE: [MAC], CONFIG: [MAC]}
        guest = Guest(running, defined)
        assert ensure(guest, "detached")["changed"] and guest.parts == {LIVE: [], CONFIG: []}


@pytest.mark.usefixtures("libvirt")
def test_a_guest_that_lets_go_late_or_never():
    guest = Guest([MAC], [MAC])
    guest.deaf = 1
    assert ensure(guest, "detached")["changed"] and guest.asked == 2 and guest.parts == {LIVE: [], CONFIG: []}
    guest = Guest([MAC], [MAC])
    guest.deaf = 9
    with pytest.raises(DeviceDetachFailed, match=MAC) as kept:
        ensure(guest, "detached")
    assert guest.parts == {LIVE: [MAC], CONFIG: [MAC]}, (
        "it has the interface at its next start, too, as the ledger says"
    )
    assert "stop the instance" in kept.value.remedy and "Unmount" not in kept.value.remedy


@pytest.mark.usefixtures("libvirt")
def test_a_guest_that_starts_before_its_definition_has_the_interface():
    guest = Guest([], [], active=False)
    attach = guest.attachDeviceFlags

    def late(xml, flags):
        guest.active = True  # by the definition that it has
        attach(xml, flags)

    guest.attachDeviceFlags = late
    done = ensure(guest, "attached")
    assert done["changed"] and done["live"] and guest.parts == {LIVE: [MAC], CONFIG: [MAC]}


@pytest.mark.usefixtures("libvirt")
def test_a_guest_that_starts_while_its_definition_is_changed():
    guest = Guest([], [MAC], active=False)
    guest.starts_after_detach = True
    assert ensure(guest, "detached")["changed"] and guest.active and guest.parts == {LIVE: [], CONFIG: []}


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.usefixtures("libvirt")
def test_a_guest_that_is_rescued_unheard_of(active):
    """Its own definition comes back as it was: an interface that the domain of the rescue lost would be there again, its address being another guest's."""
    guest = Guest([MAC], [MAC], active)
    guest.disks = "<disk type='file'><source file='/i/%s/disk.rescue'/></disk>" % ME
    for state in ("attached", "detached"):
        with pytest.raises(Conflict, match="is rescued"):
            ensure(guest, state)
    assert guest.parts == {LIVE: [MAC], CONFIG: [MAC]}


@pytest.mark.usefixtures("libvirt")
def test_what_libvirt_refuses():
    guest = Guest([], [])
    guest.refuses = True
    with pytest.raises(InterfaceAttachFailed, match="no more PCI slots") as caught:
        ensure(guest, "attached")
    assert "Failed to attach network adapter device to " + ME in str(caught.value) and caught.value.status == 500
    with pytest.raises(InstanceNotFound):
        ensure(None, "attached")
    assert not ensure(None, "detached")["changed"]


@pytest.mark.parametrize(
    "bad",
    [
        {"mac": "x"},
        {"uuid": "../x"},
        {"xml": "<disk/>"},
        {"xml": NIC % OTHER},
        {"xml": "<interface/>"},
        {"mac": "fa:16:3e:00:00:01\n"},
    ],
)
def test_bad_input(bad):
    with pytest.raises(InvalidInput):
        desired_interface({"uuid": ME, "mac": MAC, "state": "attached", "xml": NIC % MAC, **bad})


def test_nobody_waits_for_the_interfaces_of_a_guest_that_ended(monkeypatch, libvirt):
    """A delete may take the guest away while its build waits."""
    monkeypatch.setattr(vifs, "is_plugged", lambda device: False)
    with pytest.raises(VirtualInterfaceCreateException, match="the guest ended before interfaces tap1 were plugged in"):
        vifs.wait_plugged(Guest(active=False), 300.0, True, devices=["tap1"])
    assert vifs.wait_plugged(Guest(), 0.01, False, devices=["tap1"]) == ["tap1"]
    with pytest.raises(VirtualInterfaceCreateException, match="were not plugged in after"):
        vifs.wait_plugged(Guest(), 0.01, True, devices=["tap1"])
