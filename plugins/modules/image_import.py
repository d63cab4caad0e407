#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: image_import
short_description: Import images into stores
version_added: "0.9.0"
description:
  - >-
    The phase V(begin) checks all entries and writes the records of new images to the ledger. Then M(bootflow.compute.image_stage) writes their bytes
    to the stores, and the phase V(finish) reports the result.
  - >-
    An image that is there is compared by its name: its other fields are changed in place, and other content is refused (C(ImageExists)). An image
    whose bytes did not arrive, or that a dead run has left, is replaced.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller]
attributes:
  check_mode: {support: full, details: "The request runs through the same transaction, which is rolled back. No file but one without a checksum is read."}
  diff_mode: {support: full}
options:
  image_imports:
    description:
      - The images, each with C(name), C(path) (on the controller) or C(url), C(checksum), C(disk_format), and optionally C(min_disk), C(min_ram),
        C(properties), C(store), C(visibility), C(protected) and C(instance). C(docs/images.md) explains them.
      - Read from the variable C(bootflow_image_imports).
    type: list
    elements: raw
    required: true
  image_stores:
    description: The stores of images. Read from the variable C(bootflow_image_stores).
    type: raw
  non_inheritable_image_properties:
    description:
      - Properties that an image with C(instance) does not inherit from the instance's own image.
      - Read from the variable C(bootflow_non_inheritable_image_properties), else C(cache_in_nova) and C(bittorrent).
    type: list
    elements: str
  project:
    description: Project of the images. Read from the variable C(bootflow_project), else V(default).
    type: str
  phase:
    description: V(begin) starts the imports, V(finish) reports the result.
    type: str
    choices: [begin, finish]
    default: begin
  print_table:
    description: Print the result, or in check mode what would be imported. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Begin to import an image from a file of the controller
  bootflow.compute.image_import:
    image_imports:
      - name: web
        path: /srv/build/web.qcow2
        checksum: sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef
        disk_format: qcow2
        min_disk: 10

- name: Write its bytes to a store of the controller
  bootflow.compute.image_stage:

- name: Report the result
  bootflow.compute.image_import:
    phase: finish
"""

RETURN = r"""
---
created:
  description: Ids of new images.
  type: list
  elements: str
  returned: in the phase begin
unchanged:
  description: Ids of images that already match the request.
  type: list
  elements: str
  returned: in the phase begin
changes:
  description: Changed fields of images that were there, with C(id), C(name), C(field), C(from) and C(to).
  type: list
  elements: dict
  returned: in the phase begin
storage:
  description: Hosts of the inventory whose stores are to get bytes; empty in check mode. The controller is not among them.
  type: list
  elements: str
  returned: in the phase begin
images:
  description: Imported images, as RV(bootflow.compute.image_info#module:images).
  type: list
  elements: dict
  returned: in the phase finish
failed_images:
  description: Images whose bytes did not arrive, with their C(fault).
  type: list
  elements: dict
  returned: in the phase finish
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
