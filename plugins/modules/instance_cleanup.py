#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_cleanup
short_description: Remove instances from a compute node
version_added: "0.9.0"
description:
  - Destroys and undefines the domain of each instance, with its saved state, its NVRAM and the DHCP reservations of its interfaces, and then
    removes its directory. Nothing outside that directory is touched, except the whole disks in O(instances[].disks) and the logical volumes
    that are tagged for the instance.
  - Such a logical volume is unmounted, its line in C(/etc/fstab) is removed, and it is overwritten according to O(volume_clear)
    before it is removed. A logical volume that is still open is not touched, and its instance fails.
  - The module works from any intermediate state of a build; if nothing of an instance exists, nothing is changed.
  - The failure of one instance does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.workers
  - bootflow.compute.shared.ledger_id
  - bootflow.compute.shared.time_limit
  - bootflow.compute.shared.disk_pool
  - bootflow.compute.shared.volume_clear
attributes:
  diff_mode: {support: none, details: RV(outcomes) lists what was removed.}
  platform: {platforms: linux}
options:
  instances:
    description: The instances to remove.
    type: list
    elements: dict
    required: true
    suboptions:
      uuid:
        description: UUID of the instance, the key of its result in RV(outcomes). It alone determines which domain and directory are removed.
        type: str
        required: true
      name:
        description: Name of the instance, for information only.
        type: str
      disks:
        description:
          - Whole disks of this host that only this instance has, as paths or as mappings of C(path) and C(serial).
          - They are overwritten according to O(whole_disk_clear) after the guest has stopped. A disk that the kernel or another domain uses,
            or that has another serial now, is not touched, and its instance fails.
        type: list
        elements: raw
        default: []
      ran:
        description: Whether its guest may have run on this host. If V(false), its disks are cleared only if its domain exists.
        type: bool
        default: true
      defined_again:
        description:
          - Define its domain again, without saved memory, snapshots and firmware variables. Only there are the users with whom QEMU logs in to volumes, for
            M(bootflow.compute.domain), which defines it again with new disks.
        type: bool
        default: false
      made_for:
        description:
          - Mark of a move that failed. Only what was made for it is removed, see M(bootflow.compute.instance_disks_fetch) and
            M(bootflow.compute.domain_migration). An instance that the host had before stays, and its outcome has C(kept).
        type: str
        default: ''
      due_at:
        description: When the cleanup was due, in seconds since the epoch. An instance that was built or moved here later is refused, and stays.
        type: float
        default: 0.0
      unfinished:
        description: What a build left whose run died. An instance whose build has ended here is refused, and stays.
        type: bool
        default: false
      without_power:
        description: Of a shelved instance. One whose guest has power is refused, and stays, as it was started after its image was made.
        type: bool
        default: false
      images:
        description:
          - What becomes of its images in O(disk_pool). With V(removed) they go with the instance.
          - With V(left) they stay, as another host has the instance, or may get it. With O(instances[].made_for) they do in any case.
          - With V(confirmed) they stay, without the snapshots that were kept of them before a move.
        type: str
        choices: [removed, left, confirmed]
        default: removed
  whole_disk_clear:
    description: How to clear whole disks. V(zero) overwrites everything with zeros; with V(none) the next guest can read the old data.
    type: str
    choices: [zero, none]
    default: zero
  volume_group:
    description:
      - Volume group in which instances of this host have their disks. Volume groups recorded in the directory of an instance are searched as well.
      - If there are none, LVM is not used.
    type: str
  state:
    description: Requested state.
    type: str
    choices: [absent]
    default: absent
requirements:
  - lvm2 for disks in a volume group
  - ceph-common for disks in a pool of Ceph
"""

EXAMPLES = r"""
---
- name: Remove an instance from its host
  bootflow.compute.instance_cleanup:
    instances:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        name: web-1
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each instance, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether anything was, or in check mode would be, removed.
      type: bool
      returned: always
    removed:
      description: Items that were, or in check mode would be, removed.
      type: list
      elements: str
      returned: success
    kept:
      description: Whether nothing was removed because nothing was made for O(instances[].made_for).
      type: bool
      returned: when so
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.whole_disks import CLEARS as WHOLE_DISK_CLEARS
from ansible_collections.bootflow.compute.plugins.module_utils.core.disks.whole_disks import NONE, ZERO
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.instances import (
    CONFIRMED,
    LEFT,
    REMOVED,
    Condition,
    Disks,
    remove_instance,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.group import (
    CLEARING_ARGUMENTS,
    Clearing,
    Group,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.whole.clear import checked_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.facts.facts import block_devices_of, list_domains
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


def main():
    module = AnsibleModule(
        argument_spec={
            **TIME_LIMIT_ARGUMENTS,
            **LEDGER_ARGUMENTS,
            **LIBVIRT_ARGUMENTS,
            "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
            "instances": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "uuid": {"type": "str", "required": True},
                    "name": {"type": "str"},
                    "disks": {"type": "list", "elements": "raw", "default": []},
                    "ran": {"type": "bool", "default": True},
                    "defined_again": {"type": "bool", "default": False},
                    "made_for": {"type": "str", "default": ""},
                    "due_at": {"type": "float", "default": 0.0},
                    "unfinished": {"type": "bool", "default": False},
                    "without_power": {"type": "bool", "default": False},
                    "images": {"type": "str", "choices": [REMOVED, LEFT, CONFIRMED], "default": REMOVED},
                },
            },
            "whole_disk_clear": {"type": "str", "choices": list(WHOLE_DISK_CLEARS), "default": ZERO},
            "volume_group": {"type": "str"},
            **DISK_POOL_ARGUMENTS,
            **CLEARING_ARGUMENTS,
            "state": {"type": "str", "choices": ["absent"], "default": "absent"},
            "workers": {"type": "int", "default": 4},
        },
        supports_check_mode=True,
    )
    keep_time_limit(module)
    args = module.params
    try:
        local = Group(args["volume_group"] or "", args["ledger_id"], Clearing.from_arguments(args), pool_of(args))
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(item):
                path, again = args["instances_path"], item["defined_again"]
                fields = ("made_for", "due_at", "unfinished", "without_power", "images")
                condition = Condition(**{name: item[name] for name in fields})
                how = (module.check_mode, disks_of(item), local, again, condition)
                return remove_instance(connection, path, item["uuid"], *how)

            def disks_of(item):
                if args["whole_disk_clear"] == NONE or not item["disks"]:
                    return Disks()

                def used_by_others():
                    others = [row for row in list_domains(connection) if row["uuid"] != item["uuid"].lower()]
                    return block_devices_of(others)

                return Disks(checked_disks(item["disks"]), used_by_others, item["ran"])

            results = run_batch([(item["uuid"], item) for item in args["instances"]], one, args["workers"])
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
