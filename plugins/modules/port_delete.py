#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: port_delete
short_description: Delete ports
version_added: "0.9.0"
description:
  - Deletes ports that M(bootflow.compute.port_create) made, all or none, and frees their addresses.
  - A port that an instance has is refused (C(PortInUse)).
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.port_selection
attributes:
  check_mode: {support: full, details: "The request runs through the same transaction, which is rolled back."}
  diff_mode: {support: full}
  idempotent: {support: partial, details: "With O(missing_ok)."}
options:
  missing_ok:
    description: Ignore names and ids of ports that do not exist. Read from the variable C(bootflow_missing_ok), else false.
    type: bool
  networks:
    description:
      - The networks of the inventory, as a list of mappings or a mapping keyed by name.
      - Read from the variable C(bootflow_networks).
    type: raw
  print_table:
    description: Print the result, or in check mode what would be done. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Delete a port
  bootflow.compute.port_delete:
    port_names: [web-front]
"""

RETURN = r"""
---
deleted:
  description: The ports that are deleted, with C(id) and C(name).
  type: list
  elements: dict
  returned: success
not_found:
  description: Names and ids of which there is no port.
  type: list
  elements: str
  returned: success
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
"""
