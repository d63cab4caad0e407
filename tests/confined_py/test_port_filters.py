# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connections of filtered guests, on a kernel that tracks them on bridges: guests, the host, and what the host routes."""

from __future__ import annotations

import json

import pytest
from conftest import CACHE, ROOT
from filter_documents import documents
from storage_vm import StorageVM, build_image

from ansible_collections.bootflow.compute.plugins.module_utils.core.firewall.document import read_filters
from ansible_collections.bootflow.compute.plugins.module_utils.core.firewall.nftables import render

pytestmark = pytest.mark.long

HIDDEN = {
    "DHCP server in fragments": False,
    "fragments of an allowed packet": True,
    "router's advertisement behind an extension header": False,
    "router's advertisement in fragments": False,
}
CONNECTIONS = {
    "web answers the wire at 80": True,
    "web answers the wire at 5432": False,
    "db answers web": True,
    "db answers the wire": False,
    "web answers the host at 80": True,
    "db answers the host": False,
    "the host answers web": True,
    "the host answers db": True,
    "the wire answers web": True,
    "web answers the wire over IPv6": True,
    "db answers the wire over IPv6": False,
    "the wire answers db over IPv6": True,
    "web answers a ping": True,
    "db answers a ping": False,
    "a connection of members works": True,
    "a connection lives while the same filters are loaded": True,
    "a connection lives when another member comes": True,
    "a connection lives when its member has left": False,
    "a connection lives when others are cut": True,
    "db answers web, a former member": False,
    "db sends by itself to the host": False,
    "db sends by itself to the wire": False,
    "routed: the world answers web": True,
    "routed: web answers the world": True,
    "routed: db answers the world": False,
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filters")
    made = StorageVM(str(folder / "vm"), build_image(CACHE / "storage"), disks={}, kind="compute")
    made.start()
    try:
        made.run("mkdir", "/root/t")
        for name in ("bridged_guests.py", "filtered_guests.py"):
            made.put(ROOT / "tests" / "lab" / name, "/root/t/")
        for number, document in enumerate(documents(), 1):
            path = folder / ("%d.nft" % number)
            path.write_text(render(read_filters(document)))
            made.put(path, "/root/t/")
        yield made
    finally:
        made.remove()


def test_nothing_is_hidden_in_fragments(machine):
    answers = json.loads(machine.run("python3", "/root/t/filtered_guests.py", "all sources", "/root/t/1.nft").stdout)
    assert {what: answers[what] for what in HIDDEN} == HIDDEN


def test_connections_are_as_the_rules_say(machine):
    assert json.loads(machine.run("python3", "/root/t/filtered_guests.py", "rules", "/root/t").stdout) == CONNECTIONS
