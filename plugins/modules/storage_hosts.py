#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: storage_hosts
short_description: Name the storage hosts that have something to do
version_added: "0.1.0"
description:
  - Asks the ledger which storage hosts have volumes to make, extend or delete, or targets to make, for this run, and which have targets that
    nobody uses any more. M(bootflow.compute.storage_work) does it there.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
attributes:
  check_mode:
    support: full
    details: Names none.
  diff_mode:
    support: none
  idempotent:
    support: full
requirements:
  - SQLAlchemy >= 2.0 (on the controller)
  - alembic (on the controller)
  - psycopg >= 3 (on the controller, with a PostgreSQL ledger)
notes:
  - It runs on the controller, inside the ansible-playbook process; nothing of it is copied to a host.
"""

EXAMPLES = r"""
---
- name: Ask which storage hosts have something left to do
  bootflow.compute.storage_hosts:
  register: bootflow_storage_left
"""

RETURN = r"""
---
hosts:
  description: Storage hosts of the inventory that have something to do.
  type: list
  elements: str
  returned: success
missing:
  description: Storage hosts that have something to do and are not in the inventory.
  type: list
  elements: str
  returned: success

error_code:
  description: The kind of error, one stable word.
  type: str
  returned: failure
  sample: LedgerMissing
status:
  description: The same as an HTTP status, as Cinder maps it.
  type: int
  returned: failure
  sample: 400
remedy:
  description: What to do about it.
  type: str
  returned: failure
retryable:
  description: Whether another try might do better.
  type: bool
  returned: failure
"""
