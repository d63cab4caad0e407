#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_schedule
short_description: Choose backends for volumes
version_added: "0.1.0"
description:
  - >-
    Second stage of making volumes, once for each round. Filters and weighs the backends for every volume of this
    run that waits, and reserves their room in the same transaction.
  - >-
    In a boot these are the volumes that instances need and that have got a host.
  - >-
    In check mode it prints the plan (for each volume the backend, the alternates, and why every other backend was
    turned down) and touches nothing.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.volume
  - bootflow.compute.volume_scheduler
attributes:
  check_mode:
    support: full
    details: Prints and returns the plan; the transaction is rolled back.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  volumes:
    description:
      - The wished volumes, as in M(bootflow.compute.volume_accept); only the plan of check mode needs them.
      - Read from the variable C(bootflow_volumes).
    type: list
    elements: raw
  round:
    description: Which round it is. In check mode the plan is shown in the first.
    type: int
    default: 1
  print_table:
    description: Print the plan in check mode. Read from the variable C(bootflow_print_table), else true.
    type: bool
requirements:
  - SQLAlchemy >= 2.0 (on the controller)
  - alembic (on the controller)
  - psycopg >= 3 (on the controller, with a PostgreSQL ledger)
notes:
  - It runs on the controller, inside the ansible-playbook process; nothing of it is copied to a host.
"""

EXAMPLES = r"""
---
- name: Place what this run has accepted
  bootflow.compute.volume_schedule:
  register: scheduled
"""

RETURN = r"""
---
hosts:
  description: Storage hosts that have something to do for this run.
  type: list
  elements: str
  returned: success
  sample: [storage1]
placed:
  description: Where each volume was placed in this round, with C(name), C(id), C(pool_host) and C(alternates).
  type: list
  elements: dict
  returned: when not in check mode
not_placed:
  description: Ids of volumes that no backend was found for; they are in error, M(bootflow.compute.volume_report) tells why.
  type: list
  elements: str
  returned: when not in check mode
plan:
  description: The plan; for each volume C(volume_id), C(name), C(size), C(host) (its backend), C(alternates), C(decision) and C(error).
  type: list
  elements: dict
  returned: in check mode
errors:
  description: Every error of the request, with its path, code, status, message and remedy.
  type: list
  elements: dict
  returned: failure
failed_items:
  description:
    - What failed, each item with C(name), C(id), C(host), C(state), C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).
    - Missing if the task failed as a whole.
  type: list
  elements: dict
  returned: failure
error_code:
  description: The kind of error, one stable word of docs/errors.md.
  type: str
  returned: failure
  sample: NoValidBackend
status:
  description: The HTTP status that Nova or Cinder gives for this error.
  type: int
  returned: failure
  sample: 500
remedy:
  description: What to do about it.
  type: str
  returned: failure
retryable:
  description: Whether the same request may succeed without a change, on another host or backend, or at another time.
  type: bool
  returned: failure
"""
