#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: config_drive
short_description: Create the config drives of guests
version_added: "0.1.0"
description:
  - Creates ISO 9660 or vfat images with the label C(config-2), from which cloud-init in a guest reads its name, addresses, keys and user data.
  - A drive is written to a temporary file, which is renamed when it is complete. After a failure no part of it remains.
  - The failure of one drive does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.shared.time_limit
attributes:
  diff_mode: {support: none, details: A config drive may hold passwords.}
options:
  drives:
    description: The drives to create on this host.
    type: list
    elements: dict
    required: true
    suboptions:
      uuid:
        description: UUID of the instance, the key of its result in RV(outcomes).
        type: str
        required: true
      path:
        description: Absolute path of the image file. A missing directory is created. Only the owner can read the file.
        type: path
        required: true
      format:
        description: Format of the file system.
        type: str
        choices: [iso9660, vfat]
        default: iso9660
      files:
        description:
          - Files of the drive, a dictionary from relative path to the content in Base64.
          - The value C(@) followed by the path of another file of the drive means the content of that file.
        type: dict
        required: true
      keep:
        description:
          - Keep an existing drive of the same format, whatever its content is.
          - Use this for a build that is resumed, whose guest may have read the drive already.
        type: bool
        default: false
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
  sample:
    2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11:
      changed: true
      error:
      format: iso9660
      path: /var/lib/bootflow/instances/2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11/disk.config
      size: 231424
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import BootflowError
from ansible_collections.bootflow.compute.plugins.module_utils.core.guest.metadata import unpack_files
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.config_drive import write_config_drive
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def main():
    module = AnsibleModule(
        argument_spec={
            **TIME_LIMIT_ARGUMENTS,
            "drives": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "uuid": {"type": "str", "required": True},
                    "path": {"type": "path", "required": True},
                    "format": {"type": "str", "choices": ["iso9660", "vfat"], "default": "iso9660"},
                    "files": {"type": "dict", "required": True, "no_log": True},
                    "keep": {"type": "bool", "default": False},
                },
            },
        },
        supports_check_mode=True,
    )
    keep_time_limit(module)

    def make(drive):
        files = unpack_files(drive["files"])
        return write_config_drive(
            drive["path"], files, drive["format"], check_mode=module.check_mode, keep=drive["keep"]
        )

    try:
        results = run_batch([(drive["uuid"], drive) for drive in module.params["drives"]], make, workers=2)
    except BootflowError as e:
        fail(module, e)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
