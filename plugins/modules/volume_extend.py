#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_extend
short_description: Make volumes larger
version_added: "0.1.0"
description:
  - >-
    Marks volumes as extending after it looked at their size, their status, the quotas and the room of their
    backends. M(bootflow.compute.storage_stage) extends them then, also while they are attached.
  - >-
    A volume that is as large as asked is left alone. Volumes never shrink.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.volume
  - bootflow.compute.volume_scheduler
attributes:
  check_mode:
    support: full
    details: The request goes through the same transaction, which is rolled back.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  volumes:
    description:
      - The volumes, each with C(name) or C(id), and C(size) in GB. Other fields of M(bootflow.compute.volume_accept) may be there and are not looked at;
        fields that no volume has are errors.
      - Read from the variable C(bootflow_volumes).
    type: list
    elements: raw
    required: true
  phase:
    description: Whether to tell which storage hosts should report first, or to begin.
    type: str
    choices: [select, begin]
    default: begin
  facts_max_age:
    description:
      - Storage hosts whose last report is older than this many seconds are named in RV(stale_hosts).
      - Read from the variable C(bootflow_facts_max_age), else 300.
    type: int
  print_table:
    description: Print what would be extended in check mode, or that nothing is to be done. Read from the variable C(bootflow_print_table), else true.
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
- name: Begin to extend a volume
  bootflow.compute.volume_extend:
    volumes:
      - name: data
        size: 200
  register: extending
"""

RETURN = r"""
---
volumes:
  description: The volumes that are to grow, with C(name), C(id), C(pool_host), C(size) and C(new_size).
  type: list
  elements: dict
  returned: in the phase begin
unchanged:
  description: Ids of volumes that are as large as asked.
  type: list
  elements: str
  returned: in the phase begin
hosts:
  description: Storage hosts that have something to do; none in check mode.
  type: list
  elements: str
  returned: in the phase begin
compute_hosts:
  description: Compute hosts whose guests have such a volume; none in check mode.
  type: list
  elements: str
  returned: in the phase begin
stale_hosts:
  description: Storage hosts to ask for a report before it is begun.
  type: list
  elements: str
  returned: in the phase select
errors:
  description: Every error of the request, with its path, code, status, message and remedy.
  type: list
  elements: dict
  returned: failure

error_code:
  description: The kind of error, one stable word of docs/errors.md.
  type: str
  returned: failure
  sample: InvalidInput
status:
  description: The HTTP status that Nova or Cinder gives for this error.
  type: int
  returned: failure
  sample: 400
remedy:
  description: What to do about it.
  type: str
  returned: failure
retryable:
  description: Whether the same request may succeed without a change, on another host or backend, or at another time.
  type: bool
  returned: failure
"""
