#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: guest_content
short_description: Keep a host away from the content of guests' disks
version_added: "0.9.0"
description:
  - A guest may have LVM, md, bcache or partitions on its disks. Where these disks are block devices of a host, its udev would activate that
    content, and a volume group of a guest could take the name of one of the host.
  - This module writes rules of udev that hide the type of such content on volumes that are connected by iSCSI, on logical volumes of this
    collection, on maps of multipathd over them, and on O(disks).
  - Where LVM is installed, it has LVM use its file of devices (C(lvmdevices(8))), with the physical volumes that the host has now, except those on
    disks of guests. C(vgcreate) and C(vgextend) add further disks to the file.
  - What is already activated stays as it is. It is deactivated when the disk is disconnected or removed.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
attributes:
  diff_mode: {support: full}
  platform: {platforms: linux}
options:
  disks:
    description: Further disks of guests, such as physical disks that are given to guests as a whole, by their paths below C(/dev).
    type: list
    elements: path
    default: []
  state:
    description: The settings are present.
    type: str
    choices: [present]
    default: present
requirements:
  - udev
  - lvm2 2.03.12 or newer, where LVM is installed
"""

EXAMPLES = r"""
---
- name: Keep the host away from the content of guests' disks
  bootflow.compute.guest_content:
"""

RETURN = r"""
---
exposed:
  description:
    - Why the content of guests' disks can still do harm, as texts, such as a volume group that the host has activated.
    - Empty in check mode.
  type: list
  elements: str
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.guest_rules import ensure, exposed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail


def main():
    module = AnsibleModule(
        argument_spec={
            "disks": {"type": "list", "elements": "path", "default": []},
            "state": {"type": "str", "choices": ["present"], "default": "present"},
        },
        supports_check_mode=True,
    )
    try:
        outcome = ensure(module.params["disks"], module.check_mode)
        remaining = [] if module.check_mode else exposed(connects=True)
    except Exception as error:
        fail(module, error)
    before, after = outcome["before"], outcome["after"]
    diff = [
        {"before_header": path, "after_header": path, "before": before[path], "after": after[path]}
        for path in sorted(before)
        if before[path] != after[path]
    ]
    module.exit_json(changed=outcome["changed"], exposed=remaining, diff=diff)


if __name__ == "__main__":
    main()
