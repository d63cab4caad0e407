#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_console
short_description: Show the consoles of instances
version_added: "0.9.0"
description:
  - One step of the playbook C(console). O(phase=begin) selects the instances, O(phase=work) reads on one host what its guests printed last,
    O(phase=finish) shows all of it, with the address of each VNC display and the command that makes an SSH tunnel to it.
  - The ledger is only read. Instances in any state are shown, also locked ones of other users.
  - An instance whose console cannot be read does not stop the others; the task fails in the end.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.ledger_reader
  - bootflow.compute.shared.run_limit
  - bootflow.compute.instance_selection
options:
  phase:
    description: Which step. V(work) runs on the compute hosts, the others on the controller.
    type: str
    choices: [begin, work, finish]
    default: begin
  hosts:
    description: Instances on these compute hosts. Read from the variable C(bootflow_host).
    type: list
    elements: str
  all:
    description: With O(project) alone, all of the project's instances. Read from the variable C(bootflow_all), else false.
    type: bool
  lines:
    description: How many lines of each console. Read from the variable C(bootflow_console_lines), else V(50).
    type: int
  print_table:
    description: Print the consoles. Read from the variable C(bootflow_print_table), else true.
    type: bool
notes:
  - Runs on the controller, inside the ansible-playbook process. With O(phase=work) it runs M(bootflow.compute.domain_console) on the host.
  - Each step leaves its results for the next ones in the folder of this ansible-playbook process. The hosts of the next play are the result that
    the playbook registers as C(bootflow_next).
seealso:
  - module: bootflow.compute.domain_console
"""

EXAMPLES = r"""
---
- name: Choose the web servers
  bootflow.compute.instance_console:
    names: [web-1, web-2]
  register: bootflow_next
"""

RETURN = r"""
---
compute:
  description: Compute hosts of the next play.
  type: list
  elements: str
  returned: O(phase=begin)
instances:
  description: The instances.
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
    vm_state:
      description: Its state.
      type: str
      returned: always
    power_state:
      description: Nova's number for what its host reports of the guest.
      type: int
      returned: always
    console:
      description: The last lines of its console.
      type: list
      elements: str
      returned: always
    vnc:
      description:
        - Its VNC display, with C(listen), an address of the host, C(port), and C(tunnel), a command that brings it to the same port of this machine.
        - Null without a display, or if the guest does not run; C(tunnel) is null where the host is this machine.
      type: dict
      returned: always
      sample: {listen: 127.0.0.1, port: 5900, tunnel: "ssh -N -L 5900:127.0.0.1:5900 root@kvm1.example.org"}
    error:
      description: Why there is nothing to show, with C(code), C(status), C(message), C(remedy) and C(retryable); otherwise null.
      type: dict
      returned: always
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
