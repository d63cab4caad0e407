#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_disks_resize
short_description: Give instances larger disks on the host where they are, and keep the old ones
version_added: "0.9.0"
description:
  - A resize on an instance's own host. The disks that the instance gets are copies of its present ones, which are kept in its folder, with the definition of
    its guest, until the resize is decided.
  - Copies of logical volumes are logical volumes with C(.resize.new) at the end of their names; the old ones end with C(.resize.old). So it is with the
    logical volume of an instance that has its disks in a file system (V(qcow2_on_lvm)), which is mounted under the same path as before.
  - Every state can be interrupted and requested again; one that has nothing to do changes nothing. A guest is defined by M(bootflow.compute.domain) afterwards.
  - The failure of one instance does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.ledger_id
  - bootflow.compute.shared.workers
  - bootflow.compute.shared.time_limit
  - bootflow.compute.shared.disk_pool
  - bootflow.compute.shared.volume_clear
attributes:
  check_mode: {support: none}
  diff_mode: {support: none, details: Disks have no text to compare.}
  platform: {platforms: linux}
options:
  instances:
    description: The instances.
    type: list
    elements: dict
    required: true
    suboptions:
      uuid:
        description: UUID of the instance.
        type: str
        required: true
      sizes:
        description: With O(state=prepared), disks that are to be larger, a dictionary from their names to bytes.
        type: dict
        default: {}
      left:
        description: With O(state=prepared), names of disks that are not copied.
        type: list
        elements: str
        default: []
      made:
        description: Ephemeral and swap disks that are made, with O(state=prepared).
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description: Name of the disk.
            type: str
            required: true
          kind:
            description: What it is.
            type: str
            choices: [ephemeral, swap]
            required: true
          size_gb:
            description: Size in GiB.
            type: int
          size_mb:
            description: Size in MiB.
            type: int
          backend:
            description: Storage backend.
            type: str
            choices: [qcow2, raw, lvm, qcow2_on_lvm, rbd]  # disk backends
            default: qcow2
          fs:
            description: File system of an ephemeral disk; V(none) for an unformatted one.
            type: str
            choices: [ext4, ext3, ext2, xfs, vfat, none]
            default: ext4
      state:
        description: O(state) of this instance, where it is another one.
        type: str
        choices: [prepared, resized, settled, undone, reverted]
  volume_group:
    description: Volume group in which instances of this host have their disks; that which is recorded in the directory of an instance comes first.
    type: str
  state:
    description:
      - V(prepared) makes the copies; the guest has to be off. V(resized) exchanges them for the disks, and undefines the guest. V(settled) removes what the
        instance had. V(undone) brings the disks back, and undefines the guest, which loses its power; or removes copies that were not exchanged yet.
        V(reverted) does the same, and defines the guest as it was.
    type: str
    choices: [prepared, resized, settled, undone, reverted]
    required: true
requirements:
  - qemu-utils
  - lvm2 for disks in a volume group
  - e2fsprogs for disks in a file system on a logical volume
"""

EXAMPLES = r"""
---
- name: Copy the disks of an instance
  bootflow.compute.instance_disks_resize:
    state: prepared
    instances:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        sizes: {disk: 21474836480}
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each instance, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether something was written.
      type: bool
      returned: always
    disks:
      description: The copies with C(name) and C(size) in bytes.
      type: list
      elements: dict
      returned: success, with O(state=prepared)
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from functools import partial

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks import resized
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.disk_batch import (
    BLANK_DISKS_ARGUMENT,
    disk_spec,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.group import (
    CLEARING_ARGUMENTS,
    Clearing,
    Group,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import (
    LIBVIRT_ARGUMENTS,
    connect,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.ownership import LEDGER_ARGUMENTS
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.disk_images import (
    DISK_POOL_ARGUMENTS,
    pool_of,
)

EXCHANGES = {
    "resized": resized.swap_in,
    "settled": resized.commit,
    "undone": partial(resized.roll_back, define=False),
    "reverted": resized.roll_back,
}
STATES = ["prepared", *EXCHANGES]


def argument_spec():
    """The module's options."""
    instance = {
        "uuid": {"type": "str", "required": True},
        "sizes": {"type": "dict", "default": {}},
        "left": {"type": "list", "elements": "str", "default": []},
        "made": BLANK_DISKS_ARGUMENT,
        "state": {"type": "str", "choices": STATES},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LEDGER_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "instances": {"type": "list", "elements": "dict", "required": True, "options": instance},
        "state": {"type": "str", "choices": STATES, "required": True},
        "volume_group": {"type": "str"},
        **DISK_POOL_ARGUMENTS,
        **CLEARING_ARGUMENTS,
        "workers": {"type": "int", "default": 4},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec())
    keep_time_limit(module)
    args = module.params
    where = (args["instances_path"], args["ledger_id"])
    group = Group(args["volume_group"] or "", args["ledger_id"], Clearing.from_arguments(args), pool_of(args))
    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(instance):
                state = instance["state"] or args["state"]
                if state == "prepared":
                    sizes = {name: int(size) for name, size in instance["sizes"].items()}
                    made = [disk_spec(disk) for disk in instance["made"]]
                    return resized.prepare(*where, instance["uuid"], sizes, instance["left"], made, group)
                return EXCHANGES[state](connection, *where, instance["uuid"], group=group)

            results = run_batch([(i["uuid"], i) for i in args["instances"]], one, args["workers"])
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
