# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VXLAN networks on a host: real devices of the kernel, in a network namespace of their own."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import subprocess
import threading
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import (
    BootflowError,
    HostLacksNetwork,
    InvalidInput,
    NetworkError,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.bridges import links as host_links
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.bridges import made_bridges, tunnels
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types import (
    joined_bridges,
    vxlan,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_types.network_type import (
    FoundNetwork,
    NetworkSpec,
    Uplinks,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root makes network namespaces")

SPEC = NetworkSpec("lab", "vxlan", "vxbr100", mtu=1430, vni=100, vxlan_peers=("192.0.2.2", "192.0.2.3"))
DEVICE = "VXLAN device vxlan100: VNI 100, port 4789, address 192.0.2.1, MTU 1430, in vxbr100, up\n"
TEXT = "bridge vxbr100: MTU 1430, up\n%speer 192.0.2.2\npeer 192.0.2.3\n" % DEVICE
GUEST = ["br0", "vxbr100"]
HOST = vxlan.HostVxlan()


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def links() -> set[str]:
    return {link["ifname"] for link in json.loads(ip("-json", "link", "show"))}


def flooded() -> set[str]:
    """The peers that get what goes to all."""
    argv = ["bridge", "-json", "fdb", "show", "dev", "vxlan100"]
    entries = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    return {entry["dst"] for entry in entries if entry["mac"] == "00:00:00:00:00:00"}


@pytest.fixture(autouse=True)
def _host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[None]:
    """A host with the addresses 192.0.2.1 and fd00::1 on eth0, and no guests. Programs inherit the namespace of the thread that starts them."""
    libc = ctypes.CDLL(None, use_errno=True)
    former = os.open("/proc/%d/task/%d/ns/net" % (os.getpid(), threading.get_native_id()), os.O_RDONLY)
    assert libc.unshare(0x40000000) == 0, "CLONE_NEWNET"
    monkeypatch.setattr(made_bridges, "FOLDER", str(tmp_path / "networks"))
    for module in (made_bridges, tunnels, joined_bridges):
        monkeypatch.setattr(module, "LOCK_ROOT", str(tmp_path / "run"))
    monkeypatch.setattr(joined_bridges, "unplugged", lambda _connection: [])
    monkeypatch.setattr(joined_bridges, "used_by_domains", lambda _connection: set())
    for module in (made_bridges, tunnels, host_links):
        monkeypatch.setattr(module, "host_name", lambda: "kvm1")
    try:
        ip("link", "set", "lo", "up")
        ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
        ip("link", "set", "eth1", "up")
        ip("link", "set", "eth0", "up")
        ip("address", "add", "192.0.2.1/24", "dev", "eth0")
        ip("address", "add", "fd00::1/64", "dev", "eth0", "nodad")
        yield
    finally:
        assert libc.setns(former, 0x40000000) == 0
        os.close(former)


def recorded() -> list[tunnels.Tunnel]:
    return made_bridges.recorded(tunnels.Tunnel)


def ensure(check_mode: bool = False, vxlan_address: str = "192.0.2.1", **changes: t.Any) -> dict[str, t.Any]:
    return HOST.ensure(None, dataclasses.replace(SPEC, uplinks=Uplinks(vxlan_address), **changes), check_mode)


def refused(kind: type[BootflowError], **changes: t.Any) -> str:
    with pytest.raises(kind) as caught:
        ensure(**changes)
    assert caught.value.remedy
    return caught.value.message


def test_the_first_guest_makes_it_and_the_next_ones_change_nothing() -> None:
    planned = ensure(check_mode=True)
    assert (planned["changed"], planned["defined"], planned["diff"]["after"]) == (True, True, TEXT)
    assert not links() & {"vxbr100", "vxlan100"} and recorded() == [], "check mode makes nothing"
    assert ensure() == planned
    assert made_bridges.found_text(recorded()[0]) == TEXT and flooded() == {"192.0.2.2", "192.0.2.3"}
    assert ensure() == ensure(check_mode=True) == {
        "changed": False, "defined": False, "started": False, "type": "vxlan", "source": "vxbr100", "bridge": "vxbr100",
    }  # fmt: skip


def test_the_host_has_no_address_in_it_and_the_bridge_waits_for_nothing() -> None:
    ensure()
    (bridge,) = json.loads(ip("-json", "-details", "address", "show", "dev", "vxbr100"))
    assert bridge["addr_info"] == [] and bridge["ifalias"] == tunnels.Tunnel.MARK
    data = bridge["linkinfo"]["info_data"]
    assert (data["stp_state"], data["forward_delay"], data["mcast_snooping"]) == (0, 0, 0)
    (device,) = json.loads(ip("-json", "-details", "link", "show", "dev", "vxlan100"))
    assert device["linkinfo"]["info_data"].get("learning", True) and device["master"] == "vxbr100"


def test_peers_are_corrected() -> None:
    ensure()
    changed = ensure(vxlan_peers=("192.0.2.1", "192.0.2.3", "192.0.2.4", "192.0.2.4"))
    assert (changed["changed"], changed["defined"], changed["started"]) == (True, False, False)
    assert changed["diff"]["before"] == TEXT
    assert changed["diff"]["after"] == TEXT.replace("peer 192.0.2.2\n", "") + "peer 192.0.2.4\n"
    assert flooded() == {"192.0.2.3", "192.0.2.4"}


def test_what_was_learned_at_a_former_peer_is_forgotten() -> None:
    """A host has another address now, and its guests are reached there at once."""
    ensure()
    for number, peer in ((2, "192.0.2.2"), (3, "192.0.2.3")):
        entry = "52:54:00:00:00:0%d dev vxlan100 dst %s self dynamic" % (number, peer)
        subprocess.run(["bridge", "fdb", "add", *entry.split()], check=True)
    ensure(vxlan_peers=("192.0.2.3", "192.0.2.4"))
    argv = ["bridge", "-json", "fdb", "show", "dev", "vxlan100"]
    entries = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    assert {entry["dst"] for entry in entries if entry["mac"].startswith("52:54:")} == {"192.0.2.3"}
    assert flooded() == {"192.0.2.3", "192.0.2.4"}


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("link set vxlan100 nomaster", "vxlan100"),
        ("link set vxlan100 down", "vxlan100"),
        ("link set vxbr100 down", "bridge"),
        ("link set vxbr100 mtu 1300", "MTU"),
        ("link delete vxlan100", "vxlan100"),
    ],
)
def test_what_others_changed_is_corrected(command: str, line: str) -> None:
    ensure()
    ip(*command.split())
    changed = ensure()
    assert changed["changed"] and line in changed["diff"]["after"] and changed["diff"]["before"] != TEXT
    assert made_bridges.found_text(recorded()[0]) == TEXT and not ensure()["changed"]


def test_another_address_of_the_host_replaces_the_device_only() -> None:
    ensure()
    ip("link", "add", "vnet0", "type", "veth", "peer", "name", "guest0")
    ip("link", "set", "vnet0", "master", "vxbr100")
    changed = ensure(vxlan_address="fd00::1", vxlan_peers=("fd00::2",))
    assert changed["changed"] and not changed["defined"] and "peer 192.0.2.2" in changed["diff"]["before"]
    assert "address fd00::1" in changed["diff"]["after"]
    assert flooded() == {"fd00::2"}
    assert json.loads(ip("-json", "link", "show", "dev", "vnet0"))[0]["master"] == "vxbr100", "guests stay plugged in"


def test_the_mtu_has_to_fit_into_the_tunnel() -> None:
    text = refused(NetworkError, mtu=1451)
    assert text == (
        "network lab has MTU 1451, and the tunnel on kvm1 has room for 1450: eth0 has MTU 1500, of which VXLAN takes 50"
    )
    assert "room for 1430" in refused(NetworkError, mtu=1431, vxlan_address="fd00::1", vxlan_peers=())
    assert "MTU 1450" in ensure(mtu=None)["diff"]["after"], "without one the largest"
    ip("link", "set", "eth0", "mtu", "9000")
    assert "MTU 8950" in ensure(mtu=8950)["diff"]["after"]


def test_hosts_that_cannot_serve_it() -> None:
    assert refused(HostLacksNetwork, vxlan_address="") == "bootflow_vxlan_address is not set on kvm1"
    text = "the address of bootflow_vxlan_address is on no interface that is up on kvm1"
    assert refused(HostLacksNetwork, vxlan_address="192.0.2.9") == text
    ip("link", "set", "eth0", "down")
    assert refused(HostLacksNetwork) == text
    assert not links() & {"vxbr100", "vxlan100"} and recorded() == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"vni": None}, "network lab has no VNI between 1 and 16777215"),
        ({"vni": 1 << 24}, "network lab has no VNI between 1 and 16777215"),
        ({"source": "longer than any"}, "is not the name of a network interface"),
        ({"source": "vxlan100"}, "'vxlan100' is the name of a VXLAN device"),
        ({"vxlan_address": "kvm1"}, "'kvm1' is not an IP address"),
        ({"vxlan_address": "224.0.0.1"}, "224.0.0.1 is not an address at which other hosts reach one another"),
        ({"vxlan_address": "127.0.0.1"}, "127.0.0.1 is not an address"),
        ({"vxlan_peers": ("192.0.2.2", "kvm3")}, "'kvm3' is not an IP address"),
        ({"vxlan_peers": ("192.0.2.2", "fd00::2")}, "is 192.0.2.1 here and fd00::2 on another host"),
    ],
)
def test_bad_input(changes: dict[str, t.Any], text: str) -> None:
    assert text in refused(InvalidInput, **changes)
    assert recorded() == []


