#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: storage_backend
short_description: Create the volume groups and thin pools of a storage host
version_added: "0.9.0"
description:
  - Creates the volume group of each backend from its devices, and its thin pool; adds missing devices to an existing volume group.
  - All devices are checked before anything is written. A device that is in use is rejected. A device with a file system, a partition table or
    another volume group on it is rejected, unless O(wipe_devices) is set.
  - An existing volume group needs no devices. Devices are never removed from a volume group, and groups and pools never shrink.
  - The role P(bootflow.compute.storage_host#role) calls this module.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment: [bootflow.compute.attributes]
attributes:
  diff_mode: {support: full}
  platform: {platforms: linux}
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
        description: Volume group of the backend. Several backends can have the same.
        type: str
        default: cinder-volumes
      devices:
        description:
          - Disks or partitions of the volume group, preferably by their names in C(/dev/disk/by-id).
          - An existing thin pool grows when devices are added.
        type: list
        elements: path
        default: []
      provisioning:
        description: Whether its volumes are thick, or thin and in a thin pool.
        type: str
        choices: [thick, thin]
        default: thick
      thin_pool:
        description:
          - Name of the thin pool. By default the name of the volume group followed by C(-pool).
          - A new pool gets 95 percent of the free space of the group. It zeroes new blocks, and writes fail when it is full.
        type: str
  state:
    description: Requested state.
    type: str
    choices: [present]
    default: present
  wipe_devices:
    description:
      - Wipe devices that are not empty. All data on them is lost.
      - A device that is in use, or that holds volumes of this collection, is still rejected.
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
      description: Whether the backend was, or in check mode would be, changed.
      type: bool
      returned: success
    actions:
      description: Actions, of V(volume_group), V(devices), V(thin_pool), V(thin_pool_size), V(thin_pool_active).
      type: list
      elements: str
      returned: success
    volume_group:
      description: Name of the volume group.
      type: str
      returned: success
    devices:
      description: Devices of the volume group.
      type: list
      elements: str
      returned: success
    thin_pool:
      description: Name of the thin pool; empty for a thick backend.
      type: str
      returned: success
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
