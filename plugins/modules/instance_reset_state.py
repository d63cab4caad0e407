#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_reset_state
short_description: Write the vm_state of instances
version_added: "0.9.0"
description:
  - Resets the state of instances whose host is lost. A C(paused), C(suspended) or C(rescued) one is C(error)
    then, from where an evacuation, a rebuild or a hard reboot leads on; what its guest had in memory is lost.
  - What a dead run was doing with it ends in the journal. A move of a dead run is settled first, which takes that the host is forced down.
  - Refused are instances that a live run works on, that are built, deleted, or C(resized), and instances that may be on either of two hosts.
    A lock does not prevent it, as in Nova.
  - Either all of the selected instances get the state, or the task fails and none does. No host is contacted.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.instance_selection
  - bootflow.compute.shared.controller
attributes:
  diff_mode: {support: full}
options:
  hosts:
    description: Instances on these compute hosts. Read from the variable C(bootflow_host).
    type: list
    elements: str
  all:
    description: With O(project) alone, all of the project's instances. Read from the variable C(bootflow_all), else false.
    type: bool
  state:
    description:
      - The vm_state that they get. With V(active), make sure that their guests run; the next report of their host stops instances whose guests do not.
      - Read from the variable C(bootflow_reset_state), else V(error).
    type: str
    choices: [error, active]
  quotas:
    description: What projects may have, which a soft-deleted instance counts for again. Read from the variable C(bootflow_quotas), else unlimited.
    type: dict
  print_table:
    description: Print the states. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Let a suspended instance leave its dead host
  bootflow.compute.instance_reset_state:
    names: [db]
"""

RETURN = r"""
---
instances:
  description: The instances that got, or in check mode would get, the state.
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
    before:
      description: Its vm_state before.
      type: str
      returned: always
    vm_state:
      description: Its vm_state now.
      type: str
      returned: always
unchanged:
  description: Selected instances that were so already, with the same fields.
  type: list
  elements: dict
  returned: success
"""
