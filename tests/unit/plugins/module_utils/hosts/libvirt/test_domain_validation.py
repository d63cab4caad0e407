# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""libvirt validates a definition by its schema, once for guests that are alike in all but name, UUID and numbers."""

from __future__ import annotations

import concurrent.futures
import threading
import time

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import LibvirtError
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt import domains

from .test_domain_names import Error, Libvirt, stand_in

UUID = "2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a%02d"
XML = "<domain type='qemu'><name>%s</name><uuid>%s</uuid><memory>%d</memory><devices>%s</devices></domain>"
INTERFACE = "<interface type='%s'><mac address='fa:16:3e:00:00:%02x'/></interface>"


@pytest.fixture(autouse=True)
def libvirt(monkeypatch):
    stand_in(monkeypatch)


class Strict(Libvirt):
    """:arg refuses: what a definition with validation must not have"""

    def __init__(self, refuses=""):
        super().__init__()
        self.refuses, self.validated = refuses, []

    def defineXMLFlags(self, xml, flags):
        self.validated.append(bool(flags))
        if self.refuses and flags and self.refuses in xml:
            raise Error(1)
        return super().defineXMLFlags(xml, flags)


@pytest.fixture(autouse=True)
def no_form_is_known(monkeypatch):
    monkeypatch.setattr(domains, "_valid_forms", set())


def define(host, number, kind="network", name="web-%d"):
    name, uuid = name % number, UUID % number
    xml = XML % (name, uuid, 64 * number, INTERFACE % (kind, number))
    domains.ensure_domain(host, domains.DomainSpec(uuid, name, xml, state="defined"))


def test_guests_that_are_alike_are_validated_once():
    host = Strict()
    for number in range(10, 14):
        define(host, number)
    assert host.validated == [True, False, False, False]


def test_guests_that_are_alike_and_come_side_by_side_are_validated_once():
    host = Strict()
    together = threading.Barrier(4)
    plain = host.defineXMLFlags

    def slowly(xml, flags):
        time.sleep(0.05)
        return plain(xml, flags)

    host.defineXMLFlags = slowly

    def one(number):
        together.wait(10)
        define(host, number)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(10, 14)))
    assert sorted(host.validated) == [False, False, False, True]


def test_another_word_in_the_definition_is_validated():
    host = Strict()
    define(host, 10)
    define(host, 11, kind="bridge")
    define(host, 12, kind="bridge")
    assert host.validated == [True, True, False]


def test_a_form_that_was_refused_is_validated_again():
    host = Strict(refuses="bridge")
    for number in (10, 11):
        with pytest.raises(LibvirtError):
            define(host, number, kind="bridge")
    assert host.validated == [True, True]
