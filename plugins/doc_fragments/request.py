# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  instances:
    description:
      - The wished instances; C(docs/request.md) lists the fields of an entry.
      - Read from the variable C(bootflow_instances).
    type: list
    elements: raw
    required: true
  quotas:
    description:
      - The limits of a project, C(instances), C(cores), C(ram) (MB), C(ports), C(server_groups), C(server_group_members); -1 is unlimited.
      - Those of server groups are 10 by default, all others unlimited. Read from the variable C(bootflow_quotas).
    type: dict
  project:
    description: The project of entries that name none. Read from the variable C(bootflow_project), else V(default).
    type: str
  default_availability_zone:
    description: The zone of hosts that name none. Read from the variable C(bootflow_default_availability_zone), else V(nova).
    type: str
  default_flavor:
    description: The flavor of entries that name none. Read from the variable C(bootflow_default_flavor).
    type: str
  allow_forced_host:
    description: Allow C(zone:host:node) in C(availability_zone), which is for administrators. Read from the variable C(bootflow_allow_forced_host), else false.
    type: bool
  force_config_drive:
    description: Give every instance a config drive. Read from the variable C(bootflow_force_config_drive), else true.
    type: bool
  schema_dirs:
    description: Folders with more schema fragments. Read from the variable C(bootflow_schema_dirs).
    type: list
    elements: path
  scheduler_hint_names:
    description: Scheduler hints that filters of your own read. Read from the variable C(bootflow_scheduler_hint_names).
    type: list
    elements: str
  server_groups:
    description: The server groups that the hint C(group) may name. Read from the variable C(bootflow_server_groups).
    type: raw
  pci_alias:
    description: Names for kinds of PCI devices that flavors may ask for, as Nova's C([pci]alias). Read from the variable C(bootflow_pci_alias).
    type: raw

  flavors:
    description: The flavors that requests may name, a list of dictionaries. Read from the variable C(bootflow_flavors).
    type: raw
  images:
    description: The images that requests may name. Read from the variable C(bootflow_images).
    type: raw
  networks:
    description: The networks that requests may name, with their subnets. Read from the variable C(bootflow_networks).
    type: raw
  keypairs:
    description: The public keys that requests may name. Read from the variable C(bootflow_keypairs).
    type: raw
"""
