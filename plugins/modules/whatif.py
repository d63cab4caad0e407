#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: whatif
short_description: Report how many instances fit, and which hosts can be lost
version_added: "0.9.0"
description:
  - >-
    Reports how many more instances of a flavor fit, on which hosts, and what rejects the next one; or the same for
    entries of a boot, one after the other; and for each host whether its instances would fit on the others (N+1).
  - >-
    Uses the filters, weighers and settings of a boot. Nothing is written and no host is contacted. The facts are from
    the last reports, and a host that did not report within O(service_down_time) counts as down, as in a boot. Quotas,
    addresses and image files are not checked.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.shared.run_limit
  - bootflow.compute.request
  - bootflow.compute.scheduler
attributes:
  check_mode: {support: full, details: Nothing is changed in either mode.}
options:
  flavor:
    description:
      - Flavor to check. If set, O(instances) is ignored.
      - Read from the variable C(bootflow_whatif_flavor).
    type: str
  image:
    description:
      - Image whose properties the filters use. By default an image that any host accepts.
      - Read from the variable C(bootflow_whatif_image).
    type: str
  availability_zone:
    description: Availability zone, as in an entry of a boot. Read from the variable C(bootflow_whatif_availability_zone).
    type: str
  scheduler_hints:
    description: Scheduler hints, as in an entry of a boot. Read from the variable C(bootflow_whatif_scheduler_hints).
    type: dict
  server_group:
    description: The same as the hint C(group). Read from the variable C(bootflow_whatif_server_group).
    type: str
  count:
    description: Number of instances to check, instead of one. Read from the variable C(bootflow_whatif_count).
    type: int
  limit:
    description:
      - Maximum to count to. Needed where no filter ends the count.
      - Read from the variable C(bootflow_whatif_limit).
    type: int
  n_plus_1:
    description:
      - Check for each compute host whether its instances would fit on the others if it were lost.
      - Read from the variable C(bootflow_whatif_n_plus_1), else false.
    type: bool
  lose:
    description:
      - Check only these compute hosts, one at a time; V(all) checks each of them.
      - Read from the variable C(bootflow_whatif_lose).
    type: list
    elements: str
  fail:
    description:
      - Fail if something does not fit.
      - Read from the variable C(bootflow_whatif_fail), else false.
    type: bool
  instances:
    description:
      - >-
        Entries of a boot (C(docs/request.md)). Each is checked after the entries before it; instances that already have a
        host need no space. Ignored if O(flavor), O(n_plus_1) or O(lose) is set.
      - Read from the variable C(bootflow_instances).
    type: list
    elements: raw
    required: false
  print_table:
    description: Print the answer. Read from the variable C(bootflow_print_table), else true.
    type: bool
seealso:
  - module: bootflow.compute.compute_report
  - module: bootflow.compute.boot_schedule
"""

EXAMPLES = r"""
---
- name: How many more of m1.small fit in rack-a
  bootflow.compute.whatif:
    flavor: m1.small
    availability_zone: rack-a
  register: room

- name: Fail unless every host could be lost
  bootflow.compute.whatif:
    n_plus_1: true
    fail: true
"""

RETURN = r"""
---
answers:
  description: Results of the requests, in order.
  type: list
  elements: dict
  returned: success, or failure because something does not fit
  contains:
    name:
      description: Name of the entry; V(whatif) where O(flavor) was given.
      type: str
      returned: always
    flavor:
      description: Name of the flavor.
      type: str
      returned: always
    project:
      description: Project of the request.
      type: str
      returned: always
    count:
      description: Number of requested instances that do not exist yet.
      type: int
      returned: always
    there:
      description: Number of instances of the entry that already have a host.
      type: int
      returned: always
    total:
      description: Number of instances that fit, after the requests before it.
      type: int
      returned: always
    left:
      description: Number of instances that fit in addition to the requested ones.
      type: int
      returned: always
    fits:
      description: Whether RV(answers[].count) does not exceed RV(answers[].total).
      type: bool
      returned: always
    by_host:
      description: Distribution of RV(answers[].total), each with C(host), C(node) and C(count); hosts without free capacity are omitted.
      type: list
      elements: dict
      returned: always
    placed:
      description: Distribution of the requested instances, in the same form; empty if they do not all fit, because a boot is all or nothing.
      type: list
      elements: dict
      returned: always
    stopped_by:
      description:
        - >-
          Why one more instance is rejected: C(reason); C(filters), each with C(name), C(start) and C(end), the hosts before
          and after it; C(turned_down), each host with C(filter), C(reason) and the compared numbers; C(nearest_miss), the
          host that lacks least, with C(missing) and the sufficient C(smallest_change).
        - Null if O(limit) ended the count.
      type: dict
      returned: always
  sample:
    - name: whatif
      flavor: m1.small
      project: default
      count: 1
      there: 0
      total: 5
      left: 4
      fits: true
      by_host: [{host: kvm1, node: kvm1, count: 3}, {host: kvm2, node: kvm2, count: 2}]
      placed: [{host: kvm1, node: kvm1, count: 1}]
lost:
  description:
    - >-
      For each checked host C(host), C(fits), C(moved) (each instance with C(name), C(instance_uuid), C(host), C(node)) and
      C(stuck) (each with C(name), C(instance_uuid), C(reason), C(filters)).
  type: list
  elements: dict
  returned: success, or failure because something does not fit
fits:
  description: Whether everything fits.
  type: bool
  returned: success, or failure because something does not fit
hosts_down:
  description: The compute hosts that count as down, each with C(host) and C(reason).
  type: list
  elements: dict
  returned: success, or failure because something does not fit
oldest_facts:
  description: Age of the oldest report of a compute host in seconds; null if none has reported.
  type: float
  returned: success, or failure because something does not fit
"""
