#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_delete
short_description: Delete instances
version_added: "0.9.0"
description:
  - >-
    O(phase=begin) marks the instances as deleting. Hosts then remove them with
    M(bootflow.compute.instance_remove), O(phase=removed) releases what they had there, and O(phase=finish) the rest.
  - >-
    Instances in any state can be deleted, also half-built ones. If one that is named does not exist, nothing is deleted, unless O(missing_ok).
  - >-
    With O(reclaim_instance_interval) an instance that ever ran is only soft-deleted: its guest is off and it can be restored, until O(operation=reclaim).
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.instance_selection
  - bootflow.compute.shared.run_limit
attributes:
  diff_mode: {support: full}
options:
  all:
    description: Delete all instances of the O(project), if no other condition is given. Read from the variable C(bootflow_delete_all), else false.
    type: bool
  hosts:
    description: Only instances on these compute hosts. Alone it selects none. Read from the variable C(bootflow_host).
    type: list
    elements: str
  operation:
    description:
      - V(delete) soft-deletes the selected instances where O(reclaim_instance_interval) is set, else deletes them. V(force_delete) deletes them at once.
      - V(reclaim) deletes instances that were soft-deleted longer than O(reclaim_instance_interval) ago, of all projects; conditions are not read.
    type: str
    choices: [delete, force_delete, reclaim]
    default: delete
  reclaim_instance_interval:
    description:
      - Seconds for which a deleted instance can be restored; V(0) deletes it at once, and reclaims nothing.
      - Read from the variable C(bootflow_reclaim_instance_interval), else 0.
    type: int
  phase:
    description:
      - V(begin) before the hosts work, V(removed) after the compute hosts, V(finish) after the storage hosts. V(removed) reads
        what V(begin) and the hosts left for it in the folder of this ansible-playbook process.
    type: str
    choices: [begin, removed, finish]
    default: begin
  force:
    description:
      - Delete also instances whose host does not answer; the host is cleaned up when it reports again.
      - Read from the variable C(bootflow_delete_force), else false.
    type: bool
  missing_ok:
    description: What is named and does not exist is not an error. Read from the variable C(bootflow_missing_ok), else false.
    type: bool
  print_table:
    description: Print what was deleted. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Mark the web servers as deleting
  bootflow.compute.instance_delete:
    names: [web-1, web-2]
  register: bootflow_next
"""

RETURN = r"""
---
compute:
  description: Compute hosts of the next play.
  type: list
  elements: str
  returned: O(phase=begin)
again:
  description: Whether storage hosts may have work to do.
  type: bool
  returned: O(phase=begin)
soft_deleted:
  description: Names of the instances that are off and can be restored.
  type: list
  elements: str
  returned: O(phase=finish)
deleted:
  description: Names of the deleted instances.
  type: list
  elements: str
  returned: O(phase=finish)
left:
  description: Instances that could not be removed, each with its error.
  type: list
  elements: dict
  returned: O(phase=finish)
volumes_left:
  description: The volumes that were to be deleted with the deleted instances and are there still, each with its C(status) and C(fault).
  type: list
  elements: dict
  returned: O(phase=finish)
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
