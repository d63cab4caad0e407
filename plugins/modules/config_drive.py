#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: config_drive
short_description: Create the config drives of guests
version_added: "0.9.0"
description:
  - Creates ISO 9660 or vfat images with the label C(config-2), from which cloud-init in a guest reads its name, addresses, keys and user data.
  - A drive is written to a temporary file, which is renamed when it is complete. After a failure no part of it remains.
  - The failure of one drive does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.guest.drives
  - bootflow.compute.shared.time_limit
attributes:
  diff_mode: {support: none, details: A config drive may hold passwords.}
requirements:
  - python3-pycdlib, or one of the programs C(xorriso), C(genisoimage) and C(mkisofs), with O(drives[].format=iso9660)
"""

EXAMPLES = r"""
- name: Create a config drive
  bootflow.compute.config_drive:
    drives:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        path: /var/lib/bootflow/instances/2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11/disk.config
        files:
          openstack/latest/meta_data.json: "{{ {'uuid': '2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11', 'hostname': 'web-1'} | to_json | b64encode }}"
          openstack/latest/user_data: "{{ lookup('ansible.builtin.file', 'user-data.yml') | b64encode }}"
          openstack/2018-08-27/user_data: "@openstack/latest/user_data"
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each drive, by the UUID of its instance.
  type: dict
  returned: always
  sample:
    2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11:
      changed: true
      error: null
      format: iso9660
      path: /var/lib/bootflow/instances/2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11/disk.config
      size: 231424
  contains:
    changed:
      description: Whether the drive was, or in check mode would be, written.
      type: bool
      returned: always
    path:
      description: Path of the image file.
      type: str
      returned: success
    format:
      description: Format of the file system.
      type: str
      returned: success
    size:
      description: Size of the image file in bytes.
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

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.drive.config_drive import (
    DRIVES_ARGUMENT,
    write_drives,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    return {**TIME_LIMIT_ARGUMENTS, "drives": DRIVES_ARGUMENT}


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    try:
        result = write_drives(module.params, module.check_mode)
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(result["outcomes"]), **result)


if __name__ == "__main__":
    main()
