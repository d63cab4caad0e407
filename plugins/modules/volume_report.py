#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_report
short_description: Report the result of creating or extending volumes
version_added: "0.9.0"
description:
  - >-
    Last stage of creating or extending volumes. Prints a table of the volumes, and fails if one of them does not match
    the request, with the errors of the backends and their remedies. With O(volume_ids) it fails, too, if a guest of an extended volume does not
    have its new size yet; the error is that of M(bootflow.compute.compute_attachments) on its host in this run.
  - >-
    Volumes of this run that are still waiting after the last round end in error here.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller, bootflow.compute.volume_scheduler]
attributes:
  check_mode: {support: full, details: Does nothing.}
options:
  volumes:
    description: Entries whose names select the volumes. Read from the variable C(bootflow_volumes).
    type: list
    elements: raw
  volume_ids:
    description: UUIDs of the volumes, instead of O(volumes). Read from the variable C(bootflow_volume_ids).
    type: list
    elements: str
  project:
    description: Project of the names. Read from the variable C(bootflow_project), else V(default).
    type: str
  print_table:
    description: Print the table. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Report which volumes are available and where
  bootflow.compute.volume_report:
"""

RETURN = r"""
---
volumes:
  description: The volumes, as M(bootflow.compute.volume_info) returns them.
  type: list
  elements: dict
  returned: success
failed_items:
  {description: ["What failed, each item with C(name), C(id), C(host), C(state),
    C(error) (its error, if one is known) and C(tried) (the errors of earlier attempts).", Missing if the task failed as a whole.],
    type: list, elements: dict, returned: failure}
"""