def test_an_address_on_lo_says_nothing_of_the_way() -> None:
    ip("address", "add", "198.51.100.1/32", "dev", "lo")
    assert "is on lo" in refused(InvalidInput, vxlan_address="198.51.100.1", vxlan_peers=())


def test_devices_of_others_are_left_alone() -> None:
    ip("link", "add", "vxbr100", "type", "bridge")
    text = "network lab needs the name vxbr100 on kvm1, where another has made an interface of this name"
    assert refused(NetworkError) == text
    ip("link", "add", "vxlan7", "type", "bridge")
    assert "needs the name vxlan7" in refused(NetworkError, source="br7", vni=7)
    ip("link", "set", "vxlan7", "alias", tunnels.Tunnel.MARK)
    assert "needs the name vxlan7" in refused(NetworkError, source="br7", vni=7), "the bridge of another network"
    assert "vxlan7" in links()
    ip("link", "add", "other", "type", "vxlan", "id", "8", "dstport", "4789", "local", "192.0.2.1")
    assert refused(NetworkError, source="br8", vni=8) == "network lab needs VNI 8 on kvm1, where other has it already"
    ip("link", "add", "port", "type", "vxlan", "id", "9", "dstport", "8472", "local", "192.0.2.1")
    assert ensure(source="br9", vni=9)["defined"], "another port is another network"
    assert [each.bridge for each in recorded()] == ["br9"]


