#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_adopt
short_description: Take domains of other software into the ledger
version_added: "0.9.0"
description:
  - Domains on compute hosts that no ledger has become instances, with claims, ports and addresses. Their guests run on.
  - Nothing of a guest is changed but the metadata of its domain, which says that this ledger has it.
  - Domains that are named are adopted together, or the task fails and none is. With O(all), domains that are not adoptable are left out and shown.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
attributes:
  diff_mode: {support: full}
options:
  domains:
    description: Names or UUIDs of domains. Read from the variable C(bootflow_adopt_domains).
    type: list
    elements: str
  all:
    description:
      - Adopt all domains that are adoptable. In check mode they are shown in any case.
      - Read from the variable C(bootflow_adopt_all), else false.
    type: bool
  names:
    description: Names of instances by UUID or name of the domain. Read from the variable C(bootflow_adopt_names), else each has the name of its domain.
    type: dict
  other_interfaces:
    description:
      - Interfaces in none of O(networks) do not prevent an adoption; they get no port.
      - Read from the variable C(bootflow_adopt_other_interfaces), else false.
    type: bool
  user:
    description: User to whom the instances belong. Read from the variable C(bootflow_adopt_user), else the user who runs the playbook.
    type: str
  project:
    description: Project of the instances. Read from the variable C(bootflow_project), else V(default).
    type: str
  networks:
    description: Networks of the catalogue; an interface belongs to the network whose bridge or libvirt network it is in. Read from the variable
      C(bootflow_networks).
    type: raw
  phase:
    description:
      - V(begin), V(decide) and V(finish) run on localhost, in this order. V(ask) before V(decide) and V(mark) after it run on the hosts in RV(compute).
    type: str
    choices: [begin, ask, decide, mark, finish]
    default: begin
  print_table:
    description: Print what is, or in check mode would be, adopted. Read from the variable C(bootflow_print_table), else true.
    type: bool
seealso:
  - module: bootflow.compute.instance_release
  - module: bootflow.compute.domain_adoption
"""

EXAMPLES = r"""
---
- name: Select the hosts
  bootflow.compute.instance_adopt:
    domains: [web, db]
    phase: begin
  register: bootflow_next
"""

RETURN = r"""
---
domains:
  description: The domains of other software, with what each is, or in check mode would be, in the ledger.
  type: list
  elements: dict
  returned: with O(phase=finish)
  contains:
    host:
      description: Its compute host.
      type: str
      returned: always
    domain:
      description: Name of the domain.
      type: str
      returned: always
    uuid:
      description: UUID of the domain and of the instance.
      type: str
      returned: always
    name:
      description: Name of the instance.
      type: str
      returned: always
    state:
      description: V(adopt) for a domain that is, or would be, adopted now, V(adopted) for one that was before, V(refused) for one that is not adoptable.
      type: str
      returned: always
    vm_state:
      description: State of the instance; empty if it is not adopted now.
      type: str
      returned: always
    memory_mb:
      description: Memory that is claimed, in MiB.
      type: int
      returned: always
    vcpus:
      description: Virtual CPUs that are claimed.
      type: int
      returned: always
    disk_gb:
      description: Disk that is claimed, in GiB.
      type: int
      returned: always
    disks:
      description: Disks of the domain, with C(target), C(device), C(type), C(source), C(size) in bytes and C(local).
      type: list
      elements: dict
      returned: always
    ports:
      description: Ports of the instance, with C(mac_address), C(network) and C(addresses).
      type: list
      elements: dict
      returned: always
    pci_devices:
      description: Addresses of the PCI devices that are claimed.
      type: list
      elements: str
      returned: always
    pinned_cpus:
      description: CPUs of the host that are claimed for the guest alone.
      type: list
      elements: int
      returned: always
    reasons:
      description: Why it is not adoptable, each with C(code), C(message) and C(remedy).
      type: list
      elements: dict
      returned: always
    notes:
      description: What else is to be known of it.
      type: list
      elements: str
      returned: always
silent:
  description: Hosts that did not answer.
  type: list
  elements: str
  returned: with O(phase=finish)
compute:
  description: Hosts of the next stage.
  type: list
  elements: str
  returned: with O(phase=begin) and O(phase=decide)
"""
