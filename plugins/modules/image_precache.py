#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: image_precache
short_description: Bring images to compute hosts before instances need them
version_added: "0.9.0"
description:
  - >-
    Nova's "aggregates and cache images" (API microversion 2.81). The images come as in a boot, see M(bootflow.compute.image_round): each leaves the
    controller, or the web server, once, whatever the number of hosts.
  - A host that has an image already keeps it. An image that did not arrive on some host fails the task of the last phase, after all others have arrived.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller]
options:
  images:
    description: The images of the inventory. Read from the variable C(bootflow_images).
    type: raw
  names:
    description: >-
      Names or ids of images, of the inventory or of the ledger (of all projects). Read from the variable C(bootflow_precache_images).
    type: list
    elements: str
    required: true
  print_table:
    description: Print a table. Read from the variable C(bootflow_print_table), else true.
    type: bool
  phase:
    description: V(begin) chooses the hosts, V(collect) waits on a host for its images, V(finish) prints what became of them.
    type: str
    choices: [begin, collect, finish]
    required: true
attributes:
  check_mode: {support: full, details: "The images are looked up, and no host is contacted."}
"""

EXAMPLES = r"""
---
- name: Choose images and hosts
  bootflow.compute.image_precache:
    phase: begin
    names: [debian-12]
  register: precaching
"""

RETURN = r"""
---
images:
  description: With O(phase=begin) the hosts that get the images, with O(phase=finish) each image on each host, with C(host), C(image) and C(result).
  type: list
  elements: raw
  returned: phase is begin or finish
lacking:
  description: The path of the file that is there once a host has said that it lacks an image.
  type: str
  returned: success and phase is begin
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
