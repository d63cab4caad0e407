#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: port_info
short_description: Read ports from the ledger
version_added: "0.9.0"
description:
  - Returns ports with their addresses, both ports of projects and ports that boots made for their instances.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.ledger_reader
  - bootflow.compute.shared.controller
  - bootflow.compute.shared.run_limit
  - bootflow.compute.port_selection
options:
  details:
    description:
      - Each name or id must be that of a port (C(PortNotFound)).
      - With O(print_table), everything about each port is printed.
    type: bool
    default: false
  networks:
    description:
      - The networks of the inventory, as a list of mappings or a mapping keyed by name.
      - Read from the variable C(bootflow_networks).
    type: raw
  print_table:
    description: Print the result.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
- name: List the ports of a project
  bootflow.compute.port_info:
    project: red
  register: listed

- name: Read one port
  bootflow.compute.port_info:
    port_names: [web-front]
    details: true
  register: shown
"""

RETURN = r"""
---
ports:
  description:
    - The ports with C(id), C(name), C(project), C(network_id), C(network) (its name in the inventory), C(mac_address), C(fixed_ips) (each
      C(subnet_id) and C(ip_address)), C(tags), C(instance_uuid) and C(instance) (that has the port), C(host) (to which it is bound), C(tag) (of
      the device) and C(created_at).
    - C(security_groups) (ids), C(allowed_address_pairs) and C(port_security_enabled) say what hosts let through.
    - C(preserve_on_delete) is true of ports that M(bootflow.compute.port_create) made. The others are deleted with their instance.
  type: list
  elements: dict
  returned: success
"""
