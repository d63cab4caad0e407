#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: boot_passwords
short_description: Return the admin passwords of this run
version_added: "0.9.0"
description:
  - >-
    Returns the admin passwords of the instances that this run started. They are not stored in the ledger or in a log; only this run
    knows the passwords that it generated, and leaves them in O(admin_password_dir) on request.
  - >-
    Set C(no_log) on the task.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.shared.admin_passwords
attributes:
  idempotent: {support: partial, details: A later run knows only the passwords that are part of the request.}
options:
  uuids:
    description: UUIDs of instances. Only of these the passwords are returned; by default of all that this run started.
    type: list
    elements: str
  print_table:
    description: Print where the passwords were left. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Keep the passwords for the plays that follow
  bootflow.compute.boot_passwords:
  register: admin_passwords
  no_log: true
"""

RETURN = r"""
---
admin_passwords:
  description: The C(name), C(project) and C(password) of each instance, by its UUID.
  type: dict
  returned: success
  sample:
    2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b0001: {name: web-1, project: default, password: k7TdXqGm3RwZ}
"""
