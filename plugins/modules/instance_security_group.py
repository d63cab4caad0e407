#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_security_group
short_description: Give security groups to instances, and take them away
version_added: "0.9.0"
description:
  - All ports of an instance get or lose the groups of its project, whatever its state is. A running guest goes on.
  - Either all of the selected instances change, or the task fails and none does. No host is contacted; the playbook C(port_filters) brings the filters.
  - An instance with a port without port security cannot get a group, C(SecurityGroupCannotBeApplied).
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.instance_selection
  - bootflow.compute.shared.controller
attributes:
  check_mode: {support: full, details: "The request runs through the same transaction, which is rolled back."}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  state:
    description: V(present) gives the groups to the instances, V(absent) takes them away.
    type: str
    choices: [present, absent]
    required: true
  security_group_names:
    description: Names of the groups. Read from the variable C(bootflow_security_group_names).
    type: list
    elements: str
  security_group_ids:
    description: UUIDs of the groups. Read from the variable C(bootflow_security_group_ids).
    type: list
    elements: str
  hosts:
    description: Instances on these compute hosts. Read from the variable C(bootflow_host).
    type: list
    elements: str
  all:
    description: With O(project) alone, all of the project's instances. Read from the variable C(bootflow_all), else false.
    type: bool
  print_table:
    description: Print the groups. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Let the web servers be reached as the group web says
  bootflow.compute.instance_security_group:
    names: [web-1, web-2]
    security_group_names: [web]
    state: present
"""

RETURN = r"""
---
instances:
  description: The instances whose ports got or lost a group, or in check mode would.
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
    security_groups:
      description: Ids of the groups that its ports have now.
      type: list
      elements: str
      returned: always
unchanged:
  description: Selected instances that were so already, with the same fields.
  type: list
  elements: dict
  returned: success
"""
