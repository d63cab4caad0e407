#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: incremental_backup_info
short_description: Read incremental backups from the ledger
version_added: "0.9.0"
description:
  - Returns the incremental backups of instances, also of deleted ones, by instance and time.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.backup_selection
  - bootflow.compute.ledger
  - bootflow.compute.ledger_reader
  - bootflow.compute.shared.controller
  - bootflow.compute.shared.run_limit
options:
  print_table:
    description: Print the result.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
- name: List the backups of an instance
  bootflow.compute.incremental_backup_info:
    names: [web-1]
  register: listed
"""

RETURN = r"""
---
backups:
  description:
    - The backups with C(id), C(instance) (its name), C(instance_uuid), C(project), C(kind) (full, incremental), C(parent_id), C(state) (running, complete,
      failed, deleting), C(reason) (why it is full), C(fault) (why it failed), C(host), C(path), C(size) (bytes of the file), C(virtual_size) (bytes of the
      disk), C(checksum) (sha256 of the file), C(created_at), C(finished_at), C(verified_at) (when it was read back last) and C(damage) (what was wrong then
      with its file, or with one that it needs).
  type: list
  elements: dict
  returned: success
"""
