#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_cleanup
short_description: Remove instances from a compute node
version_added: "0.1.0"
description:
  - Destroys and undefines the domain of each instance, with its saved state and its NVRAM, and then removes its folder. Nothing outside that folder is touched,
    except the whole disks that O(instances[].disks) names, and the logical volumes that have the instance's tag.
  - Such a logical volume is unmounted where it is mounted, its line in C(/etc/fstab) is taken away, and it is overwritten as O(volume_clear) says
    before it is removed. One that is still open is not touched, and that instance fails.
  - It works from any half-way point of a build, and for an instance of which there is nothing it changes nothing.
  - An instance that fails does not fail the others. Look at RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: RV(outcomes) names what was removed.
  idempotent:
    support: full
  platform:
    platforms: linux
options:
  libvirt_uri:
    description: The hypervisor of this host.
    type: str
    default: qemu:///system
  instances_path:
    description: Absolute path of the folder in which each instance has its own, named by its UUID.
    type: path
    default: /var/lib/bootflow/instances
  instances:
    description: The instances to remove.
    type: list
    elements: dict
    required: true
    suboptions:
      uuid:
        description: UUID of the instance, the key of its result in RV(outcomes). Only this tells which domain and which folder are removed.
        type: str
        required: true
      name:
        description: Name of the instance, for people.
        type: str
      disks:
        description:
          - The whole disks that the instance alone has on this host, as paths or as mappings of C(path) and C(serial).
          - They are overwritten as O(whole_disk_clear) says once the guest is stopped. One that the kernel or another domain uses,
            or that has another serial by now, is not touched, and that instance fails.
        type: list
        elements: raw
        default: []
      ran:
        description: Whether its guest may have run on this host. If V(false), its disks are cleared only where its domain is there.
        type: bool
        default: true
  whole_disk_clear:
    description: What becomes of the content of whole disks. V(zero) overwrites all of it with zeros, V(none) leaves it to the next guest.
    type: str
    choices: [zero, none]
    default: zero
  volume_group:
    description:
      - The volume group in which instances of this host have their disks. Those that the record in an instance's folder names are looked into as well.
      - Without either no LVM is asked.
    type: str
  volume_clear:
    description: What becomes of the content of logical volumes. V(zero) and V(shred) overwrite it, V(none) leaves it to the next guest.
    type: str
    choices: [zero, shred, none]
    default: zero
  volume_clear_size_mb:
    description: How much of each logical volume is overwritten, from its beginning, in MiB; V(0) for all of it.
    type: int
    default: 0
  state:
    description: What they are to be.
    type: str
    choices: [absent]
    default: absent
  workers:
    description: How many to work on at once.
    type: int
    default: 4
requirements:
  - python3-libvirt
  - lvm2 for disks in a volume group
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
      description: What was, or in check mode would be, removed.
      type: list
      elements: str
      returned: success
    error:
      description: What went wrong with this one, with C(code), C(status), C(message), C(remedy) and C(retryable); otherwise null.
      type: dict
      returned: always
error_code:
  description: The kind of error, one stable word of docs/errors.md.
  type: str
  returned: failure
  sample: HypervisorUnavailable
status:
  description: The HTTP status that Nova or Cinder gives for this error.
  type: int
  returned: failure
  sample: 503
remedy:
  description: What to do about it.
  type: str
  returned: failure
  sample: Start libvirtd on that host, or disable the host.
retryable:
  description: Whether the same request may succeed without a change, on another host or backend, or at another time.
  type: bool
  returned: failure
  sample: true
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.clear import (
    CHOICES,
    NONE,
    ZERO,
    checked_disks,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.instance_volumes import CLEARS, Clearing
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.instances import Disks, remove_instance
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.local_removal import LocalVolumes
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.facts.facts import block_devices_of, list_domains
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import connect
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail


def main():
    module = AnsibleModule(
        argument_spec={
            "libvirt_uri": {"type": "str", "default": "qemu:///system"},
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
                },
            },
            "whole_disk_clear": {"type": "str", "choices": list(CHOICES), "default": ZERO},
            "volume_group": {"type": "str"},
            "volume_clear": {"type": "str", "choices": list(CLEARS), "default": CLEARS[0]},
            "volume_clear_size_mb": {"type": "int", "default": 0},
            "state": {"type": "str", "choices": ["absent"], "default": "absent"},
            "workers": {"type": "int", "default": 4},
        },
        supports_check_mode=True,
    )
    args = module.params
    clearing = Clearing(args["volume_clear"], max(0, args["volume_clear_size_mb"]))
    local = LocalVolumes(args["volume_group"] or "", clearing)
    try:
        with connect(args["libvirt_uri"]) as connection:

            def one(item):
                return remove_instance(
                    connection, args["instances_path"], item["uuid"], module.check_mode, disks_of(item), local
                )

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
