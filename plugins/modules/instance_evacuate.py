#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_evacuate
short_description: Rebuild instances of a dead host on other hosts
version_added: "0.9.0"
description:
  - One step of an evacuation, for many instances. The playbook C(evacuate) runs the steps.
  - The host of the instances must be forced down, as Nova demands it (C(ComputeServiceInUse), 409). Make sure that it is off before, or its guests run twice.
  - Hosts are chosen and claimed as for a boot. In the same transaction an instance moves to its target host, and the old host owes a cleanup, which it does
    before it takes anything, when it answers again. Until then its claim there stays.
  - Local disks are made again from the instance's image; their content is lost. UUID, name and addresses stay. Volumes go along. Instances with whole
    disks are refused.
  - An instance that fails on its new host is back on the old one, in the state that it had. If the old one was cleaned of it meanwhile, it is C(error) on
    the new one.
  - States are checked as by Nova. If one of the selected instances is in a state that does not allow it, is locked, or is being worked on by another run, the
    task fails and no instance is touched. An instance for which there is no host fails alone.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.scheduler
  - bootflow.compute.instance_selection
attributes:
  check_mode: {support: full, details: Hosts are chosen in a transaction that is rolled back. No host is contacted.}
  diff_mode: {support: full}
options:
  phase:
    description: Which step. V(build) runs on compute hosts, the others on the controller.
    type: str
    choices: [check, begin, build, finish]
    default: begin
  hosts:
    description: Instances on these compute hosts. Read from the variable C(bootflow_host).
    type: list
    elements: str
  all:
    description: With O(project) alone, all of the project's instances. Read from the variable C(bootflow_all), else false.
    type: bool
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
  - Runs on the controller, inside the ansible-playbook process. On the new hosts it runs what a boot runs, and M(bootflow.compute.instance_cleanup) after a
    failure.
  - Reads the variables C(bootflow_images), C(bootflow_pci_alias), C(bootflow_allow_zero_disk_flavor) and C(bootflow_instances), which has the user data.
  - Each step leaves its results for the next ones in the folder of this ansible-playbook process. The hosts of the next play are the result that
    the playbook registers as C(bootflow_next).
  - Between O(phase=begin) and O(phase=build), storage hosts cut the old hosts off from the volumes, and export them to the new ones
    (M(bootflow.compute.storage_stage)). An instance whose volumes a storage host did not cut off fails, and stays where it is.
seealso:
  - module: bootflow.compute.compute_host_state
"""

EXAMPLES = r"""
---
- name: Check the instances of a dead host, and name the hosts that have to report first
  bootflow.compute.instance_evacuate:
    phase: check
    hosts: [kvm3]
  register: bootflow_next
"""

RETURN = r"""
---
ask:
  description: Compute hosts that are to report before the next stage.
  type: list
  elements: str
  returned: O(phase=check)
compute:
  description: Compute hosts of the next play.
  type: list
  elements: str
  returned: O(phase=begin)
storage:
  description: Storage hosts of the next play.
  type: list
  elements: str
  returned: O(phase=begin)
images:
  description: Hosts of the play that brings images of the stores of hosts, if there are some.
  type: list
  elements: str
  returned: O(phase=begin)
lacking:
  description: The file that is there once a host of that play lacks an image.
  type: str
  returned: O(phase=begin)
uuids:
  description: UUIDs of the instances of the operation.
  type: list
  elements: str
  returned: O(phase=begin)
instances:
  description: The instances that have a new host.
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
      description: The host that it was on.
      type: str
      returned: always
    destination:
      description: The host that was chosen.
      type: str
      returned: always
    host:
      description: The host that it is on.
      type: str
      returned: always
    vm_state:
      description: Its state, after O(phase=finish) that now, in check mode the one that it would have.
      type: str
      returned: always
    power_state:
      description: Nova's number for what its new host says of the guest.
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
