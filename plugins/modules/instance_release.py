#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_release
short_description: Let adopted instances leave the ledger
version_added: "0.9.0"
description:
  - Instances that M(bootflow.compute.instance_adopt) adopted leave the ledger. Their claims, ports and addresses are free, their domains stay as they are.
  - Instances that this collection made are refused, C(InstanceNotAdopted).
  - A host that is forced down is not asked.
  - Either all of the selected instances can be released, or the task fails and none is.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.instance_selection
  - bootflow.compute.shared.controller
attributes:
  diff_mode: {support: full}
options:
  hosts:
    description: Instances on these compute hosts. Read from the variable C(bootflow_host).
    type: list
    elements: str
  all:
    description: With O(project) alone, all of the project's instances. Read from the variable C(bootflow_all), else false.
    type: bool
  phase:
    description: V(begin) and V(finish) run on localhost, V(unmark) between them on the hosts in RV(compute).
    type: str
    choices: [begin, unmark, finish]
    default: begin
  print_table:
    description: Print what is, or in check mode would be, released. Read from the variable C(bootflow_print_table), else true.
    type: bool
seealso:
  - module: bootflow.compute.instance_adopt
  - module: bootflow.compute.domain_adoption
"""

EXAMPLES = r"""
---
- name: Select the instances
  bootflow.compute.instance_release:
    names: [web]
    phase: begin
  register: bootflow_next
"""

RETURN = r"""
---
instances:
  description: The instances that were, or in check mode would be, released.
  type: list
  elements: dict
  returned: with O(phase=begin) and O(phase=finish)
  contains:
    name:
      description: Name of the instance.
      type: str
      returned: always
    uuid:
      description: UUID of the instance and of its domain.
      type: str
      returned: always
    host:
      description: Its compute host.
      type: str
      returned: always
    domain:
      description: Name of its domain, which stays.
      type: str
      returned: always
    host_down:
      description: Whether its host is forced down, so that the metadata of its domain stays.
      type: bool
      returned: always
    error:
      description: Why it was not released, with C(code), C(status), C(message), C(remedy) and C(retryable); null if it was.
      type: dict
      returned: always
compute:
  description: Hosts of the next stage.
  type: list
  elements: str
  returned: with O(phase=begin)
"""
