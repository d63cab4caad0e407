#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_disks_access
short_description: Prepare a host for guests whose disks are in a Ceph pool
version_added: "0.9.0"
description:
  - Defines the secret with which QEMU opens the disks, asks the cluster, and looks at the clients of the disks before their guest starts. Ceph lets any number
    of clients write to one image, and two guests that do so destroy its data.
  - A client that was killed has a disk open for 30 s more. The module waits 35 s for that.
  - With O(instances[].state=fenced) the cluster refuses the clients that have the disks open, so that a lost host cannot write to them any more.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.time_limit
  - bootflow.compute.shared.disk_pool
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full, details: The result is changed if the definition of the secret changed. libvirt does not report whether its value changed.}
  platform: {platforms: linux}
options:
  disk_pool: {required: true}
  instances:
    description: The instances.
    type: list
    elements: dict
    default: []
    suboptions:
      uuid:
        description: UUID of the instance, the key of its result in RV(outcomes).
        type: str
        required: true
      state:
        description:
          - With V(open) its guest is to start here. It is an error if a client has one of its disks open and the guest does not run here.
          - With V(arriving) its guest comes running, and another host has its disks open. They are not looked at.
          - With V(fenced) its host is lost.
        type: str
        choices: [open, arriving, fenced]
        default: open
      rolls_back:
        description: Mark of a move that failed or is reverted. With O(instances[].state=open) disks become what they were before it, if that was kept.
        type: str
        default: ''
requirements:
  - ceph-common
  - qemu-block-extra for the guests
"""

EXAMPLES = r"""
---
- name: Prepare the host for a guest with disks in Ceph
  bootflow.compute.instance_disks_access:
    disk_pool:
      pool: vms
      monitors: ["192.0.2.21", "192.0.2.22"]
      user: nova
      key: "{{ vault_ceph_key }}"
      fsid: 99b63e7a-b54e-45c2-9b7f-0ddc9c7c9654
    instances:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each instance, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether a client was fenced, or a disk was brought back to what it was.
      type: bool
      returned: always
    fenced:
      description: Addresses that the cluster refuses now.
      type: list
      elements: str
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
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.disk_access import OPEN, STATES, prepare
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.disk_images import (
    DISK_POOL_ARGUMENTS,
    pool_of,
)


def argument_spec():
    """The module's options."""
    instance = {
        "uuid": {"type": "str", "required": True},
        "state": {"type": "str", "choices": list(STATES), "default": OPEN},
        "rolls_back": {"type": "str", "default": ""},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "disk_pool": {**DISK_POOL_ARGUMENTS["disk_pool"], "required": True},
        "instances": {"type": "list", "elements": "dict", "default": [], "options": instance},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:
            result = prepare(connection, pool_of(args), args["instances"], module.check_mode)
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=result["changed"] or any_changed(result["outcomes"]), outcomes=result["outcomes"])


if __name__ == "__main__":
    main()
