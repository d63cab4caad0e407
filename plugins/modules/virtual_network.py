#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: virtual_network
short_description: Ensure that the networks of guests exist
version_added: "0.1.0"
description:
  - Checks that a libvirt network is active or that a Linux bridge exists. A libvirt network with O(networks[].manage=true) is
    defined, started and set to start with the host, where needed.
  - A network that is already defined keeps its definition. A managed one that does not serve DHCP as requested is an error.
  - A managed network does not start in a range that another active libvirt network has, or where an interface of the host has its address. Nothing is
    defined then.
  - The failure of one network does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.time_limit
attributes:
  diff_mode: {support: full}
  platform: {platforms: linux}
options:
  networks:
    description: The networks of guests on this host.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the network, the key of its result in RV(outcomes).
        type: str
        required: true
      type:
        description: Type of the network, a libvirt network or a Linux bridge of the host.
        type: str
        choices: [network, bridge]
        default: network
      source:
        description: Name of the libvirt network or bridge on the host. By default O(networks[].name).
        type: str
      manage:
        description: Define and start the libvirt network, and start it with the host. Bridges are never created.
        type: bool
        default: false
      forward:
        description: Forward mode of a managed libvirt network.
        type: str
        choices: [none, nat, route, open]
        default: none
      bridge:
        description: Name of the bridge of a managed libvirt network. By default libvirt chooses one.
        type: str
      mtu:
        description: MTU of a managed libvirt network.
        type: int
      subnets:
        description:
          - Subnets with C(cidr), C(gateway_ip), C(enable_dhcp), C(dns_nameservers) and C(host_routes). In a managed libvirt network the
            host has the address of the gateway.
          - Of a subnet with C(enable_dhcp), the DHCP server of a managed libvirt network tells guests C(dns_nameservers), C(host_routes)
            and O(networks[].mtu). It gives away no address but those that M(bootflow.compute.domain) reserves.
        type: list
        elements: dict
        default: []
  reservations:
    description:
      - Addresses that the DHCP server of libvirt has to give to guests that exist, in addition to those that it gives already. They are lost when a network is
        removed and defined again.
      - One that is reserved for another MAC address is left alone, and is an error in RV(reservations).
    type: list
    elements: dict
    default: []
    suboptions:
      network: {description: Name of the libvirt network., type: str, required: true}
      mac: {description: MAC address of the interface., type: str, required: true}
      address: {description: IPv4 address in a subnet of the network that has no DHCP range., type: str, required: true}
      name: {description: "Hostname of the guest, for the DNS server of the network.", type: str, default: ""}
requirements:
  - iproute2 with O(networks[].manage=true)
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
      description: Type of the network, V(network) or V(bridge).
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
      description: Whether this task defined the network.
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

from ansible_collections.bootflow.compute.plugins.module_utils.core.networks.names import FORWARDS
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import (
    LIBVIRT_ARGUMENTS,
    connect,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.dhcp import (
    RESERVATIONS_ARGUMENT,
    Reservation,
    reserve,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.networks import (
    NetworkSpec,
    ensure_network,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def network_spec(args):
    """A NetworkSpec from an element of the option networks."""
    return NetworkSpec(
        name=args["name"],
        type=args["type"],
        source=args["source"] or "",
        manage=args["manage"],
        forward=args["forward"],
        bridge=args["bridge"] or "",
        mtu=args["mtu"],
        subnets=tuple(args["subnets"]),
    )


def main():
    module = AnsibleModule(
        argument_spec={
            **TIME_LIMIT_ARGUMENTS,
            **LIBVIRT_ARGUMENTS,
            "networks": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "type": {"type": "str", "choices": ["network", "bridge"], "default": "network"},
                    "source": {"type": "str"},
                    "manage": {"type": "bool", "default": False},
                    "forward": {"type": "str", "choices": list(FORWARDS), "default": "none"},
                    "bridge": {"type": "str"},
                    "mtu": {"type": "int"},
                    "subnets": {"type": "list", "elements": "dict", "default": []},
                },
            },
            "reservations": RESERVATIONS_ARGUMENT,
        },
        supports_check_mode=True,
    )
    keep_time_limit(module)
    specs = [network_spec(args) for args in module.params["networks"]]
    wanted = [Reservation(**args) for args in module.params["reservations"]]
    try:
        with connect(module.params["libvirt_uri"], module.params["libvirt_timeout"]) as connection:
            # One after the other: libvirt chooses names of bridges, and two specs may mean the same network.
            results = run_batch(
                [(s.name, s) for s in specs], lambda s: ensure_network(connection, s, module.check_mode), workers=1
            )
            reserved = run_batch(
                [(each.mac, each) for each in wanted],
                lambda each: {"changed": reserve(connection, each, module.check_mode, replace=False)},
                workers=1,
            )
    except Exception as error:
        fail(module, error)
    diff = [result.pop("diff") for result in results.values() if "diff" in result]
    module.exit_json(changed=any_changed(results, reserved), outcomes=results, reservations=reserved, diff=diff)


if __name__ == "__main__":
    main()
