#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: report
short_description: Write a report on the fleet as one page of HTML
version_added: "0.9.0"
description:
  - >-
    Writes one file of HTML that shows the hosts with the claims of their instances, whether each host can be lost (N+1), a run by
    instance and host, why instances are in ERROR, capacity over time, and how many more instances of each flavor fit.
  - The file needs no network and has no scripts. Its pictures are SVG, and each is also there as a table. It is replaced as a whole.
  - Nothing is asked of the hosts; the playbook C(heartbeat) lets them report, and writes capacity once a day.
  - The page names the moment at which it was made, so that each run changes it.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.ledger_reader
  - bootflow.compute.shared.controller
  - bootflow.compute.shared.run_limit
  - bootflow.compute.scheduler
attributes:
  diff_mode: {support: full, details: The page before and after. Pages larger than E(ANSIBLE_MAX_DIFF_SIZE) are left out.}
options:
  path:
    description:
      - Absolute path of the file on the controller, with the ending C(.html). Its folder must exist.
      - Read from the variable C(bootflow_report_file).
    type: path
    required: true
  request_id:
    description:
      - Request id of the run whose instances are drawn.
      - Read from the variable C(bootflow_report_run), else the newest boot.
    type: str
  limit:
    description:
      - How many hosts, instances of the run, claims of a host and reasons are shown at most; a line says how many are left out.
      - Read from the variable C(bootflow_report_limit), else V(200).
    type: int
  days:
    description:
      - Days of capacity over time that are drawn at most.
      - Read from the variable C(bootflow_report_days), else V(90).
    type: int
  flavor_names:
    description:
      - Flavors for which the report says how many more instances fit.
      - Read from the variable C(bootflow_report_flavors), else all of O(flavors).
    type: list
    elements: str
  n_plus_1:
    description:
      - Check for each compute host whether its instances would fit on the others, which takes long where hosts are many.
      - Read from the variable C(bootflow_report_n_plus_1), else true for up to O(limit) hosts.
    type: bool
  plan:
    description:
      - File on the controller with a plan (C(bootflow_plan_out)), whose hosts are shown before and after.
      - Read from the variable C(bootflow_report_plan).
    type: path
  flavors:
    description:
      - >-
        Flavors that requests may name: C(name), C(vcpus), C(memory_mb), C(root_gb) (0: the instance boots from a volume),
        C(ephemeral_gb), C(swap) (MiB), C(extra_specs), C(disabled).
      - Read from the variable C(bootflow_flavors), else V([]).
    type: raw
  pci_alias:
    description:
      - >-
        Names for kinds of PCI devices that flavors may request, as in Nova's C([pci]alias): C(name), C(vendor_id),
        C(product_id), C(device_type), C(numa_policy), all texts.
      - Read from the variable C(bootflow_pci_alias), else V([]).
    type: raw
  instance_overhead:
    description:
      - >-
        What the hypervisor needs for each instance beyond its flavor, and what is claimed with it: C(memory_mb) and
        C(memory_mb_per_vcpu) (MiB), C(memory_percent) (of the flavor's memory), C(disk_gb) (GiB), C(vcpus). Parts are
        rounded up. Without it, C(bootflow_reserved_memory_mb) covers the hypervisor. Instances that exist keep what they
        were accepted with.
      - Read from the variable C(bootflow_instance_overhead), else V({}).
    type: dict
  allow_zero_disk_flavor:
    description:
      - >-
        For administrators: allow flavors with C(root_gb: 0) without a root volume. The root disk is as large as the
        image, and claims the image's C(min_disk), which it then needs; a host refuses an image that is larger.
      - Read from the variable C(bootflow_allow_zero_disk_flavor), else V(false).
    type: bool
  project:
    description:
      - Project of entries that name none. Without a value, list and delete look at all projects.
      - Read from the variable C(bootflow_project), else V(default).
    type: str
  default_schedule_zone:
    description:
      - Availability zone of entries that name none.
      - Read from the variable C(bootflow_default_schedule_zone), else any.
    type: str
  default_availability_zone:
    description:
      - Availability zone of hosts that name none.
      - Read from the variable C(bootflow_default_availability_zone), else V(nova).
    type: str
seealso:
  - module: bootflow.compute.metrics
  - module: bootflow.compute.whatif
  - module: bootflow.compute.instance_info
"""

EXAMPLES = r"""
---
- name: Write a report
  bootflow.compute.report:
    path: /var/www/html/fleet.html

- name: Write a report on one run, without N+1
  bootflow.compute.report:
    path: /tmp/run.html
    request_id: req-kvm-controller-1764511200-4242
    n_plus_1: false

- name: Show a plan before and after
  bootflow.compute.report:
    path: /tmp/plan.html
    plan: /srv/plans/web.json
"""

RETURN = r"""
---
path:
  description: The file.
  type: str
  returned: success
  sample: /var/www/html/fleet.html
size:
  description: Size of the page in bytes.
  type: int
  returned: success
  sample: 48213
request_id:
  description: Request id of the run that is drawn; null if no run has built instances.
  type: str
  returned: success
plan:
  description: Id of the plan that is shown; null without O(plan).
  type: str
  returned: success
n_plus_1:
  description: Whether the instances of any one host would fit on the others; null where that was not checked.
  type: bool
  returned: success
"""
