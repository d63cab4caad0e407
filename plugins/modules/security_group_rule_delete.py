#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: security_group_rule_delete
short_description: Delete rules of security groups
version_added: "0.9.0"
description:
  - Deletes rules of security groups, all or none.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
attributes:
  check_mode: {support: full, details: "The request runs through the same transaction, which is rolled back."}
  diff_mode: {support: full}
  idempotent: {support: partial, details: "With O(missing_ok)."}
options:
  security_group_rule_ids:
    description: UUIDs of the rules. Read from the variable C(bootflow_security_group_rule_ids).
    type: list
    elements: str
    required: true
  project:
    description:
      - Only security groups of this project.
      - Read from the variable C(bootflow_project).
    type: str
  missing_ok:
    description: Ignore names and ids that do not exist. Read from the variable C(bootflow_missing_ok), else false.
    type: bool
  print_table:
    description: Print the result, or in check mode what would be done. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Delete a rule
  bootflow.compute.security_group_rule_delete:
    security_group_rule_ids: [0b9f2b5e-3f5c-4f60-9f3a-6a5c1b1f4a10]
"""

RETURN = r"""
---
deleted:
  description: Ids of the rules that are deleted.
  type: list
  elements: str
  returned: success
not_found:
  description: Ids of which there is no rule.
  type: list
  elements: str
  returned: success
hosts:
  description: Compute hosts whose packet filters follow the change.
  type: list
  elements: str
  returned: success
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
"""
