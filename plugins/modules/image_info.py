#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: image_info
short_description: Read images from the ledger
version_added: "0.9.0"
description:
  - Returns the images of the ledger, and the stores that have their bytes. Images of the inventory (C(bootflow_images)) are not among them.
  - A project sees its own images and public ones, and community images that it names by their ids.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.ledger_reader
  - bootflow.compute.shared.controller
  - bootflow.compute.shared.run_limit
  - bootflow.compute.image_selection
options:
  details:
    description:
      - Each name or id must be that of one image. One that is of none (C(LedgerImageNotFound)) or of several (C(ImageAmbiguous)) is an error.
      - With O(print_table), everything about each image is printed.
    type: bool
    default: false
  print_table:
    description: Print the result.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
- name: List the images of a project
  bootflow.compute.image_info:
    project: red
  register: listed

- name: Read one image
  bootflow.compute.image_info:
    image_names: [web]
    details: true
  register: shown
"""

RETURN = r"""
---
images:
  description:
    - The images with C(id), C(name), C(project), C(user), C(status) (queued, saving, active, killed), C(visibility), C(protected), C(size) (bytes),
      C(checksum) (sha256), C(disk_format), C(container_format), C(min_disk), C(min_ram), C(properties), C(instance_uuid), C(created_at) and C(updated_at).
    - C(stores) are the stores that have all bytes, C(places) has the progress in each store. C(fault) says why the bytes of a killed image did not arrive.
  type: list
  elements: dict
  returned: success
"""
