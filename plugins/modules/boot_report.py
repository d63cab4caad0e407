#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: boot_report
short_description: Report the result of a boot
version_added: "0.9.0"
description:
  - >-
    Last task of a boot. Prints the table of instances, leaves the admin passwords of the guests that this run started in O(admin_password_dir), and fails
    with a summary if one of them is not ACTIVE.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.shared.statistics
  - bootflow.compute.shared.admin_passwords
options:
  uuids:
    description: The instances to report. By default the instances of the request that M(bootflow.compute.boot_accept) accepted in this run.
    type: list
    elements: str
  follow_file:
    description:
      - Without O(uuids), report only instances that this run started.
      - Read from the variable C(bootflow_follow_file), which the playbook apply sets, else false.
    type: bool
  phase:
    description:
      - V(report) ends in ERROR what no round could build, and tells what became of everything. V(end) does the first alone, so that the storage hosts
        that RV(storage) names can undo what is left there before the report. V(report_if_finished) reports if no build of this run
        is left, and otherwise only says so with RV(unfinished).
    type: str
    choices: [end, report, report_if_finished]
    default: report
  max_attempts:
    description: How many hosts a build may be tried on. Read from the variable C(bootflow_max_attempts), else 3.
    type: int
  print_table:
    description: Print the table. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Report which instances are ACTIVE and where
  bootflow.compute.boot_report:
  register: bootflow_booted
"""

RETURN = r"""
---
instances:
  description:
    - The instances, with Nova's field names.
    - Of more than 1,000 that nothing in the run can read only some fields, see M(bootflow.compute.instance_info).
  type: list
  elements: dict
  returned: with O(phase=report), and O(phase=report_if_finished) if RV(unfinished) is false
  sample:
    - name: web-1
      uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
      vm_state: active
      task_state: null
      host: kvm1
      addresses: [10.77.0.10]
      seconds: 9.4
unfinished:
  description: Whether builds of this run are left, or work of hosts.
  type: bool
  returned: success
returns_passwords:
  description:
    - Whether M(bootflow.compute.boot_passwords) is to return the admin passwords, where C(bootflow_enable_instance_password) allows it.
    - The tasks of C(bootflow_hook_create_instance_post) can read them, and plays of other playbooks in the same run; otherwise they cannot be read.
  type: bool
  returned: if RV(unfinished) is false
volumes:
  description: Whether instances of the request have volumes.
  type: bool
  returned: if RV(unfinished), with O(phase=report_if_finished)
uuids:
  description: The instances that this run started, of which M(bootflow.compute.boot_passwords) returns the passwords.
  type: list
  elements: str
  returned: if RV(returns_passwords), without O(uuids)
storage:
  description: Storage hosts that have exports to end or volumes to delete, by M(bootflow.compute.storage_stage).
  type: list
  elements: str
  returned: with O(phase=end)
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
