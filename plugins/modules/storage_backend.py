#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: storage_backend
short_description: Make the volume groups and thin pools of a storage host
version_added: "0.1.0"
description:
  - Makes each backend's volume group out of its devices, and its thin pool; gives a group that is there the devices that it lacks.
  - All devices are looked at before anything is written. One that is in use is refused. So is one that has a file system, a partition table or
    another volume group on it, unless O(wipe_devices) says otherwise.
  - A group that is there needs no devices. Nothing is taken from a group, and no group or pool is made smaller.
  - The role P(bootflow.compute.storage_host#role) calls this module.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    platforms: linux
options:
  backends:
    description: The backends of this host.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the backend, the key of its result in RV(backends).
        type: str
        required: true
      volume_group:
        description: Its volume group. Several backends may have the same.
        type: str
        default: cinder-volumes
      devices:
        description:
          - Disks or partitions that are to be in the volume group, best by their names in C(/dev/disk/by-id).
          - A thin pool that is there grows with them.
        type: list
        elements: path
        default: []
      provisioning:
        description: Whether its volumes are thick, or thin and out of a thin pool.
        type: str
        choices: [thick, thin]
        default: thick
      thin_pool:
        description:
          - Name of the thin pool. Without it the volume group's name with C(-pool) after it.
          - It gets 95 percent of the group's free room. It zeroes new blocks, and its writers get errors when it is full.
        type: str
  state:
    description: They are to be there.
    type: str
    choices: [present]
    default: present
  wipe_devices:
    description:
      - Wipe a device that is not empty, and take it. What is on it is lost.
      - A device that is in use, or has volumes of this collection on it, is refused all the same.
    type: bool
    default: false
requirements:
  - lvm2, thin-provisioning-tools for thin pools
  - util-linux
"""

EXAMPLES = r"""
---
- name: A thick and a thin backend
  bootflow.compute.storage_backend:
    backends:
      - name: disk
        volume_group: cinder-volumes
        devices:
          - /dev/disk/by-id/wwn-0x5000c500a1b2c3d4
      - name: flash
        volume_group: flash
        provisioning: thin
        devices:
          - /dev/disk/by-id/nvme-eui.0025385b71b01234
"""

RETURN = r"""
---
backends:
  description: The backends, by name.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether something was, or in check mode would be, made.
      type: bool
      returned: success
    actions:
      description: What was done, of V(volume_group), V(devices), V(thin_pool), V(thin_pool_size), V(thin_pool_active).
      type: list
      elements: str
      returned: success
    volume_group:
      description: Its volume group.
      type: str
      returned: success
    devices:
      description: The group's devices.
      type: list
      elements: str
      returned: success
    thin_pool:
      description: Its thin pool; empty for a thick backend.
      type: str
      returned: success
error_code:
  description: The kind of error, one stable word of docs/errors.md.
  type: str
  returned: failure
  sample: Conflict
status:
  description: The HTTP status that Nova or Cinder gives for this error.
  type: int
  returned: failure
  sample: 409
remedy:
  description: What to do about it.
  type: str
  returned: failure
  sample: Name another device; or set bootflow_storage_wipe_devices, and all that is on it is lost.
retryable:
  description: Whether the same request may succeed without a change, on another host or backend, or at another time.
  type: bool
  returned: failure
  sample: false
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.lvm.prepare import prepare_backends
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail


def argument_spec():
    """The module's options."""
    backend = {
        "name": {"type": "str", "required": True},
        "volume_group": {"type": "str", "default": "cinder-volumes"},
        "devices": {"type": "list", "elements": "path", "default": []},
        "provisioning": {"type": "str", "choices": ["thick", "thin"], "default": "thick"},
        "thin_pool": {"type": "str"},
    }
    return {
        "backends": {"type": "list", "elements": "dict", "required": True, "options": backend},
        "state": {"type": "str", "choices": ["present"], "default": "present"},
        "wipe_devices": {"type": "bool", "default": False},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    try:
        outcome = prepare_backends(module.params["backends"], module.params["wipe_devices"], module.check_mode)
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(outcome["backends"]), **outcome)


if __name__ == "__main__":
    main()
