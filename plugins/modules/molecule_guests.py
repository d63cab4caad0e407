#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: molecule_guests
short_description: Write how the guests of a molecule scenario are reached
version_added: "0.9.0"
description:
  - Part of the playbook that C(molecule_create) runs with the inventory of the fleet. Reads the ledger.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
attributes:
  check_mode: {support: full, details: Does nothing.}
options:
  path:
    description: The file that gets the variables of the connections, as JSON. Read from the variable C(bootflow_molecule_guests_file).
    type: path
    required: true
  via:
    description: V(jump) through the compute hosts, or V(direct). Read from the variable C(bootflow_molecule_via), else V(jump).
    type: str
    choices: [jump, direct]
  project:
    description: The project of the guests. Read from the variable C(bootflow_project), else V(default).
    type: str
"""

EXAMPLES = r"""
---
- name: Write how the guests are reached
  bootflow.compute.molecule_guests:
    path: /tmp/guests.json
"""

RETURN = r"""
---
guests:
  description: The variables of the connections, by name of the instance.
  type: dict
  returned: success
  sample: {web: {ansible_host: 10.78.0.10, ansible_ssh_common_args: "-o StrictHostKeyChecking=no"}}
"""
