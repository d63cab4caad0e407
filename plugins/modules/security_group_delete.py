#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: security_group_delete
short_description: Delete security groups
version_added: "0.9.0"
description:
  - Deletes security groups that no port has, all or none, with their rules and the rules of other groups that name them.
  - The group C(default) of a project is never deleted.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.security_group_selection
attributes:
  check_mode: {support: full, details: "The request runs through the same transaction, which is rolled back."}
  diff_mode: {support: full}
  idempotent: {support: partial, details: "With O(missing_ok)."}
options:
  missing_ok:
    description: Ignore names and ids that do not exist. Read from the variable C(bootflow_missing_ok), else false.
    type: bool
  print_table:
    description: Print the result, or in check mode what would be done. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Delete a group
  bootflow.compute.security_group_delete:
    security_group_names: [web]
"""

RETURN = r"""
---
deleted:
  description: The groups that are deleted, with C(id) and C(name).
  type: list
  elements: dict
  returned: success
not_found:
  description: Names and ids of which there is no group.
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
