#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: security_group_create
short_description: Create security groups
version_added: "0.9.0"
description:
  - Creates the security groups that the project lacks, all or none. A new group lets its members send everything and receive nothing.
  - A group of the same name is left alone if it is as requested.
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
      - List of C(name) (required, unique in its project) and C(description).
      - Read from the variable C(bootflow_security_groups).
    type: list
    elements: raw
    required: true
  project:
    description:
      - Project of the security groups.
      - Read from the variable C(bootflow_project), else V(default).
    type: str
  quotas:
    description:
      - Limits of projects; C(security_groups) and C(security_group_rules) count here.
      - Read from the variable C(bootflow_quotas).
    type: dict
  print_table:
    description: Print the result, or in check mode what would be done. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Create a group
  bootflow.compute.security_group_create:
    security_groups:
      - name: web
"""

RETURN = r"""
---
created:
  description: Ids of new groups.
  type: list
  elements: str
  returned: success
unchanged:
  description: Ids of groups that are as requested.
  type: list
  elements: str
  returned: success
security_groups:
  description: The requested groups. In check mode C(id) of new ones is null.
  type: list
  elements: dict
  returned: success
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
"""
