#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: virtual_network
short_description: Ensure that the networks of guests exist
version_added: "0.9.0"
description:
  - Checks that a libvirt network is active or that a Linux bridge exists. A libvirt network with O(networks[].manage=true) is
    defined, started and set to start with the host, where needed.
  - Of a VXLAN network, a Linux bridge and a VXLAN device in it (C(vxlan) and the VNI) are made where they are missing, and corrected. Both have the alias
    C(urn:bootflow:compute:vxlan:1). What others made under these names is an error, and so is an MTU for which the tunnel has no room.
  - Of a VLAN network, a Linux bridge and a VLAN device in it (C(INTERFACE.VLAN), or C(vlan) and the VLAN where that is too long) are made in the same way,
    with the alias C(urn:bootflow:compute:vlan:1).
  - Of a macvtap network, a libvirt network with the forward mode C(bridge) and the interface of the physical network is defined and started, with
    the same mark as managed networks.
  - A file below C(/var/lib/bootflow/networks) has the definition, by which the start of a guest makes the devices again after a restart of the host.
  - A network that is already defined keeps its definition. A managed one that does not serve DHCP as requested is an error.
  - A managed network does not start in a range that another active libvirt network has, or where an interface of the host has its address. Nothing is
    defined then.
  - The failure of one network does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.guest.networks
  - bootflow.compute.shared.time_limit
attributes:
  diff_mode: {support: full}
  platform: {platforms: linux}
requirements:
  - iproute2 with O(networks[].manage=true), and for VXLAN and VLAN networks
"""

EXAMPLES = r"""
---
- name: Ensure a managed network and a bridge of the host
  bootflow.compute.virtual_network:
    networks:
      - name: private
        manage: true
        forward: nat
        subnets:
          - cidr: 10.20.0.0/24
            gateway_ip: 10.20.0.1
      - name: public
        type: bridge
        source: br0

- name: Ensure a network that reaches over two hosts
  bootflow.compute.virtual_network:
    networks:
      - name: lab
        type: vxlan
        source: vxbr100
        vni: 100
    vxlan_address: 192.0.2.11
    vxlan_peers: [192.0.2.12]

- name: Ensure a network that is a VLAN of a physical network
  bootflow.compute.virtual_network:
    networks:
      - name: office
        type: vlan
        source: vlbr100
        physical_network: physnet1
        vlan: 100
    physical_interface_mappings:
      physnet1: eno2
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each network, by its name.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the network was, or in check mode would be, changed.
      type: bool
      returned: always
    type:
      description: Type of the network, V(network), V(bridge), V(vxlan) or V(vlan).
      type: str
      returned: success
    source:
      description: Name on the host.
      type: str
      returned: success
    bridge:
      description: Bridge of the guests' interfaces; empty if there is none or it is not known yet.
      type: str
      returned: success
    defined:
      description: Whether this task defined the network, or made its bridge.
      type: bool
      returned: success
    started:
      description: Whether this task started the network.
      type: bool
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
reservations:
  description: The outcome of each of O(reservations), by its MAC address, with C(changed) and C(error) as in RV(outcomes).
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_batch import (
    NETWORK_BATCH_ARGUMENTS,
    ensure_networks,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    return {**TIME_LIMIT_ARGUMENTS, **NETWORK_BATCH_ARGUMENTS}


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    try:
        result = ensure_networks(module.params, module.check_mode)
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(result["outcomes"], result["reservations"]), **result)


if __name__ == "__main__":
    main()
