#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_remove
short_description: Remove deleted instances from a host
version_added: "0.9.0"
description:
  - >-
    Removes domain, disks and config drive of every instance of this run that is marked as deleting on the host,
    and disconnects the host from their volumes. M(bootflow.compute.instance_delete) with C(phase=removed) releases their claims.
  - >-
    The task does not fail when the host does not answer; M(bootflow.compute.instance_delete) with C(phase=finish)
    reports what is left.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller]
attributes:
  check_mode: {support: full, details: Does nothing; O(bootflow.compute.instance_delete#module:phase=begin) reports what would be deleted.}
"""

EXAMPLES = r"""
---
- name: Remove deleted instances from the host
  bootflow.compute.instance_remove:
"""

RETURN = r"""
---
{}
"""
