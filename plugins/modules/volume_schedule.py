#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_schedule
short_description: Select backends for volumes
version_added: "0.9.0"
description:
  - >-
    Second stage of creating volumes, once for each round. Filters and weighs the backends for every waiting volume of
    this run, and reserves their capacity in the same transaction.
  - >-
    In a boot these are the volumes of instances that have got a host.
  - >-
    In check mode it prints the plan without changing anything (for each volume the backend, the alternates, and why
    every other backend was rejected).
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.volume
  - bootflow.compute.volume_scheduler
  - bootflow.compute.shared.schedule
attributes:
  check_mode: {support: full, details: Prints and returns the plan; the transaction is rolled back.}
  diff_mode: {support: full}
options:
  phase:
    description:
      - V(schedule) chooses the backends and reserves their capacity.
      - V(refresh) between two rounds lists the storage hosts that should report before the next one in RV(ask).
    type: str
    choices: [refresh, schedule]
    default: schedule
  facts_max_age:
    description:
      - With O(phase=refresh), hosts whose last report is older than this many seconds, or than half of O(service_down_time), are listed.
      - Read from the variable C(bootflow_facts_max_age), else 300.
    type: int
  volumes:
    description:
      - The requested volumes, as in M(bootflow.compute.volume_accept); needed only for the plan in check mode.
      - Read from the variable C(bootflow_volumes).
    type: list
    elements: raw
"""

EXAMPLES = r"""
---
- name: Schedule the accepted volumes
  bootflow.compute.volume_schedule:
  register: bootflow_next
"""

RETURN = r"""
---
again:
  description: Whether volumes of this run are not yet created, so that another round is needed. After O(phase=schedule) only O(phase=refresh) knows.
  type: bool
  returned: when not in check mode
ask:
  description: Storage hosts that should report before the next round, because volumes wait for a backend. Silent ones are not listed.
  type: list
  elements: str
  returned: success and phase is refresh
storage:
  description: Storage hosts with work to do for this run.
  type: list
  elements: str
  returned: success
  sample: [storage1]
placed:
  description: Volumes that got a backend in this round, with C(name), C(id), C(pool_host) and C(alternates).
  type: list
  elements: dict
  returned: when not in check mode
not_placed:
  description: Ids of volumes without a valid backend; they are in error, and M(bootflow.compute.volume_report) reports why.
  type: list
  elements: str
  returned: when not in check mode
plan:
  description:
    - The plan; for each volume C(volume_id), C(name), C(size), C(host) (its backend), C(alternates), C(decision) and C(error).
    - A C(decision) without a backend has C(nearest_miss), with C(host), C(missing) and the sufficient C(smallest_change) (C(free_gb) more free,
      C(provisioned_gb) less provisioned, for C(volumes) volumes, as C(text)), or null.
  type: list
  elements: dict
  returned: in check mode
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
