#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: boot_accept
short_description: Validate a request and enter it into the ledger
version_added: "0.9.0"
description:
  - >-
    First stage of a boot. Validates all entries, the settings of the scheduler and of the hosts, and reports all
    errors together. Expands counts, checks quotas, and writes instances, disks, ports and the action C(create) in one
    transaction.
  - >-
    An existing instance that matches the request stays unchanged; its metadata, description and tags change in place. One that a dead run left half-built
    is taken over, and one in error that never had a host gives its name to a corrected request.
  - A request that changes nothing is reported at once, as M(bootflow.compute.boot_report) does, whose fields the result has, too.
  - >-
    With the variable C(bootflow_plan) the boot takes the instances that the plan in this file holds, if nothing differs from it.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.request
  - bootflow.compute.scheduler
  - bootflow.compute.volume
  - bootflow.compute.volume_scheduler
  - bootflow.compute.shared.statistics
attributes:
  check_mode: {support: full, details: "The request runs through the same transaction, which is rolled back."}
options:
  cross_az_attach:
    description:
      - Whether a volume may be in another availability zone than its instance.
      - Read from the variable C(bootflow_cross_az_attach), else true.
    type: bool
  follow_file:
    description:
      - Instances that ran stay as they are, whatever the request says of them, and nothing is printed.
      - Read from the variable C(bootflow_follow_file), which the playbook apply sets, else false.
    type: bool
  admin_password_dir:
    description:
      - Folder on the controller in which M(bootflow.compute.boot_report) leaves the admin passwords. It is made before a build begins; a folder that
        this user may not write ends the boot, and nothing is written.
      - Read from the variable C(bootflow_admin_password_dir), else they are not left anywhere.
    type: path
  facts_max_age:
    description:
      - Hosts whose last report is older than this many seconds, or than half of O(service_down_time), are listed in RV(ask).
      - Read from the variable C(bootflow_facts_max_age), else 300.
    type: int
  print_table:
    description: Print three lines when there is nothing to do. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Accept two web servers
  bootflow.compute.boot_accept:
    instances:
      - name: web
        max_count: 2
        flavor: m1.small
        image: debian-12
        networks: [{network: servers}]
  register: bootflow_booted
"""

RETURN = r"""
---
reservation_id:
  description: Id that all new instances of this call share; empty if none is new.
  type: str
  returned: success
  sample: r-1a2b3c4d
again:
  description: Whether there is anything to build.
  type: bool
  returned: success
over:
  description: Whether the request changes nothing, and was reported. Nothing follows.
  type: bool
  returned: success
created:
  description: UUIDs of new instances.
  type: list
  elements: str
  returned: success
resumed:
  description: UUIDs of instances taken over from a dead run or built again after an error.
  type: list
  elements: str
  returned: success
updated:
  description: UUIDs of existing instances whose metadata, description or tags changed in place.
  type: list
  elements: str
  returned: success
drift:
  description:
    - What the catalogue (flavors, images, key pairs) changed of existing instances since they were accepted, each with C(instances) and
      C(changes). They keep what they have.
  type: list
  elements: dict
  returned: success
unchanged:
  description: UUIDs of instances that already match the request.
  type: list
  elements: str
  returned: success
ask:
  description: Compute hosts that should report before scheduling.
  type: list
  elements: str
  returned: success
volumes:
  description: Whether there is work to do and instances of the request have volumes.
  type: bool
  returned: success
storage:
  description: Storage hosts that should report before volumes are scheduled; empty if the request creates none.
  type: list
  elements: str
  returned: success
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
"""
