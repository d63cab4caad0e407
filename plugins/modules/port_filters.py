#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: port_filters
short_description: Filter the ports of the guests of a host
version_added: "0.9.0"
description:
  - Writes the security groups and the addresses of all ports of a host as C(table bridge bootflow) of nftables, loads it in one transaction, and keeps it
    in a file that C(bootflow-firewall.service) loads when the host starts, before libvirt.
  - The document is the whole state of the host, not a difference. Ports that it does not name are not filtered.
  - A guest sends only with the MAC and IP addresses of its port, in ARP and neighbour discovery, too. It cannot act as a DHCP server or a router. Tagged
    frames and protocols other than ARP, IPv4 and IPv6 are dropped.
  - Then the rules of its security groups decide, for what it sends and for what it gets, from and to the host, too.
  - When a rule or a membership ends, the connections that it allowed end.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.shared.ledger_id
  - bootflow.compute.shared.time_limit
attributes:
  diff_mode: {support: full}
  platform: {platforms: linux}
options:
  document:
    description:
      - The ports and security groups of the host, with C(version), C(revision), C(ports) and C(groups).
      - It is checked before anything is changed.
    type: dict
    required: true
  folder:
    description: Absolute path of the directory with the file. It has to belong to root alone, and is made if it is missing.
    type: path
    default: /var/lib/bootflow-firewall
requirements:
  - nftables 1.0.6 or later
  - A kernel with connection tracking on bridges (C(nf_conntrack_bridge))
"""

EXAMPLES = r"""
---
- name: Let one guest be pinged, and no more
  bootflow.compute.port_filters:
    document:
      version: 1
      revision: 7
      ports:
        - port_id: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
          instance: 6b1d9f0a-1d0e-4c53-9a43-6ecf3c2f9a52
          device: tap2f4c1c0e-6a
          mac: fa:16:3e:0a:0b:0c
          addresses: [10.20.0.17]
          port_security_enabled: true
          groups: [0d9a7c1e-6a3c-4b0f-8a3e-54f0a5c1d2b3]
      groups:
        0d9a7c1e-6a3c-4b0f-8a3e-54f0a5c1d2b3:
          rules:
            - {direction: ingress, ethertype: IPv4, protocol: icmp}
"""

RETURN = r"""
---
superseded:
  description: Whether the host has filters of a later revision of the same ledger, which stay.
  type: bool
  returned: success
revision:
  description: Revision of the filters that the host has.
  type: int
  returned: success
present:
  description: IDs of the ports whose devices the host has at this moment.
  type: list
  elements: str
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.core.firewall.document import read_filters
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.firewall.port_filters import FOLDER, apply_filters
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    return {
        **TIME_LIMIT_ARGUMENTS,
        "document": {"type": "dict", "required": True},
        "folder": {"type": "path", "default": FOLDER},
        "ledger_id": {"type": "str", "default": ""},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        filters = read_filters(args["document"])
        result = apply_filters(filters, args["ledger_id"], args["folder"], module.check_mode)
    except Exception as error:
        fail(module, error)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
