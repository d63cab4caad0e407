#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_delete
short_description: Delete volumes
version_added: "0.9.0"
description:
  - >-
    The phase V(begin) checks all volumes and marks them as deleting; a volume that is attached or has snapshots is
    rejected. Then M(bootflow.compute.storage_stage) wipes and removes them on their hosts, and the phase V(finish)
    reports the result.
  - >-
    A volume that never got a backend is deleted immediately. A volume that could not be removed stays in the ledger.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller, bootflow.compute.volume_selection]
attributes:
  diff_mode: {support: full}
options:
  all:
    description: All volumes of the O(project). Read from the variable C(bootflow_volume_delete_all), else false.
    type: bool
  cascade:
    description: Delete their snapshots with them. Read from the variable C(bootflow_volume_cascade), else false.
    type: bool
  force:
    description: Delete volumes in any status, unless they are attached. Read from the variable C(bootflow_volume_force), else false.
    type: bool
  unmanage:
    description:
      - >-
        Remove the volumes, and with O(cascade) their snapshots, from the ledger only. Their data stays on the storage hosts.
        Use this for a storage host that is permanently lost. Read from the variable C(bootflow_volume_unmanage), else false.
      - The same volumes are rejected as in a deletion. Pending removals of exports on a storage host that is not in the inventory count as done.
    type: bool
  phase:
    description: V(begin) marks the volumes, V(finish) reports the result.
    type: str
    choices: [begin, finish]
    default: begin
  missing_ok:
    description: What is named and does not exist is not an error. Read from the variable C(bootflow_missing_ok), else false.
    type: bool
  print_table:
    description: Print deleted volumes, in check mode the volumes to delete, and missing names. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Mark volumes as deleting
  bootflow.compute.volume_delete:
    volume_names: [data]
  register: bootflow_next

- name: Report the result
  bootflow.compute.volume_delete:
    phase: finish

- name: Remove a volume of a lost storage host from the ledger
  bootflow.compute.volume_delete:
    volume_names: [data]
    unmanage: true
"""

RETURN = r"""
---
volumes:
  description: The volumes that are to go, with C(name), C(id), C(pool_host) and C(snapshots) (names of the snapshots that go with them).
  type: list
  elements: dict
  returned: in the phase begin
not_found:
  description: Names and ids without a volume.
  type: list
  elements: str
  returned: in the phase begin
storage:
  description: Storage hosts with volumes to remove; empty in check mode.
  type: list
  elements: str
  returned: in the phase begin
deleted:
  description: The deleted volumes.
  type: list
  elements: dict
  returned: in the phase finish
left:
  description: The volumes that could not be removed.
  type: list
  elements: dict
  returned: in the phase finish
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
