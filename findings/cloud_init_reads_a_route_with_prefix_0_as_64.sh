#!/usr/bin/env bash
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# cloud-init 22.4.2 (Debian 12), network configuration version 1. A route has a prefix or a netmask. A default route with "prefix: 0" is not the
# default route in the guest: a 0 counts as no prefix, and the route becomes ::/64 for IPv6 and 0.0.0.0/24 for IPv4. With the netmask :: or 0.0.0.0,
# as OpenStack's network_data.json has it, it is the default route. Whoever writes network-config for NoCloud uses the netmask.
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
from cloudinit.net import netplan, network_state

SUBNETS = {"::": ("2001:db8::5/64", "2001:db8::1"), "0.0.0.0": ("192.0.2.5/24", "192.0.2.1")}
for network, (address, gateway) in SUBNETS.items():
    for way in ({"prefix": 0}, {"netmask": network}):
        subnet = {"type": "static", "address": address, "routes": [{"network": network, "gateway": gateway, **way}]}
        config = {"version": 1, "config": [{"type": "physical", "name": "eth0", "subnets": [subnet]}]}
        text = netplan.Renderer({})._render_content(network_state.parse_net_config_data(config))
        print(*way, [line.split()[-1] for line in text.splitlines() if " to: " in line][0])
PYTHON
)
echo "cloud-init $VERSION, how a default route is written and what the guest gets:"
echo "$found"
if [ "$found" != "prefix ::/64
netmask ::/0
prefix 0.0.0.0/24
netmask 0.0.0.0/0" ]; then
    echo "the behaviour changed"
    exit 1
fi
