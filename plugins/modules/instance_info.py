#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_info
short_description: Read instances from the ledger
version_added: "0.9.0"
description:
  - >-
    Returns the existing instances of the ledger. With several conditions, returns instances that meet all of them.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.ledger_reader
  - bootflow.compute.shared.controller
  - bootflow.compute.shared.run_limit
  - bootflow.compute.shared.statistics
  - bootflow.compute.instance_selection
options:
  host:
    description: Only instances on these compute hosts. Read from the variable C(bootflow_host).
    type: list
    elements: str
  details:
    description:
      - Return of each instance also its journal, its disks, its scheduler hints and the numbers of its flavor, and print all of it.
      - Needs O(names), O(uuids) or O(reservation_ids). Fails with C(InstanceNotFound) if one of them does not exist, as with O(history).
    type: bool
    default: false
  history:
    description:
      - Return of each instance what happened to it, and print it by time, in place of everything else.
      - Needs O(names), O(uuids) or O(reservation_ids). Instances of O(uuids) may be deleted; of a name that none has now, the last that had it is shown.
    type: bool
    default: false
  events:
    description: Return the journal of each instance too. Read from the variable C(bootflow_list_events), else false.
    type: bool
  refresh:
    description: The compute hosts have just reported, so read the ledger itself, not its replica.
    type: bool
    default: false
  print_table:
    description: Print a table.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
- name: List the instances of project web
  bootflow.compute.instance_info:
    project: web
  register: found

- name: Read what happened to one
  bootflow.compute.instance_info:
    uuids: [2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11]
    history: true
  register: found

- name: Show one instance whole
  bootflow.compute.instance_info:
    names: [web-1]
    details: true
    print_table: true
"""

RETURN = r"""
---
instances:
  description:
    - The instances, with Nova's field names. Times are ISO 8601 in UTC; C(age) is the number of seconds since the instance was accepted,
      C(seconds) how long its build took.
    - >-
      The playbook C(list) returns only C(name), C(uuid) and C(vm_state) of more than 1,000 instances, and no statistic, where nothing
      in the run can read more: it is all that C(ansible-playbook) plays, without C(-v) or C(ANSIBLE_SHOW_CUSTOM_STATS), and all
      callbacks are ones that print no results. So does C(boot) without C(bootflow_hook_create_instance_post).
    - Each entry of C(addresses) has C(ip_address), C(prefix), C(version), C(network) and C(mac_address).
    - C(ssh_host_key) is the public SSH host key that the guest got on its config drive (C(bootflow_ssh_host_keys)), or null.
    - An instance in error has a C(fault) with code, message and remedy.
    - >-
      With O(history) each has C(name), C(uuid), C(project), C(host), C(vm_state), C(task_state), C(created_at), C(deleted_at), and lists of C(actions) (who did
      what in which run), C(events) (the steps on hosts), C(faults) and C(notifications), oldest first.
    - >-
      With O(details) each has its C(machine_type), which its guest keeps until it is rebuilt; it is null where the image names one, or where it was booted by a
      release that kept none.
    - With O(details) each has C(security_groups), the names of the groups that its ports have. Without C(bootflow_firewall_driver) they have no effect.
    - >-
      With O(details) or O(history) each has its C(migrations), oldest first: C(migration_type) (V(resize), V(migration), V(evacuation), V(live-migration)),
      C(status) as in Nova, C(source_compute), C(dest_compute), C(old_flavor), C(new_flavor), C(created_at), C(updated_at). A live migration that has begun
      has C(progress) (per cent of memory and local disks) too, and C(memory_total_bytes), C(memory_processed_bytes), C(memory_remaining_bytes) and the
      same of C(disk).
  type: list
  elements: dict
  returned: success
  sample:
    - name: web-1
      uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
      vm_state: active
      task_state: null
      power_state: 1
      host: kvm1
      flavor: m1.small
      image: debian-12
      addresses:
        - ip_address: 10.77.0.10
          prefix: 24
          version: 4
          network: servers
          mac_address: fa:16:3e:4b:1f:02
      created_at: "2026-03-02T10:15:00Z"
      age: 86400
      seconds: 9.4
      fault: null
      access_ip_v4: 192.0.2.10
      extra: {cost_centre: research}
      server_group: web
      numa_topology: null
      pci_devices: []
      whole_disks: []
"""
