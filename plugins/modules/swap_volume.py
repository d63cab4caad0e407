#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: swap_volume
short_description: Replace volumes of running instances by others
version_added: "0.9.0"
description:
  - >-
    Reserves other volumes for instances in the place of volumes that they have, and reports the result at the end. In between,
    M(bootflow.compute.storage_stage) exports the new ones, and M(bootflow.compute.compute_attachments) has QEMU copy the old ones to them while the
    guests run. The playbook C(bootflow.compute.swap_volume) runs all of these steps.
  - An instance that has the new volume and not the old one stays unchanged.
  - The instance keeps the device name and C(delete_on_termination). The old volume is available afterwards.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.shared.volume_change
attributes:
  diff_mode: {support: full}
options:
  volume_swaps:
    description:
      - List of C(instance), C(old_volume), which it has, and C(new_volume), which it gets (name or UUID of each).
      - Read from the variable C(bootflow_volume_swaps).
    type: list
    elements: raw
    required: true
  cross_az_attach:
    description:
      - Whether a volume may be in another availability zone than the instance.
      - Read from the variable C(bootflow_cross_az_attach), else V(true).
    type: bool
"""

EXAMPLES = r"""
---
- name: Replace a volume of an instance
  bootflow.compute.swap_volume:
    volume_swaps:
      - instance: web-1
        old_volume: web-data
        new_volume: web-data-fast
    phase: begin
  register: bootflow_next
"""

RETURN = r"""
---
storage:
  description: Storage hosts with work to do, done by M(bootflow.compute.storage_stage).
  type: list
  elements: str
  returned: with O(phase=clean), O(phase=begin) and O(phase=undo)
compute:
  description: Compute hosts with work to do, done by M(bootflow.compute.compute_attachments).
  type: list
  elements: str
  returned: with O(phase=clean) and O(phase=begin)
done:
  description: Swaps that succeeded, with C(volume), the new one, C(instance) and C(device).
  type: list
  elements: dict
  returned: with O(phase=finish)
left:
  description: Swaps that failed, each with its error.
  type: list
  elements: dict
  returned: with O(phase=finish)
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
