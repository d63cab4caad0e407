#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: compute_attachments
short_description: Attach, detach and extend volumes of guests on a compute host
version_added: "0.1.0"
description:
  - >-
    Does on the host what the ledger has for it, one task whatever the number of volumes. It connects volumes that this run exported
    and gives them to their guests, takes those that are leaving from their guests and disconnects the host from them, and has guests
    see that a volume grew.
  - >-
    The variable C(bootflow_volume_attach) of the host tells how it is connected, V(kernel) by the host's initiator, V(qemu) by QEMU's own.
  - >-
    A volume that fails, and a host that does not answer, fail nothing here; M(bootflow.compute.attach_volume) and
    M(bootflow.compute.detach_volume) with C(phase=finish) tell what is left.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
attributes:
  check_mode:
    support: full
    details: Does nothing; O(bootflow.compute.attach_volume#module:phase=begin) tells what would be done.
  diff_mode:
    support: none
  idempotent:
    support: full
requirements:
  - SQLAlchemy >= 2.0 (on the controller)
  - alembic (on the controller)
  - psycopg >= 3 (on the controller, with a PostgreSQL ledger)
notes:
  - It runs on the controller, inside the ansible-playbook process; what it copies to the host are the modules it calls.
"""

EXAMPLES = r"""
---
- name: Connect the host, and give the volumes to their guests
  bootflow.compute.compute_attachments:
"""

RETURN = r"""
---
attached:
  description: UUIDs of the volumes that their guests have now.
  type: list
  elements: str
  returned: success
detached:
  description: UUIDs of the volumes detached from this host.
  type: list
  elements: str
  returned: success
extended:
  description: UUIDs of the volumes whose new size their guests see.
  type: list
  elements: str
  returned: success
problems:
  description: UUID to error, for what could not be done.
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
  sample: 404
remedy:
  description: What to do about it.
  type: str
  returned: failure
retryable:
  description: Whether the same request may succeed without a change, on another host or backend, or at another time.
  type: bool
  returned: failure
"""
