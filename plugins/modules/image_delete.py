#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: image_delete
short_description: Delete images of the ledger
version_added: "0.9.0"
description:
  - >-
    The phase V(begin) deletes the records: from then on no request can name the images. Then M(bootflow.compute.image_stage) removes their files from the
    stores, and the phase V(finish) reports the result.
  - >-
    Refused are images that are protected, that belong to another project, whose bytes a live run writes, or from which an instance or volume is being
    made, or an instance rescued. Instances that were made from an image keep their disks.
  - If the host of a store does not answer, the file stays recorded. The same command removes it later.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.image_selection
attributes:
  check_mode: {support: full, details: "The request runs through the same transaction, which is rolled back."}
  diff_mode: {support: full}
  idempotent: {support: partial, details: "With O(missing_ok)."}
options:
  missing_ok:
    description: Ignore names and ids of images that do not exist. Read from the variable C(bootflow_missing_ok), else false.
    type: bool
  image_stores:
    description: The stores of images. Read from the variable C(bootflow_image_stores).
    type: raw
  phase:
    description: V(begin) deletes the records, V(finish) reports the result.
    type: str
    choices: [begin, finish]
    default: begin
  print_table:
    description: Print the result, or in check mode what would be deleted. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Delete an image
  bootflow.compute.image_delete:
    image_names: [web]

- name: Remove its file from a store of the controller
  bootflow.compute.image_stage:

- name: Report the result
  bootflow.compute.image_delete:
    phase: finish
"""

RETURN = r"""
---
images:
  description: The images that are deleted, with C(id) and C(name).
  type: list
  elements: dict
  returned: in the phase begin
not_found:
  description: Names and ids of which there is no image.
  type: list
  elements: str
  returned: in the phase begin
storage:
  description: Hosts of the inventory whose stores have files to remove; empty in check mode. The controller is not among them.
  type: list
  elements: str
  returned: in the phase begin
deleted:
  description: Images without a file, with C(id) and C(name).
  type: list
  elements: dict
  returned: in the phase finish
pending:
  description: Images whose file is still in C(stores).
  type: list
  elements: dict
  returned: in the phase finish
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
