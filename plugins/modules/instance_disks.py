#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_disks
short_description: Fetch images and create the disks of instances
version_added: "0.9.0"
description:
  - Fetches each image once into a cache on the host, checks it, converts it to raw, and creates the disks of the instances from it, empty disks, and swap.
  - Images are treated as hostile. An image is rejected if its sha256 or format differs from the catalogue, if it refers to other files
    (backing file, external data file, VMDK extents), or if it is larger than the disk. The format is never guessed.
  - Existing disks stay unchanged. A disk gets its name only when it is complete.
  - The failure of one image or instance does not affect the others. RV(image_outcomes) and RV(outcomes) have the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.guest.disks
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.workers
  - bootflow.compute.shared.max_builds
  - bootflow.compute.shared.ledger_id
  - bootflow.compute.shared.time_limit
  - bootflow.compute.shared.disk_pool
attributes:
  check_mode: {support: full, details: "In check mode an image that is not in the cache is not fetched, and therefore not checked."}
  diff_mode: {support: none, details: Disks have no text to compare.}
  platform: {platforms: linux}
requirements:
  - qemu-utils
  - e2fsprogs, dosfstools or xfsprogs for file systems
  - lvm2 for disks in a volume group
  - ceph-common for disks in a pool of Ceph
"""

EXAMPLES = r"""
---
- name: Create the disks of two instances
  bootflow.compute.instance_disks:
    images:
      - id: 6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e
        url: https://images.example.com/debian-12.qcow2
        checksum: sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef
        disk_format: qcow2
    instances:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        disks:
          - name: disk
            kind: image
            image_id: 6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e
            size_gb: 10
          - name: disk.swap
            kind: swap
            size_mb: 512
      - uuid: 9b1f3d5c-0f7a-4c39-8f0e-5f0d2c1b7a22
        disks:
          - name: disk
            kind: image
            image_id: 6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e
            size_gb: 0
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each instance, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether disks were, or in check mode would be, created.
      type: bool
      returned: always
    disks:
      description: The disks with C(name), C(path), C(format) and C(virtual_size) in bytes.
      type: list
      elements: dict
      returned: success
    pending:
      description: Ids of images in RV(missing_images) that this instance needs. Its disks are not created.
      type: list
      elements: str
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
image_outcomes:
  description: The outcome of each image, by its id.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the image was, or in check mode would be, fetched.
      type: bool
      returned: always
    virtual_size:
      description: Virtual size in bytes; null if not known yet.
      type: int
      returned: success
    path:
      description: Path of the raw file in the cache; empty if it does not exist yet.
      type: str
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
missing_images:
  description: Ids of images that must be uploaded from the controller before the disks can be created.
  type: list
  elements: str
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.disk_batch import (
    DISK_BATCH_ARGUMENTS,
    make_disks_of,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    return {**TIME_LIMIT_ARGUMENTS, **DISK_BATCH_ARGUMENTS}


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    try:
        outcome = make_disks_of(module.params, module.check_mode)
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(outcome["outcomes"], outcome["image_outcomes"]), **outcome)


if __name__ == "__main__":
    main()
