#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_remove
short_description: Remove deleted instances from a host
version_added: "0.1.0"
description:
  - >-
    Removes domain, disks and config drive of every instance of this run that is marked as deleting on the host,
    disconnects the host from their volumes, and gives their claims back.
  - >-
    A host that does not answer fails nothing here; M(bootflow.compute.instance_delete) with C(phase=finish) tells
    what is left.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
attributes:
  check_mode:
    support: full
    details: Does nothing; O(bootflow.compute.instance_delete#module:phase=begin) tells what would go.
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
- name: Remove
  bootflow.compute.instance_remove:
"""

RETURN = r"""
---
removed:
  description: UUIDs that the host is rid of.
  type: list
  elements: str
  returned: success
problems:
  description: UUID to error, for what could not be removed.
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
