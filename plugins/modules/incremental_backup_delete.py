#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: incremental_backup_delete
short_description: Delete incremental backups
version_added: "0.9.0"
description:
  - >-
    The phase V(begin) marks backups as deleting, V(work) has their hosts remove them (M(bootflow.compute.instance_backup_removal)), and V(finish) writes
    the results.
  - A backup that a remaining one needs is never deleted. Naming it is an error (C(BackupInUse)).
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.backup_selection
  - bootflow.compute.ledger
attributes:
  check_mode: {support: full, details: "The request runs through the same transaction, which is rolled back."}
  diff_mode: {support: full}
  idempotent: {support: full, details: With O(backup_keep). A named backup must be there.}
options:
  backup_keep:
    description:
      - How many of the newest backups each selected instance keeps. Their parents stay, too.
      - Read from the variable C(bootflow_backup_keep).
    type: int
  phase:
    description: V(begin) and V(finish) run on the controller, V(work) on the hosts of the backups.
    type: str
    choices: [begin, work, finish]
    default: begin
  print_table:
    description: Print the backups. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Begin to delete all backups of an instance but the newest seven
  bootflow.compute.incremental_backup_delete:
    names: [web-1]
    backup_keep: 7

- name: Write the results
  bootflow.compute.incremental_backup_delete:
    phase: finish
"""

RETURN = r"""
---
compute:
  description: Hosts with backups to remove; empty in check mode.
  type: list
  elements: str
  returned: in the phase begin
backups:
  description: The backups to remove, as later phases know them.
  type: list
  elements: dict
  returned: in the phase begin
outcomes:
  description: The outcome of each backup of the host, by its id.
  type: dict
  returned: in the phase work
deleted:
  description: The deleted backups, each with C(id), C(instance) (its name) and C(kind).
  type: list
  elements: dict
  returned: in the phase finish
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
