#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: security_group_update
short_description: Change security groups
version_added: "0.9.0"
description:
  - Changes names and descriptions of security groups. The group C(default) of a project keeps its name.
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
  security_groups:
    description:
      - List of C(security_group) (name or id), and the new C(name) and C(description).
      - Read from the variable C(bootflow_security_groups).
    type: list
    elements: raw
    required: true
  project:
    description:
      - Only security groups of this project.
      - Read from the variable C(bootflow_project).
    type: str
  print_table:
    description: Print the result, or in check mode what would be done. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Describe a group
  bootflow.compute.security_group_update:
    security_groups:
      - security_group: web
        description: Web servers
"""

RETURN = r"""
---
updated:
  description: Ids of changed groups.
  type: list
  elements: str
  returned: success
unchanged:
  description: Ids of groups that are as requested.
  type: list
  elements: str
  returned: success
security_groups:
  description: The groups.
  type: list
  elements: dict
  returned: success
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
"""
