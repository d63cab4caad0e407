#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_interface
short_description: Attach interfaces to instances, and detach them
version_added: "0.9.0"
description:
  - One step of attaching or detaching network interfaces of existing instances, running or stopped. The playbooks C(attach_interface) and
    C(detach_interface) run the steps.
  - An interface that is attached has its port and addresses from O(phase=begin) on. One that is detached keeps its addresses until its host says
    that the guest has lost it.
  - States are checked as by Nova. An interface that cannot begin now (the instance is locked, another run works on it, no address is free) keeps no other
    from its own; O(phase=finish) fails with it. Where an instance does not exist, or nothing can begin, the task fails and nothing is changed.
  - An instance that has the interface already stays as it is. Each interface of an instance meets one of the entries that name the instance.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
attributes:
  check_mode:
    support: full
    details: Addresses are allocated in a transaction that is rolled back. No host does anything.
  diff_mode: {support: full}
options:
  operation:
    description: What to do.
    type: str
    choices: [attach_interface, detach_interface]
    required: true
  phase:
    description:
      - Which step. V(work) and V(clear) run on compute hosts, the others on the controller.
      - V(clear) runs where another run detached an interface before its guest had it, and detaches it there. V(report) then returns what
        V(finish) would have returned.
    type: str
    choices: [begin, work, finish, clear, report]
    default: begin
  interfaces:
    description:
      - List of C(instance) (name or UUID). To attach also C(network) (name or ID, the only one by default), C(subnet), C(fixed_ip) and C(tag), or C(port)
        (name or ID of an existing port) and C(tag); to detach one or more of C(port), C(mac_address), C(network), C(fixed_ip) and C(tag). C(net_id) and
        C(port_id) are Nova's words for C(network) and C(port).
      - Read from the variable C(bootflow_interfaces).
    type: list
    elements: raw
    required: true
  networks:
    description:
      - The networks of the inventory, as a list of mappings or a mapping keyed by name.
      - Read from the variable C(bootflow_networks).
    type: raw
  project:
    description:
      - Project of the instances that are named.
      - Read from the variable C(bootflow_project), else V(default).
    type: str
  quotas:
    description:
      - Limits of projects; C(ports) counts here.
      - Read from the variable C(bootflow_quotas).
    type: dict
  print_table:
    description: Print what was done. Read from the variable C(bootflow_print_table), else true.
    type: bool
notes:
  - Runs on the controller, inside the ansible-playbook process. On the hosts it runs M(bootflow.compute.virtual_network) and
    M(bootflow.compute.domain_interface).
  - Each step leaves its results for the next ones in the folder of this ansible-playbook process. The hosts of the next play are the result that
    the playbook registers as C(bootflow_next).
  - The config drive of the guest stays as it is until the instance is rebuilt. An address that DHCP gives reaches the guest at once.
"""

EXAMPLES = r"""
---
- name: Give a web server an interface on the network of the databases
  bootflow.compute.instance_interface:
    operation: attach_interface
    interfaces:
      - instance: web-1
        network: databases
        fixed_ip: 10.20.0.17
  register: bootflow_next
"""

RETURN = r"""
---
compute:
  description: Compute hosts of the next play.
  type: list
  elements: str
  returned: O(phase=begin)
clearing:
  description: Compute hosts of the play that detaches interfaces which another run detached before their guests had them.
  type: list
  elements: str
  returned: O(phase=finish)
interfaces:
  description: The interfaces that are attached or detached now.
  type: list
  elements: dict
  returned: O(phase=finish)
  contains:
    port_id: {description: "ID of the port.", type: str, returned: always}
    instance: {description: "Name of the instance.", type: str, returned: always}
    uuid: {description: "UUID of the instance.", type: str, returned: always}
    host: {description: "Its compute host.", type: str, returned: always}
    network: {description: "Name of the network.", type: str, returned: always}
    mac_address: {description: "MAC address.", type: str, returned: always}
    fixed_ips: {description: "Addresses.", type: list, elements: str, returned: always}
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
