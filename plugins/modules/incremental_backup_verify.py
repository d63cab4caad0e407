#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: incremental_backup_verify
short_description: Read incremental backups back
version_added: "0.9.0"
description:
  - >-
    The phase V(begin) selects complete backups, and all that these need; V(work) has their hosts read them (M(bootflow.compute.instance_backup_check)), and
    V(finish) writes into the ledger what they have found.
  - >-
    A damaged backup is an error (C(BackupDamaged)). Neither it nor one that needs it is restored from then on, and the next backup of the instance is full.
    A verification that finds it as it was takes this back.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.backup_selection
  - bootflow.compute.ledger
attributes:
  check_mode: {support: full, details: "Hosts read the backups, too; the ledger stays as it is."}
  diff_mode: {support: full}
  idempotent: {support: full, details: The result is changed if a backup has become damaged or good again.}
options:
  phase:
    description: V(begin) and V(finish) run on the controller, V(work) on the hosts of the backups.
    type: str
    choices: [begin, work, finish]
    default: begin
  print_table:
    description: Print the result. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Select all backups of an instance
  bootflow.compute.incremental_backup_verify:
    names: [web-1]

- name: Write the results
  bootflow.compute.incremental_backup_verify:
    phase: finish
"""

RETURN = r"""
---
compute:
  description: Hosts with backups to read.
  type: list
  elements: str
  returned: in the phase begin
backups:
  description: The backups to read, as later phases know them.
  type: list
  elements: dict
  returned: in the phase begin
outcomes:
  description: The outcome of each backup of the host, by its id.
  type: dict
  returned: in the phase work
verified:
  description: Ids of the backups that are unchanged.
  type: list
  elements: str
  returned: in the phase finish
damaged:
  description: Ids of the backups that are damaged.
  type: list
  elements: str
  returned: in the phase finish
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
