#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_accept
short_description: Validate a request for volumes and enter it into the ledger
version_added: "0.1.0"
description:
  - >-
    First stage of making volumes. Validates all entries and tells all their errors at once, and those of the volume
    types, the scheduler's settings and the storage hosts too; then counts the quotas and writes the volumes in one
    transaction, or nothing.
  - >-
    A volume that is already there as asked is left alone; one that a dead run left half-made, or that ended in
    error, is taken over. A name that is there as something else is refused.
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
    support: none
  idempotent:
    support: full
options:
  volumes:
    description:
      - The wished volumes; each has a C(name) of its own in its project, and C(size) (GB), C(description), C(volume_type), C(metadata),
        C(availability_zone), C(scheduler_hints), C(multiattach); and one of C(image_id) or C(image), C(snapshot_id) and C(source_volid),
        by name or id, where it is not to be empty.
      - Read from the variable C(bootflow_volumes).
    type: list
    elements: raw
    required: true
  facts_max_age:
    description:
      - Storage hosts whose last report is older than this many seconds are named in RV(stale_hosts).
      - Read from the variable C(bootflow_facts_max_age), else 300.
    type: int
  print_table:
    description: Print a line when there is nothing to do. Read from the variable C(bootflow_print_table), else true.
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
- name: Accept a volume from an image, and an empty one
  bootflow.compute.volume_accept:
    volumes:
      - name: root
        size: 10
        image: debian-12
      - name: data
        size: 100
        volume_type: fast
  register: accepted
"""

RETURN = r"""
---
created:
  description: Ids of new volumes.
  type: list
  elements: str
  returned: success
resumed:
  description: Ids of volumes taken over from a dead run or made again after an error.
  type: list
  elements: str
  returned: success
unchanged:
  description: Ids of volumes that are as asked.
  type: list
  elements: str
  returned: success
stale_hosts:
  description: Storage hosts to ask for a report before scheduling.
  type: list
  elements: str
  returned: success
errors:
  description: Every error of the request, with its path, code, status, message and remedy.
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
