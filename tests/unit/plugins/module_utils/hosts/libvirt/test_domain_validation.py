# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""libvirt validates a definition by its schema, once for guests that are alike in all but name, UUID and numbers."""

from __future__ import annotations

import concurrent.futures
import os
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


@pytest.fixture
def schema(monkeypatch, tmp_path):
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "domain.rng").write_text("<grammar/>")
    monkeypatch.setattr(domains, "SCHEMA", str(tmp_path / "schemas"))
    return tmp_path / "schemas" / "domain.rng"


def new_module(monkeypatch):
    monkeypatch.setattr(domains, "_valid_forms", set())


def test_the_next_module_on_the_host_knows_the_forms(monkeypatch, schema):
    host = Strict()
    for number, kind in ((10, "network"), (11, "network"), (12, "bridge"), (13, "network")):
        new_module(monkeypatch)
        define(host, number, kind)
    assert host.validated == [True, False, True, False]
    assert os.stat(os.path.join(domains.REMEMBERED, domains.VALID)).st_mode & 0o777 == 0o700


@pytest.mark.parametrize("change", ["another schema", "no schema", "an empty folder", "a folder of others"])
def test_a_form_is_validated_again(monkeypatch, schema, change):
    host = Strict()
    define(host, 10)
    if change == "another schema":
        schema.write_text("<grammar ns=''/>")
    elif change == "a folder of others":
        os.chmod(os.path.join(domains.REMEMBERED, domains.VALID), 0o777)
    else:
        schema.unlink()
        if change == "no schema":
            schema.parent.rmdir()
    for number in (11, 12):
        new_module(monkeypatch)
        define(host, number)
    assert host.validated == [True, True, change != "another schema"]


def test_a_form_that_was_refused_is_not_remembered(monkeypatch, schema):
    host = Strict(refuses="bridge")
    with pytest.raises(LibvirtError):
        define(host, 10, kind="bridge")
    new_module(monkeypatch)
    with pytest.raises(LibvirtError):
        define(host, 11, kind="bridge")
    assert host.validated == [True, True]