def until_made() -> None:
    """A namespace ends a moment after its last process."""
    end = time.monotonic() + 20
    while True:
        try:
            assert ensure()["changed"]
            return
        except NetworkError:
            assert time.monotonic() < end
            time.sleep(0.1)


@pytest.mark.parametrize("hidden", [True, False])
def test_a_port_that_another_program_has_is_an_error_with_a_remedy(hidden: bool) -> None:
    """Open vSwitch has a device for all VNIs; Docker Swarm moves its devices to other namespaces, and the kernel counts them here still."""
    with subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; read x"], stdin=-1, stdout=-1) as elsewhere:
        assert elsewhere.stdout is not None and elsewhere.stdout.readline(), "it has its namespace now"
        if hidden:
            ip("link", "add", "theirs", "type", "vxlan", "id", "100", "dstport", "4789", "local", "192.0.2.1")
            ip("link", "set", "theirs", "netns", str(elsewhere.pid))
        else:
            ip("link", "add", "theirs", "type", "vxlan", "external", "dstport", "4789")
            ip("link", "set", "theirs", "up")
        text = refused(NetworkError)
        elsewhere.communicate()
    assert text.startswith("network lab cannot have bridge vxbr100 and VXLAN device vxlan100 on kvm1: ip failed")
    if not hidden:
        ip("link", "delete", "theirs")
    until_made()
    assert made_bridges.found_text(recorded()[0]) == TEXT, "the next build completes it"


def test_a_network_that_gets_another_vni_or_bridge_while_the_host_has_it() -> None:
    ensure()
    assert "is to have VNI 101 on bridge vxbr100, and kvm1 has VNI 100 on bridge vxbr100" in refused(
        NetworkError, vni=101
    )
    assert "is to have VNI 100 on bridge lab0, and kvm1 has VNI 100 on bridge vxbr100" in refused(
        NetworkError, source="lab0"
    )


def purge(min_age: float = 0, keep: t.Collection[str] = (), check_mode: bool = False) -> list[dict[str, t.Any]]:
    return list(HOST.purge(None, min_age, keep, check_mode))


