#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_extend
short_description: Extend volumes
version_added: "0.9.0"
description:
  - >-
    Checks size, status, quotas and the capacity of the backends, and marks the volumes as extending. Then
    M(bootflow.compute.storage_stage) extends them, also while they are attached.
  - >-
    A volume that already has the requested size stays unchanged. Volumes cannot shrink.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.volume
  - bootflow.compute.volume_scheduler
  - bootflow.compute.shared.storage_facts
attributes:
  check_mode: {support: full, details: "The request runs through the same transaction, which is rolled back."}
  diff_mode: {support: full}
options:
  volumes:
    description:
      - The volumes, each with C(name) or C(id), and C(size) in GiB. Other fields of M(bootflow.compute.volume_accept) are ignored;
        unknown fields are errors.
      - Read from the variable C(bootflow_volumes).
    type: list
    elements: raw
    required: true
  phase:
    description: V(select) returns the storage hosts that should report first, V(begin) starts the extension.
    type: str
    choices: [select, begin]
    default: begin
  print_table:
    description: Print what would be extended in check mode, or a line when there is nothing to do. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Begin to extend a volume
  bootflow.compute.volume_extend:
    volumes:
      - name: data
        size: 200
  register: bootflow_next
"""

RETURN = r"""
---
volumes:
  description: The volumes to extend, with C(name), C(id), C(pool_host), C(size) and C(new_size).
  type: list
  elements: dict
  returned: in the phase begin
unchanged:
  description: Ids of volumes that already have the requested size.
  type: list
  elements: str
  returned: in the phase begin
volume_ids:
  description: Ids of all these volumes, which M(bootflow.compute.volume_report) reports.
  type: list
  elements: str
  returned: in the phase begin
storage:
  description: Storage hosts with work to do; empty in check mode.
  type: list
  elements: str
  returned: in the phase begin
compute:
  description: Compute hosts whose guests have such a volume; empty in check mode.
  type: list
  elements: str
  returned: in the phase begin
ask:
  description: Storage hosts that should report first.
  type: list
  elements: str
  returned: in the phase select
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
"""
