# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VLAN networks on a host: real devices of a kernel that has VLANs. Needs root, iproute2 and the collection on Python's path.

Prints {check: ""}, or {check: traceback}. Each check has a network namespace and folders of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import subprocess
import tempfile
import traceback

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import HostLacksNetwork, NetworkError
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.bridges import links as host_links
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.bridges import made_bridges, vlans
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types import joined_bridges, vlan
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types.network_type import (
    FoundNetwork,
    NetworkSpec,
    Uplinks,
)

LIBC = ctypes.CDLL(None, use_errno=True)
UPLINKS = Uplinks(physical_interfaces={"physnet1": "eth0", "dark": "eth2"})
SPEC = NetworkSpec("office", "vlan", "vlbr100", vlan=100, physical_network="physnet1", uplinks=UPLINKS)
TEXT = "bridge vlbr100: MTU 1500, up\nVLAN device eth0.100: VLAN 100 on eth0, MTU 1500, in vlbr100, up\n"
HOST = vlan.HostVlan()


def ip(*arguments):
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def links():
    return {link["ifname"] for link in json.loads(ip("-json", "link", "show"))}


def recorded():
    return made_bridges.recorded(vlans.Vlan)


@contextlib.contextmanager
def host():
    """A host with eth0, which is up, and without guests."""
    former = os.open("/proc/self/ns/net", os.O_RDONLY)
    assert LIBC.unshare(0x40000000) == 0, "CLONE_NEWNET"
    with tempfile.TemporaryDirectory() as folder:
        made_bridges.FOLDER = os.path.join(folder, "networks")
        for module in (made_bridges, joined_bridges):
            module.LOCK_ROOT = os.path.join(folder, "run")
        try:
            ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
            ip("link", "set", "eth1", "up")
            ip("link", "set", "eth0", "up")
            yield
        finally:
            assert LIBC.setns(former, 0x40000000) == 0
            os.close(former)


def ensure(check_mode=False, **changes):
    return HOST.ensure(None, dataclasses.replace(SPEC, **changes), check_mode)


def refused(kind, **changes):
    try:
        ensure(**changes)
    except kind as error:
        assert error.remedy
        return error.message
    raise AssertionError("not refused: %s" % changes)


def the_first_guest_makes_it_and_the_next_ones_change_nothing():
    planned = ensure(check_mode=True)
    assert (planned["changed"], planned["defined"], planned["diff"]["after"]) == (True, True, TEXT)
    assert not links() & {"vlbr100", "eth0.100"} and recorded() == [], "check mode makes nothing"
    assert ensure() == planned
    assert made_bridges.found_text(recorded()[0]) == TEXT
    assert ensure() == ensure(check_mode=True) == {
        "changed": False, "defined": False, "started": False, "type": "vlan", "source": "vlbr100", "bridge": "vlbr100",
    }  # fmt: skip


def frames_have_the_tag_on_the_interface_and_none_in_the_bridge():
    ensure()
    (device,) = json.loads(ip("-json", "-details", "link", "show", "dev", "eth0.100"))
    assert device["linkinfo"]["info_data"]["id"] == 100 and device["link"] == "eth0" and device["master"] == "vlbr100"
    (bridge,) = json.loads(ip("-json", "-details", "address", "show", "dev", "vlbr100"))
    assert bridge["addr_info"] == [] and bridge["ifalias"] == vlans.Vlan.MARK
    data = bridge["linkinfo"]["info_data"]
    assert (data["stp_state"], data["forward_delay"], data["mcast_snooping"]) == (0, 0, 0)


def an_interface_with_a_long_name_and_a_bridge_have_vlans_too():
    ip("link", "set", "eth0", "name", "enp0s31f6np0")
    longer = Uplinks(physical_interfaces={"physnet1": "enp0s31f6np0"})
    assert "VLAN device vlan100: VLAN 100 on enp0s31f6np0" in ensure(uplinks=longer)["diff"]["after"]
    ip("link", "add", "br0", "type", "bridge")
    ip("link", "set", "br0", "up")
    of_bridge = Uplinks(physical_interfaces={"physnet1": "br0"})
    changed = ensure(uplinks=of_bridge, vlan=200, source="vlbr200")
    assert "VLAN device br0.200: VLAN 200 on br0" in changed["diff"]["after"]


def what_others_changed_is_corrected():
    for command in (
        "link set eth0.100 nomaster",
        "link set eth0.100 down",
        "link set vlbr100 down",
        "link set vlbr100 mtu 1300",
        "link delete eth0.100",
    ):
        ensure()
        ip(*command.split())
        changed = ensure()
        assert changed["changed"] and changed["diff"]["before"] != TEXT, command
        assert made_bridges.found_text(recorded()[0]) == TEXT and not ensure()["changed"], command


