#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: storage_stage
short_description: Do the pending work of a storage host
version_added: "0.9.0"
description:
  - >-
    Removes unused exports with M(bootflow.compute.iscsi_target); creates, extends and removes volumes and snapshots
    with M(bootflow.compute.volume_lvm), one call for each backend; then exports the volumes that this run attaches,
    with new CHAP credentials.
  - >-
    Only the needed modules run; a host without work is not contacted.
  - >-
    The failure of one volume does not affect the others, and the play continues if the host cannot be reached. A volume
    that could not be created is rescheduled if another backend may succeed, otherwise it ends in error;
    M(bootflow.compute.volume_report) reports why.
  - >-
    The lease of the run is renewed while the host works. If a volume was deleted meanwhile, its new data is removed again.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger, bootflow.compute.shared.controller]
options:
  images:
    description: The images that requests may name. Read from the variable C(bootflow_images).
    type: raw
attributes:
  check_mode: {support: full, details: Does nothing.}
"""

EXAMPLES = r"""
---
- name: Create, extend and remove volumes
  bootflow.compute.storage_stage:
"""

RETURN = r"""
---
done:
  description: Ids of volumes and snapshots that now match the request.
  type: list
  elements: str
  returned: success
failed_items:
  description: Errors of volumes and snapshots that ended in error, by id.
  type: dict
  returned: success
rescheduled:
  description: Ids of volumes that are rescheduled to another backend in the next round.
  type: list
  elements: str
  returned: success
unexported:
  description: Ids of attachments whose export was removed.
  type: list
  elements: str
  returned: success
exported:
  description: Ids of attachments whose volume was exported.
  type: list
  elements: str
  returned: success
export_errors:
  description: Errors of attachments whose export could not be created or removed, by id.
  type: dict
  returned: success
"""
