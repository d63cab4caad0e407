#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: boot_schedule
short_description: Select hosts and claim their resources
version_added: "0.9.0"
description:
  - >-
    Second stage of a boot, once for each round. Filters and weighs the hosts for every waiting instance of this run,
    and claims memory, disk and vCPUs in the same transaction.
  - >-
    In check mode it prints the plan of the whole boot without changing anything (for each instance the host, the
    alternates, why every other host was rejected, and the domain XML).
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.request
  - bootflow.compute.scheduler
  - bootflow.compute.volume
  - bootflow.compute.volume_scheduler
  - bootflow.compute.shared.schedule
attributes:
  check_mode: {support: full, details: "Prints and returns the plan; the transaction is rolled back. The variable C(bootflow_plan_out) has
    the plan written to a file, and its places held."}
  diff_mode: {support: full}
options:
  phase:
    description:
      - V(schedule) chooses the hosts, claims their resources, and hands their builds to the tasks of the hosts.
      - V(refresh) between two rounds writes what these tasks have done, gives back the builds that a host's task left without an answer, and
        lists the hosts that should report before the next one in RV(reports).
    type: str
    choices: [refresh, schedule]
    default: schedule
  follow_file:
    description:
      - Instances that ran stay as they are, whatever the request says of them, and nothing is printed.
      - Read from the variable C(bootflow_follow_file), which the playbook apply sets, else false.
    type: bool
  facts_max_age:
    description:
      - With O(phase=refresh), hosts whose last report is older than this many seconds, or than half of O(service_down_time), are listed.
      - Read from the variable C(bootflow_facts_max_age), else 300.
    type: int
  cross_az_attach:
    description:
      - Whether a volume may be in another availability zone than its instance.
      - Read from the variable C(bootflow_cross_az_attach), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Schedule the accepted instances
  bootflow.compute.boot_schedule:
  register: bootflow_booted
"""

RETURN = r"""
---
given_back:
  description: UUIDs of builds whose host's task ended without an answer; they are rescheduled, or in ERROR.
  type: list
  elements: str
  returned: success and phase is refresh
again:
  description: Whether builds of this run wait for a host or for their volumes, so that another round is needed. After O(phase=schedule) only
    O(phase=refresh) knows.
  type: bool
  returned: when not in check mode
unfinished:
  description: That the boot is not reported yet.
  type: bool
  returned: when not in check mode
volumes:
  description: Whether instances of the request have volumes.
  type: bool
  returned: when not in check mode
ask:
  description: All hosts of RV(reports).
  type: list
  elements: str
  returned: success and phase is refresh
reports:
  description:
    - Hosts that should report before the next round, C(compute) because instances wait for a host, or guests were deleted while they were started, and
      C(storage) because volumes wait for a backend.
    - Silent ones are not listed.
  type: dict
  returned: success and phase is refresh
attempt:
  description: The round, as O(round).
  type: int
  returned: success and phase is refresh
compute:
  description: Hosts with builds of this run.
  type: list
  elements: str
  returned: success and phase is schedule
  sample: [kvm1, kvm3]
images:
  description: Of these, the hosts that may lack a large image, which M(bootflow.compute.image_round) asks.
  type: list
  elements: str
  returned: success and phase is schedule
lacking:
  description: The path of the file that is there once one of them has said that it lacks an image.
  type: str
  returned: success and phase is schedule
placed:
  description: Instances that got a host in this round.
  type: list
  elements: dict
  returned: success
  sample: [{name: web-1, uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11, host: kvm1}]
not_placed:
  description: UUIDs of instances without a valid host; they are in ERROR, and M(bootflow.compute.boot_report) reports why.
  type: list
  elements: str
  returned: success
explanations:
  description:
    - >-
      UUID of an instance without a valid host -> why. C(hosts) is their number; C(rejected) has for each filter C(filter), C(hosts) (how many
      it rejected), C(best) (the host that lacks least), C(reason), C(available), C(needed), C(unit) and C(missing); C(nearest_miss) has C(host),
      C(text) and C(smallest_change), or is null. In a large fleet only the first requests without a host are explained in numbers.
  type: dict
  returned: success
plan:
  description: The plan, in check mode, an item for each instance that would be built.
  type: list
  elements: dict
  returned: in check mode
  contains:
    name: {description: Name of the instance., type: str}
    uuid: {description: Its UUID., type: str}
    host: {description: "The host that would be chosen; null if there is none.", type: str}
    alternates: {description: Hosts for further attempts., type: list, elements: str}
    decision:
      description:
        - >-
          Why this host, or none: C(chosen), C(forced), C(alternates), C(filters) (how many hosts each let pass) and C(nearest_miss). C(hosts) has
          the best 50 hosts that passed, with rank, weight and what each weigher gave, and the nearest 50 that were rejected, with the verdict of each
          filter. All hosts are in C(passed) (names, best first, with their C(weights)) and C(rejected) (filter to names).
        - The hosts of an entry of the request are much the same for each of its instances, so its first three have this. It is null for the others.
      type: dict
    explained_by: {description: "UUID of the instance of the same entry whose C(decision) serves for this one; null if there is none.", type: str}
    error: {description: "The error, if no host would be found, else null.", type: dict}
    xml: {description: "The domain, if there is a host, else null.", type: str}
    volumes: {description: "The volumes, each with C(id), C(name), C(size), C(device), C(pool_host), C(new) and C(error).", type: list, elements: dict}
plan_file:
  description: The file of the plan, with C(id), C(file), C(hash) and C(expires).
  type: dict
  returned: in check mode, if bootflow_plan_out is set and everything fits
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
