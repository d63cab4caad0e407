#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_confirm
short_description: Confirm resized and migrated instances
version_added: "0.9.0"
description:
  - Instances that were resized or migrated stay where they are, with the flavor that they have. They are C(active) again, or C(stopped) if the guest is off.
  - What is left on the hosts that they left is entered as pending cleanups. The playbook C(confirm_resize) has these hosts clean up at once; one that does not
    answer does it with its next report, and keeps the claim until then.
  - States are checked as by Nova. If one of the selected instances cannot be confirmed, the task fails and none is.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.instance_selection]
attributes:
  check_mode: {support: full, details: The transaction is rolled back.}
  diff_mode: {support: full}
options:
  hosts:
    description: Instances on these compute hosts. Read from the variable C(bootflow_host).
    type: list
    elements: str
  all:
    description: With O(project) alone, all of the project's instances. Read from the variable C(bootflow_all), else false.
    type: bool
  window:
    description:
      - Without a selection, the instances of all projects that have waited for so many seconds. A lock does not prevent it.
      - Read from the variable C(bootflow_resize_confirm_window), else 0, which confirms none.
    type: int
  ask:
    description: Without a selection, where hosts are to report before what has waited long enough is confirmed, only name them (C(ask)), and confirm nothing.
    type: bool
    default: false
  print_table:
    description: Print what was done. Read from the variable C(bootflow_print_table), else true.
    type: bool
notes:
  - Runs on the controller, inside the ansible-playbook process.
seealso:
  - module: bootflow.compute.instance_move
"""

EXAMPLES = r"""
---
- name: Confirm the web servers
  bootflow.compute.instance_confirm:
    names: [web-1, web-2]
"""

RETURN = r"""
---
ask:
  description: The hosts that are to report first, see O(ask). Nothing was confirmed if there are some.
  type: list
  elements: str
  returned: success
instances:
  description: The confirmed instances.
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
    left:
      description: The host that it left.
      type: str
      returned: always
    vm_state:
      description: Its state now.
      type: str
      returned: always
unchanged:
  description: Instances that were confirmed before, with C(name), C(uuid) and C(host).
  type: list
  elements: dict
  returned: success
hosts:
  description: Hosts that are to be cleaned.
  type: list
  elements: str
  returned: success
"""
