#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: detach_volume
short_description: Detach volumes from instances
version_added: "0.9.0"
description:
  - >-
    Marks attachments as detaching, and reports the result at the end. In between, M(bootflow.compute.compute_attachments) removes
    the disks from the guests and disconnects the hosts, and M(bootflow.compute.storage_stage) removes the exports. The
    playbook C(bootflow.compute.detach_volume) runs all of these steps.
  - A volume that is not attached stays unchanged. The root volume of an instance cannot be detached.
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
      - List of C(volume) (name or UUID), and C(instance) (name or UUID) where the volume is attached to several.
      - Read from the variable C(bootflow_attachments).
"""

EXAMPLES = r"""
---
- name: Detach volumes from instances
  bootflow.compute.detach_volume:
    attachments:
      - volume: web-data
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
  description: Detached volumes, with C(volume), C(instance) and C(device).
  type: list
  elements: dict
  returned: with O(phase=finish)
left:
  description: Volumes that could not be detached, each with its error.
  type: list
  elements: dict
  returned: with O(phase=finish)
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
