#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_drain
short_description: Bring the instances of a compute host that is to be serviced to others
version_added: "0.9.0"
description:
  - The steps of the playbook C(drain) around the steps of C(migrate) and C(confirm_resize). O(phase=begin) disables the host and says which of its instances
    can be migrated, O(phase=ask) which hosts are to report before what earlier runs migrated is confirmed, O(phase=moved) which migrations away from it are to
    be confirmed, O(phase=finish) what the host still has.
  - A migration that left the host is confirmed, also one that was begun otherwise; a resize is not. An instance whose guest should run at its new host and does
    not is left to be confirmed or reverted.
  - An instance that cannot be migrated does not stop the others. O(phase=finish) fails as long as the host has something of an instance.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.scheduler
attributes:
  check_mode:
    support: full
    details: The plan is made in a transaction that is rolled back. No host does anything. The variable C(bootflow_plan_out) has it written to a file,
      and its hosts held.
  diff_mode: {support: full}
options:
  phase:
    description: Which step.
    type: str
    choices: [begin, ask, moved, finish]
    default: begin
  host:
    description: The compute host. Read from the variable C(bootflow_drain_host).
    type: str
    required: true
  live:
    description:
      - Whether guests that can move while they run do so. Read from the variable C(bootflow_drain_live), else true.
    type: bool
  pci_alias:
    description: The PCI devices that flavors may name. Read from the variable C(bootflow_pci_alias).
    type: raw
  quotas:
    description: What projects may have. Read from the variable C(bootflow_quotas), else unlimited.
    type: dict
  instance_overhead:
    description: What the hypervisor needs for each guest. Read from the variable C(bootflow_instance_overhead), else V({}).
    type: dict
  default_availability_zone:
    description: Availability zone of hosts that name none. Read from the variable C(bootflow_default_availability_zone), else V(nova).
    type: str
  print_table:
    description: Print the plan and the result. Read from the variable C(bootflow_print_table), else true.
    type: bool
notes:
  - Runs on the controller, inside the ansible-playbook process.
  - Each step leaves its results for the next ones in the folder of this ansible-playbook process. The hosts of the next play are the result that
    the playbook registers as C(bootflow_next).
seealso:
  - module: bootflow.compute.instance_live_migrate
  - module: bootflow.compute.instance_move
  - module: bootflow.compute.instance_confirm
  - module: bootflow.compute.compute_host_state
"""

EXAMPLES = r"""
---
- name: Give a host no new instances, and see what can leave it
  bootflow.compute.instance_drain:
    host: kvm3
  register: bootflow_drain_begun
"""

RETURN = r"""
---
ask:
  description: Compute hosts that are to report before the next stage.
  type: list
  elements: str
  returned: O(phase=ask)
live:
  description: The instances that can be migrated while their guests run, with C(name), C(uuid) and C(vm_state).
  type: list
  elements: dict
  returned: O(phase=begin)
live_uuids:
  description: UUIDs of these.
  type: list
  elements: str
  returned: O(phase=begin)
leaves:
  description: The instances that can be migrated while they are off, with C(name), C(uuid) and C(vm_state).
  type: list
  elements: dict
  returned: O(phase=begin)
stays:
  description: The instances that cannot, with C(name), C(uuid), C(vm_state) and C(error).
  type: list
  elements: dict
  returned: O(phase=begin)
uuids:
  description: UUIDs of the instances that are to be migrated, or confirmed.
  type: list
  elements: str
  returned: O(phase=begin) and O(phase=moved)
plan:
  description: Id of the plan that the drain uses, or wrote.
  type: str
  returned: O(phase=begin), if bootflow_plan or bootflow_plan_out is set
places:
  description: UUID to the host that the plan holds for the instance.
  type: dict
  returned: O(phase=begin), if bootflow_plan or bootflow_plan_out is set
plan_file:
  description: The file of the plan, with C(id), C(file), C(hash) and C(expires).
  type: dict
  returned: O(phase=begin) in check mode, if bootflow_plan_out is set
moved:
  description: The instances that left the host, with C(name), C(uuid) and C(vm_state). In check mode, the instances that would leave it.
  type: list
  elements: dict
  returned: O(phase=finish)
left:
  description: UUIDs of the instances that still have something on the host.
  type: list
  elements: str
  returned: O(phase=finish)
"""
