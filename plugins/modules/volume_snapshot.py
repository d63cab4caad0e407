#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_snapshot
short_description: Make and delete snapshots of volumes
version_added: "0.1.0"
description:
  - >-
    In the phase V(begin) it enters the wished snapshots into the ledger, after it looked at all of them. Then
    M(bootflow.compute.storage_stage) makes and removes them, and the phase V(finish) tells what became of them.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.volume
attributes:
  check_mode:
    support: full
    details: The request goes through the same transaction, which is rolled back.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  snapshots:
    description:
      - The snapshots, each with C(name), C(volume) (name or id), C(description), C(metadata), C(force) (of a volume in use too) and
        C(state) (V(present) or V(absent)).
      - Read from the variable C(bootflow_snapshots).
    type: list
    elements: raw
    required: true
  phase:
    description: Whether to tell which storage hosts should report first, to begin, or to tell what became of it.
    type: str
    choices: [select, begin, finish]
    default: begin
  facts_max_age:
    description:
      - Storage hosts whose last report is older than this many seconds are named in RV(stale_hosts).
      - Read from the variable C(bootflow_facts_max_age), else 300.
    type: int
  print_table:
    description: Print what became of them, in check mode what would be made and deleted. Read from the variable C(bootflow_print_table), else true.
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
- name: Begin a snapshot, and the end of another
  bootflow.compute.volume_snapshot:
    snapshots:
      - name: before-upgrade
        volume: data
      - name: old
        volume: data
        state: absent

- name: Tell what became of them
  bootflow.compute.volume_snapshot:
    phase: finish
"""

RETURN = r"""
---
created:
  description: Ids of new snapshots.
  type: list
  elements: str
  returned: in the phase begin
resumed:
  description: Ids of snapshots taken over from a dead run or made again after an error.
  type: list
  elements: str
  returned: in the phase begin
deleting:
  description: Ids of snapshots that are to go.
  type: list
  elements: str
  returned: in the phase begin
unchanged:
  description: Ids of snapshots that are as asked.
  type: list
  elements: str
  returned: in the phase begin
hosts:
  description: Storage hosts that have something to do; none in check mode.
  type: list
  elements: str
  returned: in the phase begin
snapshots:
  description: What was made or removed.
  type: list
  elements: dict
  returned: in the phase finish
left:
  description: What is not as asked.
  type: list
  elements: dict
  returned: in the phase finish
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
  sample: InvalidRequest
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
