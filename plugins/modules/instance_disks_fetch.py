#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_disks_fetch
short_description: Fetch the disks of instances from their former hosts
version_added: "0.9.0"
description:
  - Fetches what M(bootflow.compute.instance_disks_offer) serves on another host. Each file is compared by its SHA-256, and has its name
    only when it is complete. Files stay sparse. A disk that is to be larger grows before it has its name.
  - A disk that is a logical volume, or is in a file system on one, comes to O(volume_group). Its logical volume has the mark of an incomplete one until
    it was compared.
  - An instance that has something on the host already (a domain, a folder, logical volumes) is refused, and nothing of it is touched; what arrived of
    one that failed is removed.
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
  volume_group:
    description: Volume group for disks that are logical volumes. If not all disks of an instance arrived, they are removed, see O(volume_clear).
    type: str
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
      token:
        description: What the other host knows it by.
        type: str
        required: true
      address:
        description: The address of that host.
        type: str
        required: true
      port:
        description: The port there.
        type: int
        required: true
      fingerprint:
        description: The SHA-256 of the certificate there.
        type: str
        required: true
      files:
        description: The files, as that module returned them. Without any, nothing is fetched.
        type: list
        elements: dict
        required: true
      sizes:
        description: Disks that are to be larger, a dictionary from their names to bytes.
        type: dict
        default: {}
      limits:
        description:
          - Bytes that each disk may have as it comes, by its name; 0 where that is not known. Another disk, or a larger one, is refused, whatever its
            host says.
        type: dict
        required: true
      made:
        description: Ephemeral and swap disks that are made here, after the others have arrived.
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
      made_for:
        description: Mark of the move for which the folder of the instance is made. M(bootflow.compute.instance_cleanup) removes by it.
        type: str
        default: ''
      pool_disks:
        description:
          - Disks that the instance has by the ledger, where its former host is lost. A disk of which O(disk_pool) has an image is recorded here.
          - As O(instances[].made), or with C(kind=image), and C(image_id).
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description: Name of the disk.
            type: str
            required: true
          kind:
            description: What the disk is.
            type: str
            choices: [image, ephemeral, swap]
            required: true
          image_id:
            description: Id of its image.
            type: str
          size_gb:
            description: Size in GiB.
            type: int
          size_mb:
            description: Size in MiB, instead of O(instances[].pool_disks[].size_gb).
            type: int
          max_size_gb:
            description: Largest size in GiB of an image that determines the size of the disk.
            type: int
          backend:
            description: Storage of the disk.
            type: str
            choices: [qcow2, raw, lvm, qcow2_on_lvm, rbd]  # disk backends
            default: qcow2
          fs:
            description: File system of an ephemeral disk.
            type: str
            choices: [ext4, ext3, ext2, xfs, vfat, none]
            default: ext4
          label:
            description: Label of the file system or swap.
            type: str
requirements:
  - qemu-utils
"""

EXAMPLES = r"""
---
- name: Fetch the disks of an instance
  bootflow.compute.instance_disks_fetch:
    instances:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        token: "{{ token }}"
        address: 192.0.2.11
        port: "{{ offered.port }}"
        fingerprint: "{{ offered.fingerprint }}"
        files: "{{ offered.outcomes['2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11'].files }}"
        sizes: {disk: 21474836480}
        limits: {disk: 10737418240}
  no_log: true
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
      description: The disks with C(name), C(size) in bytes and C(sha256) of what was transferred.
      type: list
      elements: dict
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies.receiver import fetch_instance
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies.server import Place
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.disk_batch import (
    BLANK_DISKS_ARGUMENT,
    DISK_ARGUMENTS,
    disk_spec,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.instances import refuse_present
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


def argument_spec():
    """The module's options."""
    instance = {
        "uuid": {"type": "str", "required": True},
        "token": {"type": "str", "required": True, "no_log": True},
        "address": {"type": "str", "required": True},
        "port": {"type": "int", "required": True},
        "fingerprint": {"type": "str", "required": True},
        "files": {"type": "list", "elements": "dict", "required": True},
        "sizes": {"type": "dict", "default": {}},
        "limits": {"type": "dict", "required": True},
        "made": BLANK_DISKS_ARGUMENT,
        "made_for": {"type": "str", "default": ""},
        "pool_disks": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": DISK_ARGUMENTS,
            "mutually_exclusive": [("size_gb", "size_mb")],
        },
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        **LEDGER_ARGUMENTS,
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "instances": {"type": "list", "elements": "dict", "required": True, "options": instance},
        "volume_group": {"type": "str"},
        **DISK_POOL_ARGUMENTS,
        **CLEARING_ARGUMENTS,
        "workers": {"type": "int", "default": 4},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec())
    keep_time_limit(module)
    args = module.params
    local = Group(args["volume_group"] or "", args["ledger_id"], Clearing.from_arguments(args), pool_of(args))

    def one(instance):
        def refuse(folder):
            with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:
                refuse_present(connection, folder, local.vg, local.ledger_id)

        place = Place(instance["address"], instance["port"], instance["fingerprint"])
        sizes = {name: int(size) for name, size in instance["sizes"].items()}
        limits = {name: int(size) for name, size in instance["limits"].items()}
        what = (instance["uuid"], place, instance["token"], instance["files"], sizes)
        made = [disk_spec(disk) for disk in instance["made"]]
        how = (local, made, instance["made_for"], refuse, [disk_spec(disk) for disk in instance["pool_disks"]])
        return fetch_instance(args["instances_path"], args["ledger_id"], *what, *how, limits=limits)

    try:
        results = run_batch([(i["uuid"], i) for i in args["instances"]], one, args["workers"])
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
