#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: boot_networks
short_description: Plug the networks of a host's builds
version_added: "0.1.0"
description:
  - >-
    Third stage of a boot, task_state C(networking). Allocates the ports of rescheduled builds again, and ensures that
    their networks exist on the host.
  - >-
    One task per host handles all of its builds. A build that fails is undone on the host, then rescheduled or set to
    ERROR; the other builds and the play continue.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller]
attributes:
  check_mode: {support: full, details: Does nothing; the plan is shown by M(bootflow.compute.boot_schedule).}
"""

EXAMPLES = r"""
---
- name: Plug the networks of a host's builds
  bootflow.compute.boot_networks:
"""

RETURN = r"""
---
builds: {description: Builds that passed the stage., type: list, elements: dict, returned: success,
         sample: [{name: web-1, uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11}]}
failed_builds: {description: "Builds that failed, each with its error and its result (V(rescheduled), V(error) or V(gone)).", type: list, elements: dict,
                returned: success, sample: []}
"""
