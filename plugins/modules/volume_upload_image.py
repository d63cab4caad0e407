#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later


from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_upload_image
short_description: Make images of volumes
version_added: "0.9.0"
description:
  - >-
    The phase V(begin) checks all requested images and writes their records to the ledger, with the volumes as C(uploading). The phase V(work) has the
    storage hosts make the files (M(bootflow.compute.volume_lvm_image)), V(store) has hosts of stores receive what other hosts make, and V(finish) writes
    the results, and gives the volumes their status back.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
attributes:
  check_mode:
    support: full
    details: "The request runs through the same transaction, which is rolled back; storage hosts look at the volumes and at their room."
  diff_mode: {support: full}
  idempotent: {support: full, details: A volume whose image has the name is left alone.}
options:
  volume_uploads:
    description:
      - The images, each with C(name) (of the image) and C(volume) (name or id), C(disk_format) (V(raw) or V(qcow2)), C(store), C(visibility),
        C(protected), and C(force) (allow a volume in use, with O(enable_force_upload)).
      - Read from the variable C(bootflow_volume_uploads).
    type: list
    elements: raw
    required: true
  enable_force_upload:
    description:
      - Whether C(force) counts.
      - Read from the variable C(bootflow_enable_force_upload), else V(false).
    type: bool
  image_stores:
    description:
      - The stores of images.
      - Read from the variable C(bootflow_image_stores), else V([]).
    type: raw
  project:
    description:
      - Project of the volumes and images.
      - Read from the variable C(bootflow_project), else V(default).
    type: str
  phase:
    description: V(begin) and V(finish) run on the controller, V(work) on storage hosts, V(store) on hosts of stores.
    type: str
    choices: [begin, work, store, finish]
    default: begin
  print_table:
    description: Print the images. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Begin to make an image of a volume
  bootflow.compute.volume_upload_image:
    volume_uploads:
      - name: data-2026-11
        volume: data
        disk_format: qcow2

- name: Write the results
  bootflow.compute.volume_upload_image:
    phase: finish
"""

RETURN = r"""
---
storage:
  description: Storage hosts with work to do.
  type: list
  elements: str
  returned: in the phase begin
stores:
  description: Hosts of stores that receive what storage hosts make; empty in check mode.
  type: list
  elements: str
  returned: in the phase begin
uploads:
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
  description: The outcome of each volume of the host, by its id.
  type: dict
  returned: in the phases work and store
images:
  description: The images that were made or were there, each with C(id), C(name), C(volume_id), C(volume) (its name) and C(store).
  type: list
  elements: dict
  returned: in the phase finish
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
