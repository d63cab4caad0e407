#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: ledger
short_description: Make the ledger or bring it to this version
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
    description: V(migrated) applies the revisions that are missing; a sqlite file is made with mode 0600.
    type: str
    choices: [migrated]
    default: migrated
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
  returned: success
  sample: "0001"
applied:
  description: The revisions applied.
  type: list
  elements: str
  returned: success
  sample: ["0001"]

error_code:
  description: The kind of error, one stable word.
  type: str
  returned: failure
  sample: InvalidRequest
status:
  description: The same as an HTTP status, as Nova maps it.
  type: int
  returned: failure
  sample: 400
remedy:
  description: What to do about it.
  type: str
  returned: failure
retryable:
  description: Whether another host might do better.
  type: bool
  returned: failure
"""
