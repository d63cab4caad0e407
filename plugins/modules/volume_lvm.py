#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_lvm
short_description: Create, extend, copy and delete the volumes of one LVM backend
version_added: "0.9.0"
description:
  - Creates volumes and snapshots as logical volumes of one volume group of this host, thick or thin, empty, from an image, from a snapshot
    or from another volume; extends them; deletes them after wiping their data.
  - A logical volume is named C(volume-ID) or C(_snapshot-ID) and has LVM tags that identify it. An existing one with the requested
    size, source and project stays unchanged; other differences are errors.
  - Images are treated as hostile. An image is fetched to a temporary file that is always removed, and rejected if its sha256 or format
    differs from the catalogue, if it refers to other files, or if it is larger than the volume. The format is never guessed.
  - An image file of this host that only root can write is read in place (on ext, XFS, Btrfs, F2FS or tmpfs), under a lease of
    the kernel that detects writers; its sha256 is computed once per boot of the host as long as the file does not change. Every other image is
    copied to the temporary file first.
  - The written data is read back from the device and compared with the image.
  - On a thin backend an image is converted once, and volumes are created as snapshots of it.
  - A killed run leaves volumes that are marked as incomplete; the next run creates them again.
  - The failure of one volume does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.shared.volume_group
  - bootflow.compute.shared.ledger_id
  - bootflow.compute.shared.source_images
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: full, details: "In check mode images are not fetched, and therefore not checked."}
  diff_mode: {support: full}
  platform: {platforms: linux}
options:
  provisioning:
    description: Whether volumes are V(thick) (fully allocated) or V(thin) (allocated from a thin pool as they are written).
    type: str
    choices: [thick, thin]
    default: thick
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
        description: Kind of the item, a volume or a snapshot of O(volumes[].source_volume).
        type: str
        choices: [volume, snapshot]
        default: volume
      state:
        description:
          - V(present) creates the item if it does not exist.
          - V(extended) grows an existing volume to O(volumes[].size_gb), also while it is in use.
          - V(absent) wipes and removes the item. A volume that is in use or has snapshots is rejected.
          - V(reimaged) writes an existing volume again from O(volumes[].image_id), whatever it was made from. A volume that is in use is rejected. After a
            failure whose outcome has C(changed), its former content is lost; it stays, marked as incomplete.
        type: str
        choices: [present, extended, absent, reimaged]
        default: present
      size_gb:
        description: Size in GiB. By default the size of the source volume or snapshot.
        type: int
      project:
        description: Project of the volume; written into its tags.
        type: str
      image_id:
        description: Id of one of the O(images), the source of the volume.
        type: str
      source_volume:
        description: UUID of the source volume.
        type: str
      source_snapshot:
        description: UUID of the source snapshot.
        type: str
  verify:
    description: Read the written data back from the device, and compare it with the image.
    type: bool
    default: true
  image_cache:
    description:
      - On a thin backend, keep each image as a read-only volume, so that the next volume from it needs no copy. A cached image is evicted when the image with
        its id has another content and no other image has the old content.
      - If the thin pool lacks space for new volumes, cached images that no volume uses are evicted, the least recently used first,
        if that frees enough space.
    type: bool
    default: true
  image_cache_max_gb:
    description: Maximum size of the cache in GiB, by virtual sizes. The least recently used images are evicted for a new one; V(0) means no limit.
    type: int
    default: 0
  image_cache_max_count:
    description: Maximum number of cached images. The least recently used images are evicted for a new one; V(0) means no limit.
    type: int
    default: 0
  clear:
    description:
      - How to clear the data of a deleted volume. V(zero) and V(shred) overwrite it.
      - A thin volume is not overwritten, because its pool zeroes blocks before another volume gets them, unless zeroing is disabled for the pool.
        V(discard) discards its blocks on the underlying device.
    type: str
    choices: [zero, shred, none, discard]
    default: zero
  clear_size_mb:
    description: Size of the beginning of the volume to overwrite, in MiB; V(0) for all of it.
    type: int
    default: 0
  workers:
    description: Number of volumes to copy or wipe in parallel.
    type: int
    default: 4
requirements:
  - lvm2, thin-provisioning-tools for thin volumes
  - qemu-utils for images other than raw
"""

EXAMPLES = r"""
---
- name: Create an empty volume and one from an image
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
      description: Whether the item was, or in check mode would be, changed.
      type: bool
      returned: always
    action:
      description: Action, one of V(create), V(redo) (the item was incomplete), V(reimage), V(activate), V(extend), V(remove), V(nothing).
      type: str
      returned: success
    name:
      description: Name of the logical volume.
      type: str
      returned: success
    path:
      description: Path of the device; empty after a deletion.
      type: str
      returned: success
    size:
      description: Size in bytes; 0 after a deletion.
      type: int
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
backend:
  description: Capacity of the backend afterwards, as in RV(bootflow.compute.storage_backend_info#module:backends).
  type: dict
  returned: success
evicted:
  description: Cached images that were evicted, with C(name), C(checksum), C(published), C(image_ids), C(size) in bytes, C(used_at)...
  type: list
  elements: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.core.volumes.names import CLEARS
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
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes.backend import Backend
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes.image_cache import Limits
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes.volume_batch import make_volumes


def argument_spec():
    """The module's options."""
    volume = {
        "id": {"type": "str", "required": True},
        "kind": {"type": "str", "choices": ["volume", "snapshot"], "default": "volume"},
        "state": {"type": "str", "choices": ["present", "extended", "absent", "reimaged"], "default": "present"},
        "size_gb": {"type": "int"},
        "project": {"type": "str"},
        "image_id": {"type": "str"},
        "source_volume": {"type": "str"},
        "source_snapshot": {"type": "str"},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LEDGER_ARGUMENTS,
        "volume_group": {"type": "str", "default": "cinder-volumes"},
        "provisioning": {"type": "str", "choices": ["thick", "thin"], "default": "thick"},
        "thin_pool": {"type": "str"},
        "volumes": {"type": "list", "elements": "dict", "required": True, "options": volume},
        "images": {"type": "list", "elements": "dict", "default": [], "options": IMAGE_ARGUMENTS},
        **FETCH_ARGUMENTS,
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
    keep_time_limit(module)
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
                fetch_limits=fetch_limits(args),
                workers=args["workers"],
                check_mode=module.check_mode,
                ledger_id=args["ledger_id"],
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
