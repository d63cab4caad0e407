#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_disks
short_description: Fetch images and create the disks of instances
version_added: "0.1.0"
description:
  - Fetches each image once into a cache on the host, checks it, converts it to raw, and creates the disks of the instances from it, empty disks, and swap.
  - Images are treated as hostile. An image is rejected if its sha256 or format differs from the catalogue, if it refers to other files
    (backing file, external data file, VMDK extents), or if it is larger than the disk. The format is never guessed.
  - Existing disks stay unchanged. A disk gets its name only when it is complete.
  - The failure of one image or instance does not affect the others. RV(image_outcomes) and RV(outcomes) have the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.workers
  - bootflow.compute.shared.max_builds
  - bootflow.compute.shared.ledger_id
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: full, details: "In check mode an image that is not in the cache is not fetched, and therefore not checked."}
  diff_mode: {support: none, details: Disks have no text to compare.}
  platform: {platforms: linux}
options:
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
        description: URL from which this host fetches the image, C(http://), C(https://) or C(file://).
        type: str
      path_on_host:
        description: Path of the image on this host. Used instead of O(images[].url).
        type: path
      checksum:
        description: The sha256 of the file, with or without the prefix C(sha256:).
        type: str
        default: ""
      disk_format:
        description: Format of the image according to the catalogue, such as V(qcow2) or V(raw).
        type: str
        required: true
      size:
        description: Size of the file in bytes. A larger file is rejected.
        type: int
      validate_certs:
        description: Check the certificate of the web server.
        type: bool
        default: true
      ca_path:
        description: File on this host with the certificates of the authorities (PEM) that the web server's certificate is checked with.
        type: path
      client_cert:
        description: File on this host with the client certificate (PEM) for the web server; it may contain the key.
        type: path
      client_key:
        description: File on this host with the key of O(images[].client_cert).
        type: path
      url_username:
        description: User for the web server. Login, headers and client certificate are not sent to other servers that it redirects to.
        type: str
      url_password:
        description: Password of O(images[].url_username).
        type: str
      headers:
        description: Headers of the request to the web server, a dictionary.
        type: json
      use_proxy:
        description: Use the proxy that the environment of this host sets.
        type: bool
        default: true
      virtual_size_limit:
        description: Maximum virtual size in bytes; a larger image is rejected. By default only the disks set a limit.
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
            description: Initial content, an image, an empty file system, or swap.
            type: str
            choices: [image, ephemeral, swap]
            required: true
          image_id:
            description: Id of one of the O(images). Required with O(instances[].disks[].kind=image).
            type: str
          size_gb:
            description: Size in GiB. With O(instances[].disks[].kind=image), V(0) means the size of the image.
            type: int
          size_mb:
            description: Size in MiB, instead of O(instances[].disks[].size_gb).
            type: int
          max_size_gb:
            description: Largest size in GiB of the image of a disk that has the size of the image; a larger image is rejected.
            type: int
          backend:
            description:
              - Storage of the disk. V(qcow2) is a file that is a layer over the cached image, V(raw) a file with a copy.
              - V(lvm) is a logical volume of O(volume_group) named C(UUID_NAME), with a copy.
              - With V(qcow2_on_lvm) the instance has a logical volume C(UUID_disk) with a file system that holds its disks as with V(qcow2). It is mounted
                on C(disk) in the directory of the instance, also when the host starts (C(/etc/fstab)).
                It is large enough for full disks.
              - With V(lvm) or V(qcow2_on_lvm), all disks of an instance must have the same backend.
            type: str
            choices: [qcow2, raw, lvm, qcow2_on_lvm]
            default: qcow2
          fs:
            description: File system of a disk with O(instances[].disks[].kind=ephemeral).
            type: str
            choices: [ext4, ext3, ext2, xfs, vfat, none]
            default: ext4
          label:
            description: Label of the file system or swap. By default C(ephemeral0) for V(disk.eph0).
            type: str
  volume_group:
    description:
      - Volume group of disks with O(instances[].disks[].backend=lvm) or O(instances[].disks[].backend=qcow2_on_lvm).
      - Logical volumes without the tag of the instance are never touched.
    type: str
  uploads:
    description:
      - Files on this host to which images were uploaded, a dictionary from image id to path.
      - An image that has neither O(images[].url) nor O(images[].path_on_host), is not in the cache and is not here is reported in RV(missing_images).
    type: dict
    default: {}
  allow_unverified:
    description: Accept images without a checksum.
    type: bool
    default: false
  image_max_gb:
    description: Largest image file in GiB; V(0) for no limit. A file that the file system has no room for is rejected anyway.
    type: int
    default: 1024
  image_fetch_timeout:
    description: Longest time to fetch an image, in seconds; V(0) for no limit. A server that stalls is given up earlier.
    type: float
    default: 3600.0
  vmdk_allowed_types:
    description: VMDK subformats (createType) that are accepted. All have their data in the file itself; without any, no VMDK image is accepted.
    type: list
    elements: str
    choices: [streamOptimized, monolithicSparse]
    default: [streamOptimized, monolithicSparse]
requirements:
  - qemu-utils
  - e2fsprogs, dosfstools or xfsprogs for file systems
  - lvm2 for disks in a volume group
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

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.disk_batch import DISK_ARGUMENTS, make_disks
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.images import (
    FETCH_ARGUMENTS,
    IMAGE_ARGUMENTS,
    fetch_limits,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.ownership import LEDGER_ARGUMENTS
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    image = {**IMAGE_ARGUMENTS, "virtual_size_limit": {"type": "int"}}
    instance = {
        "uuid": {"type": "str", "required": True},
        "disks": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": DISK_ARGUMENTS,
            "mutually_exclusive": [("size_gb", "size_mb")],
            "required_if": [("kind", "image", ["image_id"])],
        },
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LEDGER_ARGUMENTS,
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "images": {"type": "list", "elements": "dict", "default": [], "options": image},
        "instances": {"type": "list", "elements": "dict", "default": [], "options": instance},
        "volume_group": {"type": "str"},
        **FETCH_ARGUMENTS,
        "workers": {"type": "int", "default": 4},
        "max_builds": {"type": "int", "default": 0},
        "place_timeout": {"type": "float", "default": 600.0},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        outcome = make_disks(
            args["instances_path"],
            args["images"],
            args["instances"],
            args["uploads"],
            allow_unverified=args["allow_unverified"],
            workers=args["workers"],
            max_builds=args["max_builds"],
            place_timeout=args["place_timeout"],
            check_mode=module.check_mode,
            volume_group=args["volume_group"] or "",
            fetch_limits=fetch_limits(args),
            ledger_id=args["ledger_id"],
        )
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(outcome["outcomes"], outcome["image_outcomes"]), **outcome)


if __name__ == "__main__":
    main()
