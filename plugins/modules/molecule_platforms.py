#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: molecule_platforms
short_description: Boot the platforms of a molecule scenario, or delete them
version_added: "0.9.0"
description:
  - Part of the playbooks C(molecule_create) and C(molecule_destroy), which a scenario of molecule imports in its C(create.yml) and C(destroy.yml).
  - Reads the platforms of the C(molecule.yml) that molecule names in its environment. Each has the name, and in C(bootflow) the fields of an entry of
    C(bootflow_instances).
  - Runs the playbook C(boot) or C(delete) with the inventory of the fleet, in a separate process, so that plays of the scenario never see the compute hosts.
  - The instances have a separate project for each job. With O(state=absent) all instances of that project are deleted.
  - Writes molecule's instance config, and an inventory next to molecule's own that says how the guests are reached.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.shared.run_limit
attributes:
  check_mode: {support: full, details: Prints the plan of the boot or the deletion.}
options:
  inventory:
    description:
      - Inventories with the compute hosts, the catalogue and the ledger of the fleet. Relative paths begin at the project's folder.
      - Read from the variable C(bootflow_molecule_inventory), else from the environment variable E(BOOTFLOW_INVENTORY).
    type: list
    elements: str
  run:
    description:
      - What the job is called, where it is destroyed on another machine than it was created on.
      - Read from the variable C(bootflow_molecule_run), else from the environment variable E(BOOTFLOW_MOLECULE_RUN). By default the job is known by this
        machine and molecule's folder.
    type: str
  user:
    description: Who logs in to guests whose platform has no C(user). Read from the variable C(bootflow_molecule_user).
    type: str
  private_key_file:
    description: The private SSH key for guests whose platform has no C(identity_file). Read from the variable C(bootflow_molecule_private_key_file).
    type: path
  via:
    description: How guests are reached, V(jump) through their compute hosts, or V(direct). Read from the variable C(bootflow_molecule_via), else V(jump).
    type: str
    choices: [jump, direct]
  wait:
    description: How many seconds the playbook waits until the guests answer. Read from the variable C(bootflow_molecule_wait), else 600.
    type: int
  state:
    description: Whether the platforms are to be there.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
---
- name: Boot the platforms of molecule.yml
  bootflow.compute.molecule_platforms:
    inventory: [/etc/bootflow/hosts.yml]
"""

RETURN = r"""
---
project:
  description: The project of the job's instances.
  type: str
  returned: success
  sample: molecule-3f2a9c1b7d4e6f80
platforms:
  description: The names of the platforms that are there.
  type: list
  elements: str
  returned: success
  sample: [web]
"""
