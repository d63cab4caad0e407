#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: power_sync
short_description: Let the ledger follow the power states of the guests
version_added: "0.9.0"
description:
  - One step of the playbook C(power_sync), by Nova's rules. O(phase=begin) names the hosts, O(phase=ask) asks one of them for the states of its domains,
    O(phase=others) names hosts that are asked as well, as guests of a host that restarted may run there,
    O(phase=sync) writes what differs for all hosts in one transaction, and O(phase=finish) writes the outcomes of guests that had to be stopped or started.
  - The power state of each guest is written.
  - An instance that is active or paused, and whose guest is off, is stopped. An instance that is stopped, and whose guest has power, is stopped again on
    its host by M(bootflow.compute.instance_operation), and so is an active one whose guest suspended itself.
  - A guest that is paused, or that its host does not have, is only reported.
  - Instances with a task_state, and instances that were written after their host was asked, are left alone. A lock does not prevent it.
  - An active instance whose guest lost its power with a restart of its host is rebooted hard by M(bootflow.compute.instance_operation), unless the host's
    C(bootflow_resume_guests_state_on_host_boot) is false. Where that fails for good the instance is in error.
  - A stop that fails does not fail the task. The instance is what it was, with a fault, and the next sync tries again.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger]
attributes:
  check_mode: {support: full, details: The hosts are asked. Neither ledger nor hosts are written.}
options:
  phase:
    description: Which step. V(ask) runs on the compute hosts, the others on the controller.
    type: str
    choices: [begin, ask, others, sync, resume, finish]
    default: begin
  print_table:
    description: Print what was found and done. Read from the variable C(bootflow_print_table), else true.
    type: bool
notes:
  - Runs on the controller, inside the ansible-playbook process. With O(phase=ask) it runs M(bootflow.compute.domain_info) on the host.
  - Each step leaves its results for the next ones in the folder of this ansible-playbook process, O(phase=sync) and O(phase=resume) also for
    M(bootflow.compute.instance_operation). The hosts of the next play are the result that the playbook registers as C(bootflow_next).
seealso:
  - module: bootflow.compute.domain_info
  - module: bootflow.compute.instance_operation
"""

EXAMPLES = r"""
---
- name: Ask the host for the power states of its guests
  bootflow.compute.power_sync:
    phase: ask
"""

RETURN = r"""
---
compute:
  description: Compute hosts of the next play.
  type: list
  elements: str
  returned: O(phase=begin), O(phase=others), O(phase=sync) and O(phase=resume)
again:
  description: Whether O(phase=others), or O(phase=resume), has something to do.
  type: bool
  returned: O(phase=begin) and O(phase=sync)
instances:
  description: The instances whose guests were not as the ledger had them. In check mode, what would become of them.
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
    host:
      description: Its compute host.
      type: str
      returned: always
    vm_state_before:
      description: Its state in the ledger before.
      type: str
      returned: always
    power_state_before:
      description: The power state in the ledger before, Nova's number.
      type: int
      returned: always
    reported:
      description: The power state that its host reported.
      type: int
      returned: always
    action:
      description: What Nova's rules do, V(stop), or V(force_stop) for an instance that is not active, V(resume_state_on_host_boot) after a
        restart of the host; null for nothing.
      type: str
      returned: always
    reason:
      description: Why, in Nova's words; empty where only the power state was written.
      type: str
      returned: always
    vm_state:
      description: Its state now.
      type: str
      returned: always
    power_state:
      description: Its power state now.
      type: int
      returned: always
    forced:
      description: Whether the guest lost its power, as it had not shut down in time.
      type: bool
      returned: always
    error:
      description: Why it could not be stopped, with C(code), C(status), C(message), C(remedy) and C(retryable); otherwise null.
      type: dict
      returned: always
"""
