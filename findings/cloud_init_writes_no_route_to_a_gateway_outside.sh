#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# cloud-init 22.4.2 (Debian 12). OpenStack's network_data.json may have a gateway that is outside of the subnet, as providers have it that route
# single addresses. cloud-init writes the default route by that gateway, for netplan without "on-link: true" and for ifupdown without a route to
# the gateway, so that the kernel refuses it (ifupdown: "|| true") and the guest has no default route. Whoever has such a subnet has to bring the route.
#
# Reads the renderers of the package, unpacked in a temporary folder; it configures nothing. Needs Debian 12's python3-yaml and python3-configobj.
set -euo pipefail
VERSION=22.4.2-1+deb12u4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -q download "cloud-init=$VERSION" >/dev/null 2>&1
dpkg-deb -x cloud-init_*.deb root
found=$(PYTHONPATH=root/usr/lib/python3/dist-packages /usr/bin/python3 - <<'PYTHON'
from cloudinit.net import eni, netplan, network_state
from cloudinit.sources.helpers import openstack

mac = "fa:16:3e:00:00:01"
route = {"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "198.51.100.1"}
data = {
    "links": [{"id": "tap0", "vif_id": "v", "type": "phy", "mtu": 1500, "ethernet_mac_address": mac}],
    "networks": [{"id": "network0", "type": "ipv4", "link": "tap0", "ip_address": "203.0.113.10",
                  "netmask": "255.255.255.255", "network_id": "n", "routes": [route]}],
    "services": [],
}
state = network_state.parse_net_config_data(openstack.convert_net_json(data, known_macs={mac: "eth0"}))
of_netplan = netplan.Renderer({})._render_content(state)
of_ifupdown = eni.Renderer({})._render_interfaces(state)
print("netplan:", "via: 198.51.100.1" in of_netplan, "on-link" in of_netplan)
print("ifupdown:", *[line.strip() for line in of_ifupdown.splitlines() if "post-up" in line])
PYTHON
)
echo "cloud-init $VERSION, gateway, on-link:"
echo "$found"
if [ "$found" != "netplan: True False
ifupdown: post-up route add default gw 198.51.100.1 || true" ]; then
    echo "the behaviour changed"
    exit 1
fi
