#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_live_migrate
short_description: Move instances to other hosts while their guests run
version_added: "0.9.0"
description:
  - One step of a live migration of many instances. The playbook C(live_migrate) runs the steps.
  - Hosts are chosen and claimed as for a boot, or O(to_host) is. Before anything is touched there, CPU and versions are compared. libvirt migrates the guest;
    memory and disks go by TLS, with a key and tokens that are made for this run. The instance moves when its guest's migration completes, in one transaction.
  - Disks that are logical volumes, or files on one, are copied to such ones in the volume group of the new host.
  - Volumes are not copied. M(bootflow.compute.storage_stage) exports them to the new host, too, after O(phase=begin), which connects to them before the guest
    goes; and ends the exports to hosts without the guest after O(phase=clean).
  - Where a new host refuses the guest before anything of the guest is touched (its CPU, its versions, no room, or no answer), O(phase=again) ends that
    migration and claims another host, in one transaction. Up to O(max_attempts) hosts are tried; one that O(to_host) names is the only one.
  - An instance that fails runs on where it was, its new host is cleaned, and the claim there is given back. Where a host does not say whether the
    migration completed, nothing is written and nothing is removed, and the reports of both hosts settle it.
  - States are checked as by Nova. If one of the selected instances is in a state that does not allow it, is locked, cannot be moved while it runs, or is
    being worked on by another run, the task fails and no instance is touched. An instance for which there is no host fails alone.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.scheduler
  - bootflow.compute.instance_selection
attributes:
  check_mode:
    support: full
    details: Hosts are chosen in a transaction that is rolled back, by what they reported. No host does anything.
  diff_mode: {support: full}
options:
  phase:
    description:
      - Which step. V(look), V(prepare), V(migrate), V(settle) and V(clean) run on compute hosts, the others on the controller.
    type: str
    choices: [check, begin, again, look, prepare, migrate, switch, settle, clean, finish]
    default: begin
  to_host:
    description:
      - The compute host that the instances go to. By default the scheduler chooses one for each.
      - Read from the variable C(bootflow_live_migrate_host).
    type: str
  to_hosts:
    description:
      - UUID of an instance to the compute host that it goes to, in place of O(to_host).
      - Read from the variable C(bootflow_live_migrate_hosts).
    type: dict
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
  - Runs on the controller, inside the ansible-playbook process. On the hosts it runs M(bootflow.compute.domain_migration),
    M(bootflow.compute.domain_info), M(bootflow.compute.virtual_network) and M(bootflow.compute.instance_cleanup).
  - Each step leaves its results for the next ones in the folder of this ansible-playbook process. The hosts of the next play are the result that
    the playbook registers as C(bootflow_next).
seealso:
  - module: bootflow.compute.instance_live_intervene
  - module: bootflow.compute.instance_move
"""

EXAMPLES = r"""
---
- name: Begin to migrate the web servers
  bootflow.compute.instance_live_migrate:
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
  returned: O(phase=check)
sources:
  description: Hosts that instances leave, in the next plays.
  type: list
  elements: str
  returned: O(phase=begin), O(phase=again) and O(phase=switch)
destinations:
  description: Hosts that instances go to, in the next plays.
  type: list
  elements: str
  returned: O(phase=begin), O(phase=again) and O(phase=switch)
storage:
  description: Storage hosts of the next play.
  type: list
  elements: str
  returned: O(phase=begin), O(phase=again) and O(phase=switch)
again:
  description: Whether O(phase=again) tries instances on other hosts.
  type: bool
  returned: O(phase=switch)
instances:
  description: The instances that move, in this round.
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
    host:
      description: The host where it is.
      type: str
      returned: always
    vm_state:
      description: Its state, which the move leaves as it is.
      type: str
      returned: always
    power_state:
      description: Nova's number for what its host says of the guest.
      type: int
      returned: always
    seconds:
      description: How long its migration took; null if it did not move.
      type: float
      returned: always
    downtime:
      description: Seconds that the guest stood still, as libvirt says; null if it did not move.
      type: float
      returned: always
    transferred:
      description: Bytes that were sent; null if it did not move.
      type: int
      returned: always
    error:
      description: Why it failed, with C(code), C(status), C(message), C(remedy) and C(retryable); otherwise null.
      type: dict
      returned: always
attempt:
  description: The number of the round, from 1.
  type: int
  returned: O(phase=begin), O(phase=again) and O(phase=switch)
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
