#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: image_stage
short_description: Do the pending work of the image stores of a host
version_added: "0.9.0"
description:
  - >-
    Does the work that the phase V(begin) of M(bootflow.compute.image_import) or M(bootflow.compute.image_delete) has left: writes the bytes of images to
    the stores of the current host, and removes the files of deleted images there, with M(bootflow.compute.image_file). For V(localhost) these are the
    stores of the kinds C(controller) and C(shared).
  - >-
    A file of the controller is copied to the host first. Bytes are verified before the image is active. The phase V(finish) of
    M(bootflow.compute.image_import) or M(bootflow.compute.image_delete) writes what became of each image to the ledger.
  - The failure of one image does not affect the others, and the play continues. The lease of the run is renewed while the host works.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller]
options:
  image_stores:
    description: The stores of images. Read from the variable C(bootflow_image_stores).
    type: raw
  image_imports:
    description:
      - The entries that M(bootflow.compute.image_import) began with, which say where the bytes are.
      - Read from the variable C(bootflow_image_imports).
    type: list
    elements: raw
attributes:
  check_mode: {support: full, details: Does nothing.}
"""

EXAMPLES = r"""
---
- name: Write and remove files of images
  bootflow.compute.image_stage:
"""

RETURN = r"""
---
uploaded:
  description: Ids of images whose bytes are in a store of this host now.
  type: list
  elements: str
  returned: success
removed:
  description: Ids of deleted images whose files were removed.
  type: list
  elements: str
  returned: success
image_errors:
  description: Errors of images, by id.
  type: dict
  returned: success
"""
