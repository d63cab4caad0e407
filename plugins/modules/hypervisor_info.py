#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: hypervisor_info
short_description: Read compute hosts from the ledger
version_added: "0.9.0"
description:
  - Returns the compute hosts as they last reported, with their state and the resources that new instances can claim.
  - >-
    The hosts are all hosts of the inventory and all that ever reported. Nothing is asked of the hosts; the playbook C(heartbeat) lets them
    report.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.ledger_reader
  - bootflow.compute.shared.controller
  - bootflow.compute.shared.run_limit
options:
  hosts:
    description:
      - Only these compute hosts.
      - Read from the variable C(bootflow_host).
    type: list
    elements: str
  service_down_time:
    description:
      - A host whose last report is older than this many seconds is down.
      - Read from the variable C(bootflow_service_down_time), else 900.
    type: int
  print_table:
    description: Print a table, and below it the problems.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
- name: Read the compute hosts
  bootflow.compute.hypervisor_info:
  register: fleet

- name: Fail when a host is down
  ansible.builtin.assert:
    that: fleet.hypervisors | rejectattr('state', 'eq', 'up') | length == 0
"""

RETURN = r"""
---
hypervisors:
  description:
    - The compute hosts, with Nova's field names. Memory is in MiB, disk in GiB.
    - >-
      C(memory_mb), C(vcpus) and C(local_gb) are the physical totals, C(*_used) what is reserved and claimed (of disk, or used on the file
      system if that is more), and C(*_free) what new instances can claim - total times C(*_ratio) less used.
    - >-
      C(state) is V(up) or V(down), C(status) V(enabled) or V(disabled). C(state_known) is false of a host that counts as down because nothing asked
      it for longer than O(service_down_time), or ever; the table says V(unknown). C(problems) lists in words why the host is down, instances of which
      leftovers have to be removed, and failed builds.
    - >-
      C(networks) has the networks of the host as it reported them, for each type of C(bootflow_networks) their names and whether each is active.
      It is null where the host has not reported any.
  type: list
  elements: dict
  returned: success
  sample:
    - host: kvm1
      hypervisor_hostname: kvm1.example.org
      hypervisor_type: QEMU
      hypervisor_version: 7002000
      host_ip: 192.0.2.11
      state: up
      state_known: true
      status: disabled
      disabled_reason: more memory on Monday
      availability_zone: rack-a
      running_vms: 3
      memory_mb: 64000
      memory_mb_used: 12800
      memory_mb_free: 83200
      memory_mb_ratio: 1.5
      vcpus: 16
      vcpus_used: 6
      vcpus_free: 250
      vcpus_ratio: 16.0
      local_gb: 900
      local_gb_used: 60
      local_gb_free: 840
      local_gb_ratio: 1.0
      networks: {bridge: {br0: true}, network: {default: true}}
      failed_builds: 0
      reported_at: "2026-03-02T10:15:00Z"
      report_age: 42
      problems: []
"""
