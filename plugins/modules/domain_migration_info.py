#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: domain_migration_info
short_description: Describe guests that are to leave their host while they run
version_added: "0.9.0"
description:
  - Reads of each guest what M(bootflow.compute.domain_migration_target) on its new host must know, its CPU, its local disks (files, or logical volumes)
    and their sizes, which volumes it has, and the versions of QEMU and libvirt.
  - The failure of one guest does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: full}
  diff_mode: {support: none, details: Nothing is changed.}
  platform: {platforms: linux}
options:
  uuids:
    description: UUIDs of the guests, which run or are paused.
    type: list
    elements: str
    required: true
  volumes:
    description:
      - By the UUIDs of guests and of the volumes that they have, where this host has them, the path of a device or IQN/LUN.
      - A guest that has an overlay or a copy in place of one of them is refused.
    type: dict
    default: {}
"""

EXAMPLES = r"""
---
- name: Describe a guest
  bootflow.compute.domain_migration_info:
    uuids: [2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11]
  register: leaving
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each guest, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the host was changed.
      type: bool
      returned: always
    guest:
      description: The description, for M(bootflow.compute.domain_migration_target).
      type: dict
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import (
    LIBVIRT_ARGUMENTS,
    connect,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.guests import describe
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "uuids": {"type": "list", "elements": "str", "required": True},
        "volumes": {"type": "dict", "default": {}},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(uuid):
                return {"guest": describe(connection, args["instances_path"], uuid, args["volumes"].get(uuid))}

            results = run_batch([(uuid, uuid) for uuid in args["uuids"]], one, workers=1)
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=False, outcomes=results)


if __name__ == "__main__":
    main()
