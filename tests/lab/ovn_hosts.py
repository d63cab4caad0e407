# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""OVN on the hosts of the lab: the central node on the first one, ovn-controller and the userspace datapath on all, tunnels over eth1."""

from __future__ import annotations

import lab as lab_module

OVS_CTL = "/usr/share/openvswitch/scripts/ovs-ctl"
OVN_CTL = "/usr/share/ovn/scripts/ovn-ctl"
_DATABASES = ("--db-nb-create-insecure-remote=yes", "--db-sb-create-insecure-remote=yes")


def start(lab):
    """Start OVN on all hosts. Returns the address of the northbound database."""
    central = lab.hosts[0]
    for host in lab.hosts:
        host.run(OVS_CTL, "--system-id=%s" % host.name, "--no-mlockall", "start")
    start_central(central)
    for host in lab.hosts:
        _put_on_bridge(host)
        ids = {
            "system-id": host.name,
            "ovn-remote": "tcp:%s:6642" % central.address,
            "ovn-encap-type": "geneve",
            "ovn-encap-ip": host.guest_network_address,
            "ovn-bridge-datapath-type": "netdev",
        }
        vsctl(host, "set", "open_vswitch", ".", *("external_ids:%s=%s" % pair for pair in ids.items()))
        host.run(OVN_CTL, "start_controller")
    for host in lab.hosts:
        wait_connected(host)
    return northbound(lab)


def stop_daemons(lab):
    """Stop OVN and Open vSwitch that a role started, where the tunnels were not moved."""
    for host in lab.hosts:
        host.run(OVN_CTL, "stop_controller", check=False)
        host.run("ovs-vsctl", "--timeout=20", "--if-exists", "del-br", "br-int", check=False)
        host.run(OVS_CTL, "stop", check=False)
        host.run("sh", "-c", "rm -rf /etc/openvswitch/conf.db /var/lib/openvswitch/*")
    stop_central(lab.hosts[0])
    lab.hosts[0].run("sh", "-c", "rm -rf /var/lib/ovn/*")


def certificates(folder, names):
    """Make an authority, and a key and a certificate of each name in ``folder``."""
    for words in (["init"], *(["-u", "req+sign", name, "switch"] for name in names)):
        argv = ["ovs-pki", "--dir=%s/pki" % folder, "--log=%s/pki.log" % folder, *words]
        lab_module.run("sh", "-c", 'cd "$0" && exec "$@"', folder, *argv)


def northbound(lab):
    return "tcp:%s:6641" % lab.hosts[0].address


def start_central(host):
    host.run(OVN_CTL, *_DATABASES, "start_northd")


def stop_central(host):
    host.run(OVN_CTL, "stop_northd", check=False)
    host.run(OVN_CTL, "stop_ovsdb", check=False)


def lose_databases(host):
    """The central node gets new, empty databases."""
    stop_central(host)
    host.run("sh", "-c", "rm -f /var/lib/ovn/ovn?b_db.db /var/lib/ovn/.ovn?b_db.db*")
    start_central(host)


def nbctl(lab, *words):
    return lab_module.run("ovn-nbctl", "--db=" + northbound(lab), "--timeout=20", *words).stdout


def vsctl(host, *words):
    return host.run("ovs-vsctl", "--timeout=20", *words).stdout


def wait_connected(host):
    argv = ("ovn-appctl", "--timeout=5", "-t", "ovn-controller", "connection-status")
    lab_module.wait_until(
        lambda: host.run(*argv, check=False).stdout.strip() == "connected", 40, "ovn-controller of %s" % host.name
    )


def _put_on_bridge(host):
    """The address of the tunnels has to be on a bridge of the userspace datapath: packets to others are lost silently."""
    host.run("ip", "link", "set", "eth1", "nomaster")
    host.run("ip", "address", "flush", "dev", "br-guests")
    mac = host.run("sh", "-c", "ip -o link show eth1 | sed 's/.*ether \\([0-9a-f:]*\\).*/\\1/'").stdout.strip()
    bridge = ("set", "bridge", "br-phy", "datapath_type=netdev", "other-config:hwaddr=" + mac)
    vsctl(host, "--may-exist", "add-br", "br-phy", "--", *bridge, "--", "--may-exist", "add-port", "br-phy", "eth1")
    host.run("ip", "address", "replace", host.guest_network_address + "/24", "dev", "br-phy")
    host.run("ip", "link", "set", "br-phy", "up")


def stop(lab):
    """Stop OVN everywhere, and give br-guests its interface back."""
    for host in lab.hosts:
        host.run(OVN_CTL, "stop_controller", check=False)
    stop_central(lab.hosts[0])
    for host in lab.hosts:
        for bridge in ("br-int", "br-phy"):
            host.run("ovs-vsctl", "--timeout=20", "--if-exists", "del-br", bridge, check=False)
        host.run(OVS_CTL, "stop", check=False)
        host.run("sh", "-c", "rm -rf /var/lib/ovn/* /etc/openvswitch/conf.db /var/lib/openvswitch/*")
        host.run("ip", "link", "set", "eth1", "master", "br-guests", "up")
        host.run("ip", "address", "replace", host.guest_network_address + "/24", "dev", "br-guests")
