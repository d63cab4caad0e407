#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: boot_passwords
short_description: Return the admin passwords of this run
version_added: "0.1.0"
description:
  - >-
    Returns the passwords that this run gave to the instances it started. They are in no ledger and no log, and
    are known to this run only.
  - >-
    Use C(no_log) on the task.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.request
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: partial
    details: A later run knows only the passwords that the request itself names.
requirements:
  - SQLAlchemy >= 2.0 (on the controller)
  - alembic (on the controller)
  - psycopg >= 3 (on the controller, with a PostgreSQL ledger)
notes:
  - It runs on the controller, inside the ansible-playbook process; nothing of it is copied to a host.
"""

EXAMPLES = r"""
---
- name: Keep the passwords for the plays that follow
  bootflow.compute.boot_passwords:
  register: admin_passwords
  no_log: true
"""

RETURN = r"""
---
admin_passwords:
  description: Name of the instance to its password.
  type: dict
  returned: success

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
