#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_live_intervene
short_description: End live migrations of another run, or have them complete
version_added: "0.9.0"
description:
  - One step of the playbooks C(live_migration_abort) and C(live_migration_force_complete).
  - An aborted migration leaves the guest where it is. One that is forced to complete pauses the guest until it is on its new host, or lets its memory follow it
    where C(bootflow_live_migration_permit_post_copy) says so.
  - The run that migrates the instances sees the end of it, and writes it.
  - The migration of each selected instance must be C(running), or the task fails and nothing is done.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.instance_selection
attributes:
  check_mode:
    support: full
    details: States are checked. The hosts tell how far the migrations are, and do nothing about them.
  diff_mode: {support: none, details: What changes is the run's that migrates the instances.}
options:
  operation:
    description: What is done.
    type: str
    choices: [live_migration_abort, live_migration_force_complete]
    required: true
  phase:
    description: Which step. V(work) runs on compute hosts, the others on the controller.
    type: str
    choices: [begin, work, finish]
    default: begin
  hosts:
    description: Instances on these compute hosts. Read from the variable C(bootflow_host).
    type: list
    elements: str
  all:
    description: With O(project) alone, all of the project's instances. Read from the variable C(bootflow_all), else false.
    type: bool
  print_table:
    description: Print what was done. Read from the variable C(bootflow_print_table), else true.
    type: bool
notes:
  - Runs on the controller, inside the ansible-playbook process. On the hosts it runs M(bootflow.compute.domain_migration).
  - Each step leaves its results for the next ones in the folder of this ansible-playbook process. The hosts of the next play are the result that
    the playbook registers as C(bootflow_next).
seealso:
  - module: bootflow.compute.instance_live_migrate
"""

EXAMPLES = r"""
---
- name: Let an instance stay where it is
  bootflow.compute.instance_live_intervene:
    operation: live_migration_abort
    names: [web-1]
  register: bootflow_next
"""

RETURN = r"""
---
sources:
  description: Hosts that instances leave, in the next plays.
  type: list
  elements: str
  returned: O(phase=begin)
instances:
  description: The instances whose migrations are ended or completed.
  type: list
  elements: dict
  returned: O(phase=finish)
  contains:
    name:
      description: Name of the instance.
      type: str
      returned: always
    uuid:
      description: UUID of the instance.
      type: str
      returned: always
    source:
      description: The host that it leaves.
      type: str
      returned: always
    destination:
      description: The host that it goes to.
      type: str
      returned: always
    total:
      description: Bytes that its migration has to copy, at that moment; null if its host did not say.
      type: int
      returned: always
    remaining:
      description: Bytes of these that were not copied yet; null if its host did not say.
      type: int
      returned: always
    error:
      description: Why it failed, with C(code), C(status), C(message), C(remedy) and C(retryable); otherwise null.
      type: dict
      returned: always
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
