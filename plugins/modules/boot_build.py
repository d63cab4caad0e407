#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: boot_build
short_description: Build the instances that were placed on a host
version_added: "0.9.0"
description:
  - >-
    The part of a boot that works on a host, task_states C(networking), C(block_device_mapping) and C(spawning), then ACTIVE. Defines managed networks, fetches
    images into the host's cache and checks them, creates root, ephemeral and swap disks, connects volumes with the connector that the host variable
    C(bootflow_volume_attach) selects, writes the config drive, defines the domain, starts it, and waits for the guest.
  - >-
    One task per host handles all of its builds. A build that fails is undone on the host, then rescheduled or set to
    ERROR; the other builds and the play continue.
  - >-
    Where the host has the image, and the builds have no volumes, no tagged devices and no wait for the guest, all of this is one call of
    M(bootflow.compute.instance_build), and the stages are journalled afterwards. In the first round the outcome may be
    written by the next task on the controller, a few seconds later.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller, bootflow.compute.shared.user_data]
options:
  images:
    description: The images that requests may name. Read from the variable C(bootflow_images).
    type: raw
attributes:
  check_mode: {support: full, details: Does nothing; the plan is shown by M(bootflow.compute.boot_schedule).}
"""

EXAMPLES = r"""
---
- name: Build the instances of the host
  bootflow.compute.boot_build:
"""

RETURN = r"""
---
builds: {description: "Builds whose guests run, each with the seconds that its stages took.", type: list, elements: dict, returned: success,
         sample: [{name: web-1, uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11, stages: {networking: 0.1, block_device_mapping: 1.4, spawning: 0.8}}]}
failed_builds: {description: "Builds that failed, each with its stage, its error and its result (V(rescheduled), V(error) or V(gone)).", type: list,
                elements: dict, returned: success, sample: []}
"""
