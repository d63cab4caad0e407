#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_accept
short_description: Validate a request for volumes and enter it into the ledger
version_added: "0.9.0"
description:
  - >-
    First stage of creating volumes. Validates all entries, the volume types, the settings of the scheduler and those
    of the storage hosts, and reports all errors together; then checks the quotas and writes the volumes in one
    transaction.
  - >-
    An existing volume that matches the request stays unchanged; one that a dead run left incomplete, or that ended in
    error, is taken over. A request that differs from the existing volume of that name is rejected.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.ledger
  - bootflow.compute.shared.controller
  - bootflow.compute.volume
  - bootflow.compute.volume_scheduler
  - bootflow.compute.shared.storage_facts
attributes:
  check_mode: {support: full, details: "The request runs through the same transaction, which is rolled back."}
options:
  volumes:
    description:
      - The requested volumes; each has a C(name) that is unique in its project, and C(size) (GiB), C(description), C(volume_type), C(metadata),
        C(availability_zone), C(scheduler_hints), C(multiattach); and one of C(image_id) or C(image), C(snapshot_id) and C(source_volid),
        by name or id, unless the volume is empty.
      - Read from the variable C(bootflow_volumes).
    type: list
    elements: raw
    required: true
  print_table:
    description: Print a line when there is nothing to do. Read from the variable C(bootflow_print_table), else true.
    type: bool
"""

EXAMPLES = r"""
---
- name: Accept a volume from an image, and an empty one
  bootflow.compute.volume_accept:
    volumes:
      - name: root
        size: 10
        image: debian-12
      - name: data
        size: 100
        volume_type: fast
  register: bootflow_next
"""

RETURN = r"""
---
created:
  description: Ids of new volumes.
  type: list
  elements: str
  returned: success
resumed:
  description: Ids of volumes taken over from a dead run or created again after an error.
  type: list
  elements: str
  returned: success
unchanged:
  description: Ids of volumes that already match the request.
  type: list
  elements: str
  returned: success
ask:
  description: Storage hosts that should report before scheduling.
  type: list
  elements: str
  returned: success
again:
  description: Whether volumes are to be created.
  type: bool
  returned: success
errors: {description: "All errors of the request, each with its path, code, status, message and remedy.", type: list, elements: dict, returned: failure}
"""
