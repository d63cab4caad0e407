#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_lvm
short_description: Make, extend, copy and delete the volumes of one LVM backend
version_added: "0.1.0"
description:
  - Makes volumes and snapshots as logical volumes of one volume group of this host, thick or thin, empty, from an image, from a snapshot
    or from another volume; extends them; deletes them after their data was wiped.
  - A logical volume is named C(volume-ID) or C(_snapshot-ID) and bears LVM tags that say whose it is. One that is there with the right
    size, source and project stays as it is; one that differs is an error.
  - An image is taken for hostile. It is fetched to a temporary file that is always removed, and refused when its sha256 or its format is
    not what the catalogue says, when it refers to other files, or when it is larger than the volume. No format is ever guessed.
  - An image file of this host that root owns and nobody else may write is read where it lies (on ext, XFS, Btrfs, F2FS or tmpfs), under a lease of
    the kernel by which a writer would be noticed; its sha256 is made once in a start of the host, as long as the file does not change. Every other image is
    copied to the temporary file first.
  - What was written is read back from the device and compared with the image.
  - On a thin backend an image is converted once, and volumes become snapshots of it.
  - A run that was killed leaves volumes that are marked as incomplete; the next run begins them anew.
  - A volume that fails does not fail the others. Look at RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
attributes:
  check_mode:
    support: full
    details: In check mode an image is not fetched, so it is not checked either.
  diff_mode:
    support: full
  idempotent:
    support: full
  platform:
    platforms: linux
options:
  volume_group:
    description: The volume group.
    type: str
    default: cinder-volumes
  provisioning:
    description: Whether volumes are V(thick) (all of their room is theirs at once) or V(thin) (out of a thin pool, as they are written).
    type: str
    choices: [thick, thin]
    default: thick
  thin_pool:
    description: Name of the thin pool. Without it the volume group's name with C(-pool) after it.
    type: str
  volumes:
    description: The volumes and snapshots.
    type: list
    elements: dict
    required: true
    suboptions:
      id:
        description: UUID of the volume or snapshot, the key of its result in RV(outcomes).
        type: str
        required: true
      kind:
        description: Whether it is a volume or a snapshot of O(volumes[].source_volume).
        type: str
        choices: [volume, snapshot]
        default: volume
      state:
        description:
          - V(present) makes it where it is not there.
          - V(extended) makes a volume that is there as large as O(volumes[].size_gb), also while it is in use.
          - V(absent) wipes and removes it. One that is in use or has snapshots is refused.
        type: str
        choices: [present, extended, absent]
        default: present
      size_gb:
        description: Size in GiB. Without it as large as the volume or snapshot that it is made from.
        type: int
      project:
        description: Whose it is; written into its tags.
        type: str
      image_id:
        description: Id of the image, of O(images), that it is made from.
        type: str
      source_volume:
        description: UUID of the volume that it is made from.
        type: str
      source_snapshot:
        description: UUID of the snapshot that it is made from.
        type: str
  images:
    description: The images that the volumes are made from.
    type: list
    elements: dict
    default: []
    suboptions:
      id:
        description: Id of the image.
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
  uploads:
    description: Files of this host to which images were uploaded, a dictionary from image id to path.
    type: dict
    default: {}
  allow_unverified:
    description: Accept images without a checksum.
    type: bool
    default: false
  temp_dir:
    description: Where images are fetched to. What killed runs left there is removed.
    type: path
    default: /var/lib/bootflow/conversion
  verify:
    description: Read back from the device what was written, and compare it with the image.
    type: bool
    default: true
  image_cache:
    description:
      - On a thin backend keep each image as a read-only volume, so that the next volume from it needs no copy. One goes when the image of that id has
        another content, and no other image has it.
      - Where the thin pool has not the room for new volumes, kept images that nothing was made of any more go, the least recently used first,
        if that gets the room.
    type: bool
    default: true
  image_cache_max_gb:
    description: So many GiB the kept images may have together, by their virtual sizes. The least recently used go before a new one; V(0) is no limit.
    type: int
    default: 0
  image_cache_max_count:
    description: So many images are kept. The least recently used go before a new one; V(0) is no limit.
    type: int
    default: 0
  clear:
    description:
      - What becomes of the data of a volume that is deleted. V(zero) and V(shred) overwrite it.
      - A thin volume is not overwritten, since its pool zeroes a block before another volume gets it, unless the pool was told not to.
        V(discard) gives its blocks back to the device below.
    type: str
    choices: [zero, shred, none, discard]
    default: zero
  clear_size_mb:
    description: So many MiB from the beginning are overwritten; V(0) is all.
    type: int
    default: 0
  workers:
    description: How many to copy or wipe at once.
    type: int
    default: 4
requirements:
  - lvm2, thin-provisioning-tools for thin volumes
  - qemu-utils for images other than raw
