#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: compute_attachments
short_description: Attach, detach, swap and extend volumes of guests on a compute host
version_added: "0.9.0"
description:
  - >-
    Does the pending work of the ledger on the host, in one task for all volumes. Connects the volumes that this run exported
    and attaches them to their guests, removes detaching volumes from their guests and disconnects the host from them, and
    resizes the disks of volumes that grew. Has QEMU copy volumes that are swapped to their new ones, and settles swaps of runs that died.
  - >-
    The host variable C(bootflow_volume_attach) selects the connector, V(kernel) for the initiator of the host or V(qemu) for that of QEMU.
  - >-
    The task does not fail when a volume fails or the host does not answer; M(bootflow.compute.attach_volume),
    M(bootflow.compute.detach_volume) and M(bootflow.compute.swap_volume) with C(phase=finish) report what is left.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes, bootflow.compute.ledger]
attributes:
  check_mode: {support: full, details: Does nothing; O(bootflow.compute.attach_volume#module:phase=begin) reports what would be done.}
notes:
  - Runs on the controller, inside the ansible-playbook process; what it copies to the host are the modules it calls.
"""

EXAMPLES = r"""
---
- name: Connect the host, and attach the volumes to their guests
  bootflow.compute.compute_attachments:
"""

RETURN = r"""
---
attached:
  description: UUIDs of the volumes that were attached to guests.
  type: list
  elements: str
  returned: success
detached:
  description: UUIDs of the volumes detached from this host.
  type: list
  elements: str
  returned: success
swapped:
  description: UUIDs of the new volumes that guests have instead of others.
  type: list
  elements: str
  returned: success
extended:
  description: UUIDs of the volumes whose disks were resized in guests.
  type: list
  elements: str
  returned: success
problems:
  description: Errors of failed volumes, by UUID.
  type: dict
  returned: success
"""
