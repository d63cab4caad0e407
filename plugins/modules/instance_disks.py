#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_disks
short_description: Fetch images and make the disks of instances
version_added: "0.1.0"
description:
  - Fetches each image once into a cache on the host, checks it, makes it raw, and makes the instances' disks from it, and empty disks and swap.
  - An image is taken for hostile. It is refused when its sha256 or its format is not what the catalogue says, when it refers to other files
    (backing file, external data file, VMDK extents), or when it is larger than the disk. No format is ever guessed.
  - A disk that is there stays as it is. A disk that is not complete never has its name.
  - Neither an image nor an instance that fails fails the others. Look at RV(image_outcomes) and RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
attributes:
  check_mode:
    support: full
    details: In check mode an image that is not in the cache is not fetched, so it is not checked either.
  diff_mode:
    support: none
    details: A disk has no text.
  idempotent:
    support: full
  platform:
    platforms: linux
options:
  instances_path:
    description: Absolute path of the folder in which each instance has its own, named by its UUID.
    type: path
    default: /var/lib/bootflow/instances
  images:
    description: The images that the instances need.
    type: list
    elements: dict
    default: []
    suboptions:
      id:
        description: Id of the image, the key of its result in RV(image_outcomes).
        type: str
        required: true
      name:
        description: Name of the image.
        type: str
      url:
        description: Where this host gets it, C(http://), C(https://) or C(file://).
        type: str
      path_on_host:
        description: A file of this host that is the image. Used instead of O(images[].url).
        type: path
      checksum:
        description: The sha256 of the file, with or without C(sha256:) before it.
        type: str
        default: ""
      disk_format:
        description: What the image is said to be, such as V(qcow2) or V(raw).
        type: str
        required: true
      virtual_size_limit:
        description: An image that becomes larger than so many bytes is refused. Without it only the disks set a limit.
        type: int
  instances:
    description: The instances and their disks.
    type: list
    elements: dict
    default: []
    suboptions:
      uuid:
        description: UUID of the instance, the key of its result in RV(outcomes).
        type: str
        required: true
      disks:
        description: Its disks.
        type: list
        elements: dict
        required: true
        suboptions:
          name:
            description: File name of the disk, such as V(disk), V(disk.eph0) or V(disk.swap).
            type: str
            required: true
          kind:
            description: Whether it begins as an image, as an empty file system, or as swap.
            type: str
            choices: [image, ephemeral, swap]
            required: true
          image_id:
            description: Id of the image, of O(images). Required with O(instances[].disks[].kind=image).
            type: str
          size_gb:
            description: Size in GiB. V(0) with O(instances[].disks[].kind=image) is as large as the image.
            type: int
          size_mb:
            description: Size in MiB, instead of O(instances[].disks[].size_gb).
            type: int
          backend:
            description:
              - What the disk is. V(qcow2) is a file that is a layer over the cached image, V(raw) a file with a copy.
              - V(lvm) is a logical volume of O(volume_group) named C(UUID_NAME), with a copy.
              - With V(qcow2_on_lvm) the instance has a logical volume C(UUID_disk) with a file system, which is mounted on the folder C(disk) of
                its own, again when the host starts (C(/etc/fstab)), and in which its disks are as with V(qcow2).
                It is so large that the disks can become full.
              - All disks of an instance have the same one of the last two.
            type: str
            choices: [qcow2, raw, lvm, qcow2_on_lvm]
            default: qcow2
          fs:
            description: File system of a disk with O(instances[].disks[].kind=ephemeral).
            type: str
            choices: [ext4, ext3, ext2, xfs, vfat, none]
            default: ext4
          label:
            description: Label of that file system or of the swap. Without it C(ephemeral0) for V(disk.eph0).
            type: str
  volume_group:
    description:
      - The volume group with the disks of O(instances[].disks[].backend=lvm) and O(instances[].disks[].backend=qcow2_on_lvm).
      - A logical volume of it that has not the instance's tag is never touched.
    type: str
  uploads:
    description:
      - Files of this host to which images were uploaded, a dictionary from image id to path.
      - An image that has neither O(images[].url) nor O(images[].path_on_host), is not in the cache and is not here is reported in RV(missing_images).
    type: dict
    default: {}
  allow_unverified:
    description: Accept images without a checksum.
    type: bool
    default: false
  workers:
    description: How many to work on at once.
    type: int
    default: 4
requirements:
  - qemu-utils
  - e2fsprogs, dosfstools or xfsprogs for file systems
  - lvm2 for disks in a volume group
"""

EXAMPLES = r"""
---
- name: Make the disks of two instances
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
      description: Whether disks were, or in check mode would be, made.
      type: bool
      returned: always
    disks:
      description: The disks with C(name), C(path), C(format) and C(virtual_size) in bytes.
      type: list
      elements: dict
      returned: success
    pending:
      description: Ids of images that this instance waits for, all of them in RV(missing_images). Its disks are not made.
      type: list
      elements: str
      returned: success
    error:
      description: What went wrong with this one, with C(code), C(status), C(message), C(remedy) and C(retryable); otherwise null.
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
      description: Its size as a disk, in bytes; null while it is not known.
      type: int
      returned: success
    path:
      description: The raw file in the cache, empty while it is not there.
      type: str
      returned: success
    error:
      description: What went wrong with this one, with C(code), C(status), C(message), C(remedy) and C(retryable); otherwise null.
      type: dict
      returned: always
missing_images:
  description: Ids of images that have to be uploaded from the controller before the disks can be made.
  type: list
  elements: str
  returned: success
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

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.disk_backends import BACKENDS
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.disk_batch import make_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.file_disks import FILE_SYSTEMS, KINDS
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail


def argument_spec():
    """The module's options."""
    disk = {
        "name": {"type": "str", "required": True},
        "kind": {"type": "str", "choices": list(KINDS), "required": True},
        "image_id": {"type": "str"},
        "size_gb": {"type": "int"},
        "size_mb": {"type": "int"},
        "backend": {"type": "str", "choices": list(BACKENDS), "default": "qcow2"},
        "fs": {"type": "str", "choices": list(FILE_SYSTEMS), "default": "ext4"},
        "label": {"type": "str"},
    }
    image = {
        "id": {"type": "str", "required": True},
        "name": {"type": "str"},
        "url": {"type": "str"},
        "path_on_host": {"type": "path"},
        "checksum": {"type": "str", "default": ""},
        "disk_format": {"type": "str", "required": True},
        "virtual_size_limit": {"type": "int"},
    }
    instance = {
        "uuid": {"type": "str", "required": True},
        "disks": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": disk,
            "mutually_exclusive": [("size_gb", "size_mb")],
            "required_if": [("kind", "image", ["image_id"])],
        },
    }
    return {
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "images": {"type": "list", "elements": "dict", "default": [], "options": image},
        "instances": {"type": "list", "elements": "dict", "default": [], "options": instance},
        "volume_group": {"type": "str"},
        "uploads": {"type": "dict", "default": {}},
        "allow_unverified": {"type": "bool", "default": False},
        "workers": {"type": "int", "default": 4},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    args = module.params
    try:
        outcome = make_disks(
            args["instances_path"],
            args["images"],
            args["instances"],
            args["uploads"],
            allow_unverified=args["allow_unverified"],
            workers=args["workers"],
            check_mode=module.check_mode,
            volume_group=args["volume_group"] or "",
        )
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(outcome["outcomes"], outcome["image_outcomes"]), **outcome)


if __name__ == "__main__":
    main()
