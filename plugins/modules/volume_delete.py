#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_delete
short_description: Delete volumes
version_added: "0.1.0"
description:
  - >-
    In the phase V(begin) it marks the volumes as deleting, after it looked at all of them; one that is attached, or
    has snapshots, is refused. Then M(bootflow.compute.storage_stage) wipes and removes them on their hosts, and the
    phase V(finish) tells what is gone.
  - >-
    A volume that never got a backend goes at once. What could not be removed stays in the ledger.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.volume_selection
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  all:
    description: All volumes of the O(project). Read from the variable C(bootflow_volume_delete_all), else false.
    type: bool
  cascade:
    description: Delete their snapshots with them. Read from the variable C(bootflow_volume_cascade), else false.
    type: bool
  force:
    description: Whatever their status is, unless they are attached. Read from the variable C(bootflow_volume_force), else false.
    type: bool
  unmanage:
    description:
      - >-
        Forget the volumes, and with O(cascade) their snapshots, without asking their storage hosts for anything: what they hold stays there.
        For a storage host that never comes back. Read from the variable C(bootflow_volume_unmanage), else false.
      - The same volumes are refused as in a deletion. What a storage host that is not in the inventory was still to stop exporting counts as stopped.
    type: bool
  phase:
    description: Whether to mark what is to go, or to tell what is gone.
    type: str
    choices: [begin, finish]
    default: begin
  print_table:
    description: Print what is gone, what would go, and which names no volume has. Read from the variable C(bootflow_print_table), else true.
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
- name: Mark what is to go
  bootflow.compute.volume_delete:
    volume_names: [data]
  register: deleting

- name: Tell what is gone
  bootflow.compute.volume_delete:
    phase: finish

- name: Forget what was on a storage host that burnt down
  bootflow.compute.volume_delete:
    volume_names: [data]
    unmanage: true
"""

RETURN = r"""
---
volumes:
  description: The volumes that are to go, with C(name), C(id), C(pool_host) and C(snapshots) (names of those that go with them).
  type: list
  elements: dict
  returned: in the phase begin
not_found:
  description: Names and ids that no volume has.
  type: list
  elements: str
  returned: in the phase begin
hosts:
  description: Storage hosts that have to remove something; none in check mode.
  type: list
  elements: str
  returned: in the phase begin
deleted:
  description: The volumes that are gone.
  type: list
  elements: dict
  returned: in the phase finish
left:
  description: The volumes that could not be removed.
  type: list
  elements: dict
  returned: in the phase finish
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
  sample: InvalidVolume
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
