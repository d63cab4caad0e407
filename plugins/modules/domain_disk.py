#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: domain_disk
short_description: Attach, detach, resize and swap disks of guests
version_added: "0.9.0"
description:
  - Attaches disks to existing guests, running or not, detaches them, or resizes the disk of a running guest after it grew.
  - Disks are identified by their serial, which for a volume is its UUID. Changes are made both in the running guest and in the definition of its next start,
    wherever they are still missing.
  - A guest can refuse to release a disk. It is asked O(detach_tries) times, with growing pauses; then the detach fails. In this case the disk is removed from
    the definition while the running guest still has it.
  - The failure of one disk does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.workers
  - bootflow.compute.shared.time_limit
attributes:
  diff_mode: {support: full}
  platform: {platforms: linux}
options:
  disks:
    description: The disks.
    type: list
    elements: dict
    required: true
    suboptions:
      id:
        description: Key of the result in RV(outcomes), such as the ID of the attachment.
        type: str
        required: true
      uuid:
        description: UUID of the domain.
        type: str
        required: true
      serial:
        description: Serial of the disk; for a volume its UUID.
        type: str
        required: true
      state:
        description:
          - Requested state. V(resized) updates the size in the running guest after the disk grew.
          - >-
            V(swapped) replaces the volume O(disks[].serial) of a running guest by the one in O(disks[].xml): QEMU copies it, follows what the guest
            writes meanwhile, and switches to the copy. V(settled) ends such a copy that was left, or completes the definition if the guest switched,
            and reports which of the two it has.
        type: str
        choices: [attached, detached, resized, swapped, settled]
        default: attached
      xml:
        description:
          - XML definition of the disk, with the same serial, a target and a driver type. Required with O(disks[].state=attached).
          - With O(disks[].state=swapped) and O(disks[].state=settled) that of the new volume, with its serial.
        type: str
      source:
        description:
          - With O(disks[].state=detached), where this host has the volume, the path of a device or IQN/LUN.
          - A disk that is an overlay on the volume or a copy of it is refused. By default the guest loses the disk, whatever it is.
          - Required with O(disks[].state=swapped) and O(disks[].state=settled).
        type: str
      size:
        description: Size in bytes. Required with O(disks[].state=resized). With O(disks[].state=swapped) that of the new volume.
        type: int
      bandwidth:
        description: With O(disks[].state=swapped), MiB that QEMU copies a second; V(0) for no limit.
        type: int
        default: 0
      copy_timeout:
        description: With O(disks[].state=swapped), seconds after which the copy is aborted, and the guest keeps its volume.
        type: float
        default: 7200
  detach_tries:
    description: Number of times that a running guest is asked to release a disk.
    type: int
    default: 8
  detach_wait:
    description: Seconds before the second attempt. The next pause is twice as long, then three times, up to 30 seconds.
    type: float
    default: 2
"""

EXAMPLES = r"""
---
- name: Attach a disk to a guest
  bootflow.compute.domain_disk:
    disks:
      - id: data
        uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        serial: 6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d5e
        xml: "{{ lookup('ansible.builtin.file', 'disk.xml') }}"

- name: Detach the disk
  bootflow.compute.domain_disk:
    disks:
      - id: data
        uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        serial: 6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d5e
        state: detached
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each disk, by its C(id).
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the disk was, or in check mode would be, changed.
      type: bool
      returned: always
    target:
      description: Target name in the domain, such as C(vdb); null if the domain does not have the disk.
      type: str
      returned: success
    live:
      description: Whether the running guest has the disk.
      type: bool
      returned: success
    config:
      description: Whether the definition of the next start has the disk.
      type: bool
      returned: success
    swapped:
      description: Whether the guest has the new volume, with O(disks[].state=swapped) and O(disks[].state=settled); otherwise null.
      type: bool
      returned: success
    size:
      description: Size in bytes in the running guest, with O(disks[].state=resized); otherwise null.
      type: int
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domain_disks import (
    RESIZED,
    SETTLED,
    STATES,
    SWAPPED,
    desired_disk,
    ensure_disk,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.hot_plug import (
    ATTACHED,
    hot_plug_arguments,
    run_hot_plug,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots.disk_swaps import desired_swap, swap_disk


def argument_spec():
    """The module's options."""
    disk = {
        "serial": {"type": "str", "required": True},
        "state": {"type": "str", "choices": list(STATES), "default": ATTACHED},
        "source": {"type": "str"},
        "size": {"type": "int"},
        "bandwidth": {"type": "int", "default": 0},
        "copy_timeout": {"type": "float", "default": 7200},
    }
    swap = [("state", state, ["xml", "source"]) for state in (SWAPPED, SETTLED)]
    return hot_plug_arguments("disks", disk, ("state", RESIZED, ["size"]), *swap)


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)

    def ensure(connection, disk, tries, wait):
        if disk["state"] in (SWAPPED, SETTLED):
            return swap_disk(connection, desired_swap(disk), module.check_mode)
        return ensure_disk(connection, desired_disk(disk), module.check_mode, tries, wait)

    run_hot_plug(module, "disks", "serial", ensure)


if __name__ == "__main__":
    main()
