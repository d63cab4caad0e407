#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: ledger
short_description: Make the ledger, bring it to this version, back it up, purge it
version_added: "0.1.0"
description:
  - >-
    The ledger is the memory of the collection: an sqlite file or a PostgreSQL database.
  - >-
    A ledger of a newer version is refused in words, never half-used.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  state:
    description:
      - V(migrated) applies the revisions that are missing; a sqlite file is made with mode 0600.
      - V(backup) copies a sqlite ledger to O(dest), whatever runs are writing to it meanwhile. For PostgreSQL there is
        C(pg_dump).
      - V(purged) removes deleted instances and their history that are older than O(history_retention_days), and old
        runs and notifications. Nothing of a living instance goes.
      - In check mode nothing is written; the result tells what would be.
    type: str
    choices: [migrated, backup, purged]
    default: migrated
  dest:
    description:
      - With O(state=backup), the file to make on the controller (mode 0600). One that is there is never replaced.
      - Read from the variable C(bootflow_ledger_backup).
    type: path
  history_retention_days:
    description:
      - With O(state=purged), how many days what is over is kept, 0 for ever.
      - Read from the variable C(bootflow_history_retention_days), else V(0).
    type: float
requirements:
  - SQLAlchemy >= 2.0 (on the controller)
  - alembic (on the controller)
  - psycopg >= 3 (on the controller, with a PostgreSQL ledger)
notes:
  - It runs on the controller, inside the ansible-playbook process; nothing of it is copied to a host.
"""

EXAMPLES = r"""
---
- name: Make the ledger, or upgrade it
  bootflow.compute.ledger:
    ledger_url: sqlite:////var/lib/bootflow/ledger.db

- name: In PostgreSQL, with TLS, the password in a file
  bootflow.compute.ledger:
    ledger_url: postgresql://bootflow@db.example.org/bootflow
    ledger_password_file: /etc/bootflow/ledger.password
    ledger_sslmode: verify-full
    ledger_sslrootcert: /etc/bootflow/ca.pem

- name: Back up the sqlite file
  bootflow.compute.ledger:
    state: backup
    dest: /var/backups/bootflow/ledger-{{ now(utc=true, fmt='%Y%m%dT%H%M%SZ') }}.db

- name: Forget what was deleted more than 90 days ago
  bootflow.compute.ledger:
    state: purged
    history_retention_days: 90
"""

RETURN = r"""
---
ledger:
  description: Its URL, without a password.
  type: str
  returned: success
  sample: sqlite:////var/lib/bootflow/ledger.db
revision:
  description: The revision it has now (in check mode, would have).
  type: str
  returned: success and state is migrated
  sample: "0001"
applied:
  description: The revisions applied.
  type: list
  elements: str
  returned: success and state is migrated
  sample: ["0001"]
plan:
  description: The revisions applied, or in check mode those that would be, with what each does.
  type: list
  elements: dict
  returned: success and state is migrated
  sample: [{"revision": "0001", "description": "First shape of the ledger"}]
clean_first:
  description:
    - Compute hosts that could not be cleaned when they were to be, and may still use a volume. The playbook boot asks them before it accepts a
      request, so that a request for that volume is not refused when they are back.
  type: list
  elements: str
  returned: success and state is migrated
dest:
  description: The backup.
  type: str
  returned: success and state is backup
size:
  description: Its size in bytes.
  type: int
  returned: success and state is backup, not in check mode
purged:
  description: For each table, how many rows were removed, or in check mode would be.
  type: dict
  returned: success and state is purged
  sample: {"instances": 3, "instance_actions": 6}

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
