#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: image_export
short_description: Export an image of the ledger to a file
version_added: "0.9.0"
description:
  - >-
    Writes the bytes of one image to a file of the controller. They are written to another name and compared with the checksum of the image, so that the
    file is whole as soon as it has its name.
  - >-
    The phase V(begin) exports images of stores of the controller. For an image of a host's store it names the host, which the phase V(finish) runs on.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.image_selection
attributes:
  check_mode: {support: full, details: "A file that is there is compared. No image is read."}
  diff_mode: {support: full}
options:
  dest:
    description: The file on the controller. Its directory must exist. Read from the variable C(bootflow_image_dest).
    type: path
    required: true
  overwrite:
    description:
      - Replace a file that has other content. Without it, such a file is an error.
      - Read from the variable C(bootflow_image_overwrite), else false.
    type: bool
  image_stores:
    description: The stores of images. Read from the variable C(bootflow_image_stores).
    type: raw
  phase:
    description: V(begin) on the controller, V(finish) on the host of a store.
    type: str
    choices: [begin, finish]
    default: begin
  print_table:
    description: Print what was, or in check mode would be, written. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Export an image
  bootflow.compute.image_export:
    image_names: [web]
    dest: /srv/backup/web.qcow2
"""

RETURN = r"""
---
image:
  description: The image, as in RV(bootflow.compute.image_info#module:images).
  type: dict
  returned: success
dest:
  description: The file.
  type: str
  returned: success
storage:
  description: The host from which the phase V(finish) reads the file; empty in check mode, and where there is nothing to do.
  type: list
  elements: str
  returned: in the phase begin
"""
