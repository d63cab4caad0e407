#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: compute_host_state
short_description: Disable or enable compute hosts, or say that they are down
version_added: "0.1.0"
description:
  - A host that is disabled or forced down gets no new instances. What runs there goes on.
  - This stands beside the inventory's C(bootflow_disabled), which a host can be disabled with as well, and is kept in the ledger.
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
  hosts:
    description:
      - Compute hosts that have reported.
      - Read from the variable C(bootflow_host).
    type: list
    elements: str
    required: true
  state:
    description:
      - V(disabled) and V(enabled) are one pair, V(forced_down) and V(up) another. A host may be disabled and forced down at once.
      - V(up) ends V(forced_down); whether the host is up then is told by its reports.
      - Read from the variable C(bootflow_host_state).
    type: str
    choices: [enabled, disabled, forced_down, up]
    required: true
  reason:
    description:
      - Why it is V(disabled) or V(forced_down), at most 255 characters. The scheduler's explanations tell it.
      - Read from the variable C(bootflow_host_reason).
    type: str
requirements:
  - SQLAlchemy >= 2.0 (on the controller)
  - alembic (on the controller)
  - psycopg >= 3 (on the controller, with a PostgreSQL ledger)
notes:
  - It runs on the controller, inside the ansible-playbook process; nothing of it is copied to a host.
"""

EXAMPLES = r"""
---
- name: Let kvm3 take no new instances
  bootflow.compute.compute_host_state:
    hosts: [kvm3]
    state: disabled
    reason: gets more memory on Monday
"""

RETURN = r"""
---
changes:
  description: What changed, each with C(host), C(what), C(from) and C(to).
  type: list
  elements: dict
  returned: success
hosts:
  description: The hosts with C(disabled), C(disabled_reason), C(forced_down), C(forced_down_reason) and C(by_inventory). In check mode as they are.
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
