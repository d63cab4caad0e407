#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: ledger
short_description: Create, upgrade, back up and purge the ledger
version_added: "0.9.0"
description:
  - >-
    The ledger is the database of the collection, an sqlite file or a PostgreSQL database.
  - >-
    A ledger of a newer version is rejected with an explanation.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller, bootflow.compute.shared.run_limit]
attributes:
  diff_mode: {support: full}
options:
  state:
    description:
      - V(migrated) applies the missing revisions; an sqlite file is created with mode 0600.
      - V(backup) copies an sqlite ledger to O(dest), also while runs write to it. For PostgreSQL use
        C(pg_dump).
      - V(purged) removes deleted instances and their history that are older than O(history_retention_days), and old
        runs and notifications. Existing instances keep all of their history.
      - V(capacity_recorded) writes what all hosts have and what is in use, once a day (UTC), for M(bootflow.compute.report).
      - In check mode nothing is written; the result shows what would be done.
    type: str
    choices: [migrated, backup, purged, capacity_recorded]
    default: migrated
  dest:
    description:
      - With O(state=backup), the file to create on the controller (mode 0600). An existing file is never replaced.
      - Read from the variable C(bootflow_ledger_backup).
    type: path
  history_retention_days:
    description:
      - With O(state=purged), number of days to keep history; 0 keeps it forever.
      - Read from the variable C(bootflow_history_retention_days), else V(90).
    type: float
  use_reserve:
    description:
      - With O(state=migrated), give up the reserve of an sqlite ledger when its disk is full, so that the tasks that follow can write.
      - The reserve is the file C(LEDGER-reserve) of 16 MiB. It is made where the disk has four times that room, and made again once it has.
    type: bool
    default: false
  print_revision:
    description: With O(state=migrated), print which ledger it is and its revision, also where nothing had to be done.
    type: bool
    default: false
  print_table:
    description: Print what was copied or purged, or in check mode would be done. Read from the variable C(bootflow_print_table), else V(true).
    type: bool
"""

EXAMPLES = r"""
---
- name: Create or upgrade the ledger
  bootflow.compute.ledger:
    ledger_url: sqlite:////var/lib/bootflow/ledger.db

- name: Use PostgreSQL with TLS and a password file
  bootflow.compute.ledger:
    ledger_url: postgresql://bootflow@db.example.org/bootflow
    ledger_password_file: /etc/bootflow/ledger.password
    ledger_sslmode: verify-full
    ledger_sslrootcert: /etc/bootflow/ca.pem

- name: Back up the sqlite file
  bootflow.compute.ledger:
    state: backup
    dest: /var/backups/bootflow/ledger-{{ now(utc=true, fmt='%Y%m%dT%H%M%SZ') }}.db

- name: Record the capacity of the day
  bootflow.compute.ledger:
    state: capacity_recorded

- name: Purge history older than 90 days
  bootflow.compute.ledger:
    state: purged
    history_retention_days: 90
"""

RETURN = r"""
---
ledger:
  description: URL of the ledger, without a password.
  type: str
  returned: success
  sample: sqlite:////var/lib/bootflow/ledger.db
ledger_id:
  description: Id of the ledger, which marks what hosts have of it; null in check mode before the ledger has one.
  type: str
  returned: success and state is migrated
revision:
  description: Current revision (in check mode, the revision after the upgrade).
  type: str
  returned: success and state is migrated
  sample: "0020"
applied:
  description: Applied revisions.
  type: list
  elements: str
  returned: success and state is migrated
  sample: ["0020"]
plan:
  description: Revisions that were, or in check mode would be, applied, with their descriptions.
  type: list
  elements: dict
  returned: success and state is migrated
  sample: [{"revision": "0020", "description": "First shape of the ledger"}]
ask:
  description:
    - Compute hosts with a pending cleanup that may still use a volume. The playbook boot lets them report before it accepts a
      request, so that a request for such a volume is accepted once they are back.
    - Compute hosts of instances that a run left in the middle of an operation when it died. Their reports settle these instances.
  type: list
  elements: str
  returned: success and state is migrated
run_limit:
  description: The hosts within the limit of ansible-playbook. Without a limit, null.
  type: list
  elements: str
  returned: success and state is migrated
dest:
  description: Path of the backup.
  type: str
  returned: success and state is backup
size:
  description: Size of the backup in bytes.
  type: int
  returned: success and state is backup, not in check mode
purged:
  description: Number of rows that were, or in check mode would be, removed from each table.
  type: dict
  returned: success and state is purged
  sample: {"instances": 3, "instance_actions": 6}
"""