def test_the_last_guest_s_purge_removes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ensure()
    monkeypatch.setattr(joined_bridges, "used_by_domains", lambda _connection: {"vxbr100"})
    assert purge() == [], "a domain has it"
    monkeypatch.setattr(joined_bridges, "used_by_domains", lambda _connection: set())
    assert purge(keep=("vxbr100",)) == [] and purge(min_age=60) == []
    ip("link", "add", "vnet0", "type", "veth", "peer", "name", "guest0")
    ip("link", "set", "vnet0", "master", "vxbr100")
    assert purge() == [], "an interface is in it"
    ip("link", "delete", "vnet0")
    removed = [{"name": "vxbr100", "changed": True, "definition": TEXT, "error": None}]
    assert purge(check_mode=True) == removed and "vxbr100" in links()
    assert purge() == removed and not links() & {"vxbr100", "vxlan100"} and recorded() == []
    assert purge() == []


def test_a_purge_leaves_what_another_made_in_the_meantime() -> None:
    ensure()
    ip("link", "delete", "vxlan100")
    ip("link", "set", "vxbr100", "alias", "theirs")
    assert [each["error"] for each in purge()] == [None]
    assert "vxbr100" in links() and recorded() == []


def test_the_start_of_a_guest_makes_it_again_after_a_restart_of_the_host() -> None:
    ensure()
    os.utime(os.path.join(made_bridges.FOLDER, "vxbr100"), (1000, 1000))
    ip("link", "delete", "vxlan100")
    ip("link", "delete", "vxbr100")
    made_bridges.restore_bridges(tunnels.Tunnel, lambda: ["br0"])
    assert "vxbr100" not in links(), "a guest that does not have it"
    made_bridges.restore_bridges(tunnels.Tunnel, lambda: GUEST)
    assert made_bridges.found_text(recorded()[0]) == TEXT
    assert made_bridges.unneeded_for(recorded()[0]) > 10**9, "no build needed it"
    made_bridges.restore_bridges(tunnels.Tunnel, lambda: pytest.fail("where nothing is missing, no definition is read"))


def test_a_report_joins_it_with_a_new_host() -> None:
    ensure()
    os.utime(os.path.join(made_bridges.FOLDER, "vxbr100"), (1000, 1000))
    peers = ["192.0.2.2", "192.0.2.3", "192.0.2.4"]
    planned = tunnels.refresh_tunnels("192.0.2.1", peers, True)
    assert planned["vxbr100"]["diff"]["after"] == TEXT + "peer 192.0.2.4\n" and len(flooded()) == 2
    assert tunnels.refresh_tunnels("192.0.2.1", peers, False) == planned and flooded() == set(peers)
    assert tunnels.refresh_tunnels("192.0.2.1", peers, False)["vxbr100"]["changed"] is False
    assert recorded()[0].peers == tuple(peers) and made_bridges.unneeded_for(recorded()[0]) > 10**9
    wrong = tunnels.refresh_tunnels("192.0.2.1", ["fd00::2"], False)["vxbr100"]
    assert wrong["error"]["code"] == "InvalidInput" and flooded() == set(peers)


def test_a_report_of_a_host_that_restarted_makes_no_devices() -> None:
    ensure()
    ip("link", "delete", "vxlan100")
    ip("link", "delete", "vxbr100")
    changed = tunnels.refresh_tunnels("192.0.2.1", ["192.0.2.4"], False)["vxbr100"]
    assert changed["changed"] and "vxbr100" not in links() and recorded()[0].peers == ("192.0.2.4",)
    made_bridges.restore_bridges(tunnels.Tunnel, lambda: GUEST)
    assert flooded() == {"192.0.2.4"}


def test_what_the_host_reports_to_the_scheduler() -> None:
    assert HOST.networks(None, Uplinks("192.0.2.1")) == [FoundNetwork("underlay", True)]
    assert HOST.networks(None, Uplinks("192.0.2.9")) == [FoundNetwork("underlay", False)]
    assert HOST.networks(None, Uplinks("")) == [] and HOST.report(None) == []
    ip("address", "add", "198.51.100.1/32", "dev", "lo")
    assert HOST.networks(None, Uplinks("198.51.100.1")) == [FoundNetwork("underlay", False)], "the host would refuse it"


def test_a_file_that_cannot_be_read_is_no_network(tmp_path: Path) -> None:
    ensure()
    for name, text in (
        ("half", '{"vni": 1'),
        ("more", '{"x": 1}'),
        ("liar", (tmp_path / "networks/vxbr100").read_text()),
    ):
        (tmp_path / "networks" / name).write_text(text)
    assert [each.bridge for each in recorded()] == ["vxbr100"]
