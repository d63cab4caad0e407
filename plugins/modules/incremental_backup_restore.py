#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: incremental_backup_restore
short_description: Make images of incremental backups
version_added: "0.9.0"
description:
  - >-
    The phase V(begin) checks all requested images and writes their records to the ledger. The phase V(work) has the hosts of the backups make the files
    (M(bootflow.compute.instance_backup_image)), V(store) has hosts of stores receive what other hosts make, and V(finish) writes the results.
  - An image is as that of a snapshot at the time of the backup. A boot, a rebuild and a revert can use it.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
attributes:
  check_mode:
    support: full
    details: "The request runs through the same transaction, which is rolled back; the hosts look at the files."
  diff_mode: {support: full}
  idempotent: {support: full, details: A backup whose image has the name is left alone.}
options:
  backup_restores:
    description:
      - The images, each with C(name) (of the image) and C(backup) (its id) or C(instance) (name or UUID, whose newest backup is meant), and C(store).
      - Read from the variable C(bootflow_backup_restores).
    type: list
    elements: raw
    required: true
  image_stores:
    description:
      - The stores of images.
      - Read from the variable C(bootflow_image_stores), else V([]).
    type: raw
  project:
    description:
      - Only backups of this project.
      - Read from the variable C(bootflow_project).
    type: str
  phase:
    description: V(begin) and V(finish) run on the controller, V(work) on the hosts of the backups, V(store) on hosts of stores.
    type: str
    choices: [begin, work, store, finish]
    default: begin
  print_table:
    description: Print the images. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Begin to make an image of the newest backup of an instance
  bootflow.compute.incremental_backup_restore:
    backup_restores:
      - name: web-1 restored
        instance: web-1

- name: Write the results
  bootflow.compute.incremental_backup_restore:
    phase: finish
"""

RETURN = r"""
---
compute:
  description: Hosts with backups of which images are made.
  type: list
  elements: str
  returned: in the phase begin
stores:
  description: Hosts of stores that receive what other hosts make; empty in check mode.
  type: list
  elements: str
  returned: in the phase begin
restores:
  description: The images to make, as later phases know them.
  type: list
  elements: dict
  returned: in the phase begin
unchanged:
  description: The images that are there.
  type: list
  elements: dict
  returned: in the phase begin
outcomes:
  description: The outcome of each image of the host, by its id.
  type: dict
  returned: in the phases work and store
images:
  description: The images that were made or were there, each with C(id), C(name), C(backup) (its id), C(instance) (its name) and C(store).
  type: list
  elements: dict
  returned: in the phase finish
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