def the_mtu_is_at_most_that_of_the_interface():
    assert refused(NetworkError, mtu=9000) == "network office has MTU 9000, and eth0 on kvm1 has 1500"
    ip("link", "set", "eth0", "mtu", "9000")
    assert "MTU 9000" in ensure()["diff"]["after"] and "MTU 1400" in ensure(mtu=1400)["diff"]["after"]


def hosts_that_cannot_serve_it():
    text = "physical network lab is not in bootflow_physical_interface_mappings on kvm1"
    assert refused(HostLacksNetwork, physical_network="lab") == text
    down = "the interface of physical network %s is missing or down on kvm1"
    assert refused(HostLacksNetwork, physical_network="dark") == down % "dark"
    ip("link", "set", "eth0", "down")
    assert refused(HostLacksNetwork) == down % "physnet1"
    assert not links() & {"vlbr100", "eth0.100"} and recorded() == []
    assert HOST.networks(None, UPLINKS) == [FoundNetwork("physnet1", False), FoundNetwork("dark", False)]
    ip("link", "set", "eth0", "up")
    assert HOST.networks(None, UPLINKS) == [FoundNetwork("physnet1"), FoundNetwork("dark", False)]


def devices_of_others_stay():
    ip("link", "add", "link", "eth0", "name", "office", "type", "vlan", "id", "100")
    assert refused(NetworkError) == "network office needs VLAN 100 of eth0 on kvm1, where office has it already"
    ip("link", "set", "office", "name", "eth0.100")
    assert "where another has made an interface of this name" in refused(NetworkError)
    ip("link", "delete", "eth0.100")
    ip("link", "add", "vlbr100", "type", "bridge")
    assert "network office needs the name vlbr100 on kvm1" in refused(NetworkError)


def a_bridge_never_joins_two_vlans():
    ensure()
    text = (
        "network office is to have VLAN 200 of eth0 on bridge vlbr100, and kvm1 has VLAN 100 of eth0 on bridge vlbr100"
    )
    assert refused(NetworkError, vlan=200) == text
    assert "VLAN 100 of eth0 on bridge other, and" in refused(NetworkError, source="other")


def a_guest_that_starts_after_a_restart_gets_it_again():
    ensure()
    ip("link", "delete", "eth0.100")
    ip("link", "delete", "vlbr100")
    os.utime(os.path.join(made_bridges.FOLDER, "vlbr100"), (0, 0))
    made_bridges.restore_bridges(vlans.Vlan, lambda: ["br0"])
    assert "vlbr100" not in links()
    made_bridges.restore_bridges(vlans.Vlan, lambda: ["br0", "vlbr100"])
    assert made_bridges.found_text(recorded()[0]) == TEXT
    assert made_bridges.unneeded_for(recorded()[0]) > 10**9, "no build needed it"


def a_purge_removes_what_no_guest_has():
    ensure()

    def purge(min_age=0, keep=(), check_mode=False):
        return list(HOST.purge(None, min_age, keep, check_mode))

    assert purge(min_age=3600) == purge(keep=["vlbr100"]) == []
    ip("link", "add", "tap0", "type", "veth", "peer", "name", "guest0")
    ip("link", "set", "tap0", "master", "vlbr100")
    assert purge() == []
    ip("link", "delete", "tap0")
    removed = [{"name": "vlbr100", "changed": True, "definition": TEXT, "error": None}]
    assert purge(check_mode=True) == removed and "vlbr100" in links()
    assert purge() == removed and not links() & {"vlbr100", "eth0.100"} and recorded() == [] and "eth0" in links()


CHECKS = (
    the_first_guest_makes_it_and_the_next_ones_change_nothing,
    frames_have_the_tag_on_the_interface_and_none_in_the_bridge,
    an_interface_with_a_long_name_and_a_bridge_have_vlans_too,
    what_others_changed_is_corrected,
    the_mtu_is_at_most_that_of_the_interface,
    hosts_that_cannot_serve_it,
    devices_of_others_stay,
    a_bridge_never_joins_two_vlans,
    a_guest_that_starts_after_a_restart_gets_it_again,
    a_purge_removes_what_no_guest_has,
)


def main():
    host_links.host_name = vlans.host_name = made_bridges.host_name = lambda: "kvm1"
    joined_bridges.unplugged = lambda _connection: []
    joined_bridges.used_by_domains = lambda _connection: set()
    answers = {}
    for check in CHECKS:
        answers[check.__name__] = ""
        try:
            with host():
                check()
        except Exception:
            answers[check.__name__] = traceback.format_exc()
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
