#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: boot_passwords
short_description: Return the admin passwords of this run
version_added: "0.1.0"
description:
  - >-
    Returns the admin passwords that this run set in the instances it started. They are not stored in the ledger or
    in a log; only this run knows them.
  - >-
    Set C(no_log) on the task.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller, bootflow.compute.shared.user_data]
attributes:
  idempotent: {support: partial, details: A later run knows only the passwords that are part of the request.}
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
  description: Password of each instance, by its name.
  type: dict
  returned: success
"""
