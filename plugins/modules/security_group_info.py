#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: security_group_info
short_description: Read security groups from the ledger
version_added: "0.9.0"
description:
  - Returns security groups with their rules.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.ledger_reader
  - bootflow.compute.shared.controller
  - bootflow.compute.shared.run_limit
  - bootflow.compute.security_group_selection
options:
  details:
    description:
      - Each name or id must be that of a group (C(SecurityGroupNotFound)).
      - With O(print_table), all rules of each group are printed.
    type: bool
    default: false
  print_table:
    description: Print the result.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
- name: Read one group
  bootflow.compute.security_group_info:
    security_group_names: [web]
    details: true
  register: shown
"""

RETURN = r"""
---
security_groups:
  description: The groups, each with C(security_group_rules).
  type: list
  elements: dict
  returned: success
"""
