#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: attach_volume
short_description: Attach volumes to instances
version_added: "0.9.0"
description:
  - >-
    Reserves volumes for existing instances, running or stopped, and reports the result at the end. In between,
    M(bootflow.compute.storage_stage) exports them and M(bootflow.compute.compute_attachments) attaches them to the guests. The
    playbook C(bootflow.compute.attach_volume) runs all of these steps.
  - A volume that is already attached to the instance stays unchanged.
  - A volume with C(multiattach) can be attached to several instances; only one run at a time changes its attachments.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.shared.attachments
  - bootflow.compute.shared.volume_change
attributes:
  diff_mode: {support: full}
options:
  attachments:
    description:
      - List of C(instance) and C(volume) (name or UUID of each), C(device) (a name such as V(/dev/vdb); by default the next free one),
        C(mode) (V(rw) or V(ro)), C(delete_on_termination), C(disk_bus) and C(tag).
      - Read from the variable C(bootflow_attachments).
  cross_az_attach:
    description:
      - Whether a volume may be in another availability zone than the instance.
      - Read from the variable C(bootflow_cross_az_attach), else V(true).
    type: bool
"""

EXAMPLES = r"""
---
- name: Attach volumes to instances
  bootflow.compute.attach_volume:
    attachments:
      - instance: web-1
        volume: web-data
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
  description: Attachments that succeeded, with C(volume), C(instance) and C(device).
  type: list
  elements: dict
  returned: with O(phase=finish)
left:
  description: Attachments that failed, each with its error.
  type: list
  elements: dict
  returned: with O(phase=finish)
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
