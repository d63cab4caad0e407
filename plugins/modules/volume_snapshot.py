#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_snapshot
short_description: Create and delete snapshots of volumes
version_added: "0.9.0"
description:
  - >-
    The phase V(begin) checks all requested snapshots and writes them to the ledger. Then
    M(bootflow.compute.storage_stage) creates and removes them, and the phase V(finish) reports the result.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.volume
  - bootflow.compute.shared.storage_facts
attributes:
  check_mode: {support: full, details: "The request runs through the same transaction, which is rolled back."}
  diff_mode: {support: full}
options:
  snapshots:
    description:
      - The snapshots, each with C(name), C(volume) (name or id), C(description), C(metadata), C(force) (allow a volume in use) and
        C(state) (V(present) or V(absent)).
      - Read from the variable C(bootflow_snapshots).
    type: list
    elements: raw
    required: true
  phase:
    description: V(select) returns the storage hosts that should report first, V(begin) starts the work, V(finish) reports the result.
    type: str
    choices: [select, begin, finish]
    default: begin
  print_table:
    description: Print the result, or in check mode what would be created and deleted. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Begin to create one snapshot and to delete another
  bootflow.compute.volume_snapshot:
    snapshots:
      - name: before-upgrade
        volume: data
      - name: old
        volume: data
        state: absent

- name: Report the result
  bootflow.compute.volume_snapshot:
    phase: finish
"""

RETURN = r"""
---
created:
  description: Ids of new snapshots.
  type: list
  elements: str
  returned: in the phase begin
resumed:
  description: Ids of snapshots taken over from a dead run or created again after an error.
  type: list
  elements: str
  returned: in the phase begin
deleting:
  description: Ids of snapshots to delete.
  type: list
  elements: str
  returned: in the phase begin
unchanged:
  description: Ids of snapshots that already match the request.
  type: list
  elements: str
  returned: in the phase begin
storage:
  description: Storage hosts with work to do; empty in check mode.
  type: list
  elements: str
  returned: in the phase begin
snapshots:
  description: Snapshots that were created or removed.
  type: list
  elements: dict
  returned: in the phase finish
left:
  description: Snapshots that did not reach the requested state.
  type: list
  elements: dict
  returned: in the phase finish
ask:
  description: Storage hosts that should report first.
  type: list
  elements: str
  returned: in the phase select
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