"""

EXAMPLES = r"""
---
- name: An empty volume and one from an image
  bootflow.compute.volume_lvm:
    volume_group: cinder-volumes
    provisioning: thin
    images:
      - id: 6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e
        url: https://images.example.com/debian-12.qcow2
        checksum: sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef
        disk_format: qcow2
    volumes:
      - id: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        size_gb: 10
      - id: 9b1f3d5c-0f7a-4c39-8f0e-5f0d2c1b7a22
        size_gb: 10
        image_id: 6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each volume or snapshot, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether it was, or in check mode would be, changed.
      type: bool
      returned: always
    action:
      description: What was done, one of V(create), V(redo) (it was incomplete), V(activate), V(extend), V(remove), V(nothing).
      type: str
      returned: success
    name:
      description: Name of the logical volume.
      type: str
      returned: success
    path:
      description: Path of its device; empty when it is gone.
      type: str
      returned: success
    size:
      description: Its size in bytes; 0 when it is gone.
      type: int
      returned: success
    error:
      description: What went wrong with this one, with C(code), C(status), C(message), C(remedy) and C(retryable); otherwise null.
      type: dict
      returned: always
evicted:
  description: The kept images that went for others, with C(name), C(checksum), C(image_ids), C(size) in bytes, C(used_at)...
  type: list
  elements: dict
  returned: success
backend:
  description: What the backend has afterwards, as in RV(bootflow.compute.storage_backend_info#module:backends).
  type: dict
  returned: success
error_code:
  description: The kind of error, one stable word of docs/errors.md.
  type: str
  returned: failure
  sample: DriverNotInitialized
status:
  description: The HTTP status that Nova or Cinder gives for this error.
  type: int
  returned: failure
  sample: 503
remedy:
  description: What to do about it.
  type: str
  returned: failure
  sample: Prepare the backend (vgcreate cinder-volumes DEVICES), or correct its volume_group.
retryable:
  description: Whether the same request may succeed without a change, on another host or backend, or at another time.
  type: bool
  returned: failure
  sample: true
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes.backend import CLEARS, Backend
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes.image_cache import Limits
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes.volume_batch import make_volumes


def argument_spec():
    """The module's options."""
    volume = {
        "id": {"type": "str", "required": True},
        "kind": {"type": "str", "choices": ["volume", "snapshot"], "default": "volume"},
        "state": {"type": "str", "choices": ["present", "extended", "absent"], "default": "present"},
        "size_gb": {"type": "int"},
        "project": {"type": "str"},
        "image_id": {"type": "str"},
        "source_volume": {"type": "str"},
        "source_snapshot": {"type": "str"},
    }
    image = {
        "id": {"type": "str", "required": True},
        "name": {"type": "str"},
        "url": {"type": "str"},
        "path_on_host": {"type": "path"},
        "checksum": {"type": "str", "default": ""},
        "disk_format": {"type": "str", "required": True},
    }
    return {
        "volume_group": {"type": "str", "default": "cinder-volumes"},
        "provisioning": {"type": "str", "choices": ["thick", "thin"], "default": "thick"},
        "thin_pool": {"type": "str"},
        "volumes": {"type": "list", "elements": "dict", "required": True, "options": volume},
        "images": {"type": "list", "elements": "dict", "default": [], "options": image},
        "uploads": {"type": "dict", "default": {}},
        "allow_unverified": {"type": "bool", "default": False},
        "temp_dir": {"type": "path", "default": "/var/lib/bootflow/conversion"},
        "verify": {"type": "bool", "default": True},
        "image_cache": {"type": "bool", "default": True},
        "image_cache_max_gb": {"type": "int", "default": 0},
        "image_cache_max_count": {"type": "int", "default": 0},
        "clear": {"type": "str", "choices": list(CLEARS), "default": "zero"},
        "clear_size_mb": {"type": "int", "default": 0},
        "workers": {"type": "int", "default": 4},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    args = module.params
    thin = args["provisioning"] == "thin"
    try:
        outcome = make_volumes(
            Backend(
                vg=args["volume_group"],
                pool=(args["thin_pool"] or args["volume_group"] + "-pool") if thin else "",
                clear=args["clear"],
                clear_size=args["clear_size_mb"] * 1024**2,
                temp_dir=args["temp_dir"],
                verify=args["verify"],
                image_cache=args["image_cache"],
                cache_limits=Limits(args["image_cache_max_gb"], args["image_cache_max_count"]),
                allow_unverified=args["allow_unverified"],
                workers=args["workers"],
                check_mode=module.check_mode,
            ),
            args["volumes"],
            args["images"],
            args["uploads"],
        )
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(outcome["outcomes"]) or bool(outcome["evicted"]), **outcome)


if __name__ == "__main__":
    main()
