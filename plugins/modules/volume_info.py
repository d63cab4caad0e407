#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_info
short_description: Read volumes, snapshots and backends from the ledger
version_added: "0.9.0"
description:
  - >-
    Returns the volumes of the ledger with their snapshots, and the storage backends with their free capacity. The
    result contains no secrets.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.ledger_reader
  - bootflow.compute.shared.controller
  - bootflow.compute.shared.run_limit
  - bootflow.compute.volume_selection
options:
  volume_names:
    description:
      - Names of volumes. An empty list selects no volume; the result then has the backends only.
      - Read from the variable C(bootflow_volume_names).
  events:
    description: Return the journal of each volume and of its snapshots too.
    type: bool
    default: false
  print_table:
    description: Print the result as tables.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
- name: List the volumes of a project
  bootflow.compute.volume_info:
    project: red
  register: found
"""

RETURN = r"""
---
volumes:
  description:
    - The volumes; those in error have a C(fault) with code, message and remedy.
    - >-
      With O(events) each has its journal in C(events), with C(event), C(snapshot_id), C(host), C(start_time), C(finish_time), C(result) and
      C(details), the oldest first. The details of an unexpected error end with its traceback, without values.
  type: list
  elements: dict
  returned: success
snapshots:
  description: The snapshots of these volumes.
  type: list
  elements: dict
  returned: success
backends:
  description: The backends with C(pool_host), C(total_gb), C(free_gb), C(provisioned_gb), C(pending_gb) and their state.
  type: list
  elements: dict
  returned: success
"""
