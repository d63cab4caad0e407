#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: port_update
short_description: Change ports
version_added: "0.9.0"
description:
  - Changes ports that M(bootflow.compute.port_create) made, all or none. Fields that are not given stay.
  - The MAC address and the fixed addresses change only while no instance has the port (C(PortInUse)).
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
attributes:
  check_mode: {support: full, details: "The request runs through the same transaction, which is rolled back."}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  ports:
    description:
      - List of C(port) (name or id), and one or more of C(name), C(mac_address), C(fixed_ips), C(tags), C(security_groups),
        C(allowed_address_pairs) and C(port_security_enabled), see M(bootflow.compute.port_create).
      - The last three also change while an instance has the port, and alone also of ports that boots made, named by their ids.
      - Addresses of C(fixed_ips) that the port has are kept, the others are freed.
      - Read from the variable C(bootflow_ports).
    type: list
    elements: raw
    required: true
  networks:
    description:
      - The networks of the inventory, as a list of mappings or a mapping keyed by name.
      - Read from the variable C(bootflow_networks).
    type: raw
  project:
    description:
      - Project of the ports that are named.
      - Read from the variable C(bootflow_project).
    type: str
  print_table:
    description: Print the result, or in check mode what would be done. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Give a port another address
  bootflow.compute.port_update:
    ports:
      - port: web-front
        fixed_ips:
          - ip_address: 192.0.2.111
"""

RETURN = r"""
---
updated:
  description: Ids of changed ports.
  type: list
  elements: str
  returned: success
unchanged:
  description: Ids of ports that are as requested.
  type: list
  elements: str
  returned: success
ports:
  description: The named ports, as M(bootflow.compute.port_info) returns them.
  type: list
  elements: dict
  returned: success
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
"""
