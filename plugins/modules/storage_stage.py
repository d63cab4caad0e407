#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: storage_stage
short_description: Do what the ledger has for a storage host
version_added: "0.1.0"
description:
  - >-
    Ends the exports that nobody uses any more with M(bootflow.compute.iscsi_target); makes, extends and removes
    volumes and snapshots with M(bootflow.compute.volume_lvm), all of a backend at once; then exports what this run
    attaches, with new CHAP credentials.
  - >-
    Only what is needed is called; a host that has nothing to do is not connected to.
  - >-
    A volume that fails never fails its neighbours, and a host that cannot be reached never fails the play. A volume
    that could not be made is rescheduled where another backend might do better, otherwise in error;
    M(bootflow.compute.volume_report) tells why.
  - >-
    The run's lease is renewed while it works. What it made of a volume that was deleted meanwhile is removed again.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
attributes:
  check_mode:
    support: full
    details: Nothing is done.
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
- name: Make, extend and remove volumes
  bootflow.compute.storage_stage:
"""

RETURN = r"""
---
done:
  description: Ids of volumes and snapshots that are as asked.
  type: list
  elements: str
  returned: success
failed_items:
  description: Volumes and snapshots that ended in error, id to its error.
  type: dict
  returned: success
rescheduled:
  description: Ids of volumes that go to another backend in the next round.
  type: list
  elements: str
  returned: success
unexported:
  description: Ids of attachments whose export ended.
  type: list
  elements: str
  returned: success
exported:
  description: Ids of attachments whose volume is exported.
  type: list
  elements: str
  returned: success
export_errors:
  description: Attachments whose export could not be made or ended, id to its error.
  type: dict
  returned: success

error_code:
  description: The kind of error, one stable word of docs/errors.md.
  type: str
  returned: failure
  sample: LedgerMissing
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
