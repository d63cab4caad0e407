#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_apply
short_description: Make the instances of a project as a file has them
version_added: "0.9.0"
description:
  - Compares the requested instances with the instances of their project, and names what has to be done so that they are as requested. The playbook
    C(bootflow.compute.apply) does it.
  - What is in the ledger alone (metadata, description, tags, access addresses, locks) is changed by the module itself; boots, deletions, operations and
    volumes are for other modules.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.request
  - bootflow.compute.scheduler
  - bootflow.compute.volume
  - bootflow.compute.volume_scheduler
  - bootflow.compute.shared.run_limit
attributes:
  check_mode: {support: full, details: "The ledger's part of the plan runs in a transaction that is rolled back."}
  diff_mode: {support: full, details: "The plan, in check mode where it is not printed."}
options:
  phase:
    description:
      - V(plan) makes the plan. What it deletes and boots is tried out in the ledger, and rolled back.
      - V(ask) names the hosts of instances whose state is requested, which should report before the plan is made. Where there are none, it makes the plan and
        begins, as V(plan) and V(begin) do; with a plan without changes nothing follows (RV(over)).
      - V(begin) changes what is in the ledger alone, and names what hosts have to do.
      - V(follow) does so after the boot, and names only operations on the booted instances.
      - V(finish) reports what was done, and fails if something is left; in check mode it reports the plan.
    type: str
    choices: [plan, ask, begin, follow, finish]
    default: plan
  ask:
    description: With O(phase=ask), whether hosts are named that should report; false after they have reported.
    type: bool
    default: true
  open_ledger:
    description: Create or upgrade the ledger before, as M(bootflow.compute.ledger) does.
    type: bool
    default: false
  allow:
    description:
      - What may be done with every instance beyond what can be done live, V(resize), V(rebuild) or V(restart). The field C(allow) of an entry allows it for its
        instances.
      - Read from the variable C(bootflow_apply_allow), else none.
    type: list
    elements: str
  prune:
    description:
      - Delete the instances of the project that are not requested.
      - Read from the variable C(bootflow_prune), else false.
    type: bool
  prune_max:
    description:
      - Where O(prune) would delete more instances, the task fails and nothing is changed.
      - Read from the variable C(bootflow_prune_max), else 10.
    type: int
  cross_az_attach:
    description:
      - Whether a volume may be in another availability zone than its instance.
      - Read from the variable C(bootflow_cross_az_attach), else true.
    type: bool
  print_table:
    description: Print the plan, and what was done. Read from the variable C(bootflow_print_table), else true.
    type: bool
notes:
  - Each step leaves its result for the next ones in the folder of this ansible-playbook process.
"""

EXAMPLES = r"""
---
- name: What differs from the file
  bootflow.compute.instance_apply:
    instances:
      - name: web
        count: 3
        flavor: m1.small
        image: debian-12
        state: running
  register: planned
"""

RETURN = r"""
---
project:
  description: The project of the file.
  type: str
  returned: with O(phase=plan), O(phase=ask) and O(phase=begin)
planned_at:
  description: When the plan was made, in seconds since the epoch.
  type: float
  returned: with O(phase=plan)
changes:
  description: What differs; with O(phase=finish) what is left.
  type: list
  elements: dict
  returned: with O(phase=plan) and O(phase=finish)
  contains:
    kind:
      description: >-
        V(boot), V(replace) (delete what never ran, and boot it), V(delete), V(live), V(lock), V(state), V(attach), V(detach),
        V(attach_interface), V(detach_interface), V(resize), V(rebuild),
        V(restart), V(never) (cannot be changed) or V(quota) (does not fit).
      type: str
      returned: always
    name:
      description: Name of the instance.
      type: str
      returned: always
    project:
      description: Its project.
      type: str
      returned: always
    uuid:
      description: Its UUID; null before it is booted.
      type: str
      returned: always
    field:
      description: The field of the request that differs.
      type: str
      returned: always
    what:
      description: What differs, in words.
      type: str
      returned: always
    how:
      description: How it is changed, or why it is not.
      type: str
      returned: always
    needs:
      description: What has to be allowed for it.
      type: str
      returned: always
    done:
      description: Whether it is, or has, to be done.
      type: bool
      returned: always
    steps:
      description: The operations that do it, in their order.
      type: list
      elements: str
      returned: always
    host:
      description: In check mode, where it would be booted, or moved to by a resize.
      type: str
      returned: in check mode with O(phase=finish)
delete:
  description: UUIDs of what has to be deleted before anything is booted.
  type: list
  elements: str
  returned: with O(phase=plan), O(phase=ask) and O(phase=begin)
boots:
  description: Whether something has to be booted.
  type: bool
  returned: with O(phase=plan), O(phase=ask) and O(phase=begin)
resize:
  description: UUIDs of the instances that have to be resized, with their new flavors, without instances whose volumes are detached before.
  type: dict
  returned: with O(phase=plan)
ask:
  description: Compute hosts that should report before the plan is made, and hosts on which a run died.
  type: list
  elements: str
  returned: with O(phase=ask)
plan_file:
  description: The file of the plan that holds places, with C(id), C(file), C(hash) and C(expires).
  type: dict
  returned: with O(phase=ask) in check mode, if bootflow_plan_out is set and something is to be done
over:
  description: Whether nothing is to be done, and all of it is reported. No step of the playbook follows.
  type: bool
  returned: with O(phase=plan) and O(phase=ask)
operations:
  description: >-
    Names of operations, each with the UUIDs of its instances, in no order; operations that start guests come first. V(rebuild_early) are rebuilds that come
    before volumes and interfaces.
  type: dict
  returned: with O(phase=begin) and O(phase=follow)
resizes:
  description: Whether something has to be resized, and then confirmed.
  type: bool
  returned: with O(phase=begin) and O(phase=follow)
flavors:
  description: UUIDs of the instances that have to be resized, with their new flavors.
  type: dict
  returned: with O(phase=begin) and O(phase=follow)
attach:
  description: Volumes to attach, in the form of C(bootflow_attachments).
  type: list
  elements: dict
  returned: with O(phase=begin) and O(phase=follow)
detach:
  description: Volumes to detach, likewise.
  type: list
  elements: dict
  returned: with O(phase=begin) and O(phase=follow)
attach_interfaces:
  description: Interfaces to attach, in the form of C(bootflow_interfaces).
  type: list
  elements: dict
  returned: O(phase=begin)
detach_interfaces:
  description: Interfaces to detach, likewise.
  type: list
  elements: dict
  returned: O(phase=begin)
applied:
  description: How many changes of the plan were done.
  type: int
  returned: with O(phase=finish)
"""
