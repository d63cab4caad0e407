#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: storage_pending
short_description: List the storage hosts with pending work
version_added: "0.9.0"
description:
  - Reads from the ledger which storage hosts have volumes or snapshots to create, extend or delete for this run, volumes to export,
    unused exports to end, or leftovers of earlier runs to clean up. M(bootflow.compute.storage_stage) does that work on each of them.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller]
attributes:
  check_mode: {support: full, details: Lists none.}
"""

EXAMPLES = r"""
---
- name: List the storage hosts with pending work
  bootflow.compute.storage_pending:
  register: bootflow_next
"""

RETURN = r"""
---
storage:
  description: Storage hosts of the inventory with pending work.
  type: list
  elements: str
  returned: success
missing:
  description: Storage hosts with pending work that are not in the inventory.
  type: list
  elements: str
  returned: success
"""
