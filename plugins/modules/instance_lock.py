#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_lock
short_description: Lock and unlock instances
version_added: "0.9.0"
description:
  - While an instance is locked, every operation on it of another user is refused, C(InstanceIsLocked), and so is its delete. The user who locked it passes.
  - The user is the person behind a job template of AWX, the variable C(bootflow_actor), or the one who runs ansible-playbook.
  - Either all of the selected instances are locked, or the task fails and none is. No host is contacted.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.instance_selection
  - bootflow.compute.shared.controller
attributes:
  diff_mode: {support: full}
options:
  state:
    description: V(locked) locks the instances for this user, V(unlocked) unlocks them.
    type: str
    choices: [locked, unlocked]
    required: true
  hosts:
    description: Instances on these compute hosts. Read from the variable C(bootflow_host).
    type: list
    elements: str
  all:
    description: With O(project) alone, all of the project's instances. Read from the variable C(bootflow_all), else false.
    type: bool
  reason:
    description:
      - Why they are locked, at most 255 characters. Refused users see the reason. Another one replaces the reason of an instance that this user has locked.
      - Read from the variable C(bootflow_locked_reason).
    type: str
  override:
    description:
      - With O(state=unlocked), unlock also what another user locked. Otherwise that is an error.
      - Read from the variable C(bootflow_unlock_override), else false.
    type: bool
  print_table:
    description: Print the locks. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Lock the database server
  bootflow.compute.instance_lock:
    names: [db]
    state: locked
    reason: not before the backup has ended
"""

RETURN = r"""
---
instances:
  description: The instances that were, or in check mode would be, locked or unlocked.
  type: list
  elements: dict
  returned: success
  contains:
    name:
      description: Name of the instance.
      type: str
      returned: always
    uuid:
      description: UUID of the instance.
      type: str
      returned: always
    host:
      description: Its compute host.
      type: str
      returned: always
    locked_by:
      description: The user who locked it; null once it is unlocked.
      type: str
      returned: always
    locked_reason:
      description: Why; null if none was given.
      type: str
      returned: always
unchanged:
  description: Selected instances that were so already, with the same fields.
  type: list
  elements: dict
  returned: success
"""
