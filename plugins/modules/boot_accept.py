#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: boot_accept
short_description: Validate a request and enter it into the ledger
version_added: "0.1.0"
description:
  - >-
    First stage of a boot. Validates all entries and tells all their errors at once, and the settings of the
    scheduler and of the hosts too; expands counts, checks quotas, and writes instances, disks, ports and the action C(create) in one transaction, or nothing.
  - >-
    An instance that is already there as asked is left alone; one that a dead run left half-built is taken over.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.request
  - bootflow.compute.scheduler
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
  cross_az_attach:
    description:
      - Whether a volume may be in another availability zone than its instance.
      - Read from the variable C(bootflow_cross_az_attach), else true.
    type: bool
  facts_max_age:
    description:
      - Hosts whose last report is older than this many seconds are named in RV(stale_hosts).
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
- name: Accept two web servers
  bootflow.compute.boot_accept:
    instances:
      - name: web
        max_count: 2
        flavor: m1.small
        image: debian-12
        networks: [{network: servers}]
  register: accepted
"""

RETURN = r"""
---
reservation_id:
  description: What the new instances of this call share; empty when nothing was new.
  type: str
  returned: success
  sample: r-1a2b3c4d
created:
  description: UUIDs of new instances.
  type: list
  elements: str
  returned: success
resumed:
  description: UUIDs of instances taken over from a dead run or built again after an error.
  type: list
  elements: str
  returned: success
unchanged:
  description: UUIDs of instances that are as asked.
  type: list
  elements: str
  returned: success
stale_hosts:
  description: Hosts to ask for a report before scheduling.
  type: list
  elements: str
  returned: success
volumes:
  description: Whether there is something to do, and instances of the request have volumes.
  type: bool
  returned: success
stale_storage_hosts:
  description: Storage hosts to ask for a report before volumes are scheduled; none where the request makes none.
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
