#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_move
short_description: Resize and migrate instances, and bring them back
version_added: "0.9.0"
description:
  - One step of a resize, a cold migration, or the revert of one, for many instances. The playbooks C(resize), C(migrate) and C(revert_resize) run the steps.
  - Hosts are chosen and claimed as for a boot; the host that an instance leaves stays claimed until the move is confirmed or reverted. Disks go from host to
    host by TLS, with a key and tokens that are made for this run. The instance moves when all of its disks have arrived, in one transaction.
  - A resize asks of the image what a boot asks, and reads the variable C(bootflow_allow_zero_disk_flavor).
  - Volumes are not copied. The host that an instance leaves disconnects before the storage host exports them to the next one.
  - An instance that fails before that is where it was, and is started again. One that fails afterwards is brought back when its new host has nothing of it.
  - States are checked as by Nova. If one of the selected instances is in a state that does not allow the move, is locked, cannot be moved, or is being
    worked on by another run, the task fails and no instance is touched. An instance for which there is no host fails alone.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.scheduler
  - bootflow.compute.instance_selection
attributes:
  check_mode:
    support: full
    details: Hosts are chosen in a transaction that is rolled back, by what they reported. No host does anything. The variable C(bootflow_plan_out) has
      the plan written to a file, and its hosts held.
  diff_mode: {support: full}
options:
  operation:
    description: What is done.
    type: str
    choices: [resize, migrate, revert_resize]
    required: true
  phase:
    description:
      - Which step. V(depart), V(arrive), V(settle) and V(return) run on compute hosts, the others on the controller.
    type: str
    choices: [check, begin, depart, arrive, switch, settle, back, return, finish]
    default: begin
  flavor:
    description: The new flavor, with O(operation=resize). Read from the variable C(bootflow_resize_flavor).
    type: str
  follow_file:
    description:
      - With O(operation=resize), the instances get the flavors that the playbook apply has planned, instead of O(flavor).
      - Read from the variable C(bootflow_follow_file), which the playbook apply sets, else false.
    type: bool
  hosts:
    description: Instances on these compute hosts. Read from the variable C(bootflow_host).
    type: list
    elements: str
  all:
    description: With O(project) alone, all of the project's instances. Read from the variable C(bootflow_all), else false.
    type: bool
  flavors:
    description: The flavors of the catalogue. Read from the variable C(bootflow_flavors).
    type: raw
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
  facts_max_age:
    description:
      - With O(phase=check), hosts whose last report is older than this many seconds, or than half of O(service_down_time), are listed.
      - Read from the variable C(bootflow_facts_max_age), else 300.
    type: int
  print_table:
    description: Print what was done. Read from the variable C(bootflow_print_table), else true.
    type: bool
notes:
  - Runs on the controller, inside the ansible-playbook process. On the hosts it runs M(bootflow.compute.domain_power),
    M(bootflow.compute.instance_disks_offer), M(bootflow.compute.instance_disks_fetch), M(bootflow.compute.instance_build) and
    M(bootflow.compute.instance_cleanup).
  - Each step leaves its results for the next ones in the folder of this ansible-playbook process. The hosts of the next play are the result that
    the playbook registers as C(bootflow_next).
seealso:
  - module: bootflow.compute.instance_confirm
"""

EXAMPLES = r"""
---
- name: Begin to migrate the web servers
  bootflow.compute.instance_move:
    operation: migrate
    phase: begin
    names: [web-1, web-2]
  register: bootflow_next
"""

RETURN = r"""
---
ask:
  description: Compute hosts that are to report before the next stage.
  type: list
  elements: str
  returned: O(phase=check) and O(phase=begin)
sources:
  description: Hosts that instances leave, in the next plays.
  type: list
  elements: str
  returned: O(phase=begin)
destinations:
  description: Hosts that instances go to, in the next plays.
  type: list
  elements: str
  returned: O(phase=begin)
compute:
  description: Compute hosts of the next play.
  type: list
  elements: str
  returned: O(phase=switch) and O(phase=back)
storage:
  description: Storage hosts of the next play.
  type: list
  elements: str
  returned: O(phase=switch) and O(phase=back)
plan_file:
  description: The file of the plan, with C(id), C(file), C(hash) and C(expires).
  type: dict
  returned: O(phase=begin) in check mode, if bootflow_plan_out is set and everything fits
instances:
  description: The instances that move.
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
      description: The host that it leaves, or returns to.
      type: str
      returned: always
    destination:
      description: The host that it goes to, or comes back from.
      type: str
      returned: always
    host:
      description: The host where it is.
      type: str
      returned: always
    vm_state:
      description: Its state now; before O(phase=finish) the former one.
      type: str
      returned: always
    power_state:
      description: Nova's number for what its host reports of the guest.
      type: int
      returned: always
    disk_changes:
      description: What becomes of its local disks, a text for each, as V(disk.eph0 1 GiB -> 2 GiB), or V(disk.swap none -> 64 MiB).
      type: list
      elements: str
      returned: always
    flavor_change:
      description: The flavors that it has before and after, as V(flavor small -> large); empty where it keeps its own.
      type: str
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
