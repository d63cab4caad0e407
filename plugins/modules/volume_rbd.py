#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_rbd
short_description: Create, extend, clone and delete the volumes of one Ceph pool
version_added: "0.9.0"
description:
  - Creates volumes and snapshots as images of RBD in one pool, empty, from an image, from a snapshot or from another volume; extends them; deletes them.
  - A volume is the image C(volume-ID), a snapshot is C(volume-ID@snapshot-ID), as Cinder names them. An existing one with the requested size, source and
    project stays unchanged; other differences are errors.
  - A volume from a snapshot or a volume is a clone, which shares what it does not write. The sixth clone in a chain is made independent.
  - A deleted volume from which others were cloned is kept as C(volume-ID.deleted), and goes with the last of them.
  - Images are treated as hostile, as by M(bootflow.compute.volume_lvm). What was written is read back and compared.
  - An image gets its name when it is complete. A killed run leaves C(incomplete.volume-ID), which the next one removes.
  - A cluster that does not answer, and a pool that is full, are errors before anything is changed.
  - The failure of one volume does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.shared.ceph_cluster
  - bootflow.compute.shared.ledger_id
  - bootflow.compute.shared.source_images
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: full, details: "In check mode images are not fetched, and therefore not checked."}
  diff_mode: {support: full}
  platform: {platforms: linux}
options:
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
          - V(absent) removes the item. A volume that is in use or has snapshots is rejected. Volumes that were made from a snapshot become independent first.
          - V(reimaged) writes an existing volume again from O(volumes[].image_id). A volume that is in use or has snapshots is rejected.
        type: str
        choices: [present, extended, absent, reimaged]
        default: present
      size_gb:
        description: Size in GiB. By default the size of the source volume or snapshot.
        type: int
      project:
        description: Project of the volume; written into its metadata.
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
    description: Read the written data back from the pool, and compare it with the image.
    type: bool
    default: true
  workers:
    description: Number of volumes to fill in parallel.
    type: int
    default: 4
requirements:
  - ceph-common
  - qemu-utils for images other than raw
"""

EXAMPLES = r"""
---
- name: Create a volume, and a clone of it
  bootflow.compute.volume_rbd:
    pool: volumes
    monitors: ["192.0.2.21:6789", "192.0.2.22:6789"]
    user: cinder
    key: "{{ vault_ceph_key }}"
    volumes:
      - id: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        size_gb: 10
      - id: 9b1f3d5c-0f7a-4c39-8f0e-5f0d2c1b7a22
        source_volume: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
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
      description: Action, one of V(create), V(reimage), V(extend), V(remove), V(nothing).
      type: str
      returned: success
    name:
      description: Name of the image, or C(IMAGE@SNAPSHOT).
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
  description:
    - Capacity of the backend afterwards, as in RV(bootflow.compute.rbd_backend_info#module:backends).
    - null if no manager of the cluster counts what is stored.
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

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
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.cluster import CLUSTER_ARGUMENTS, opened
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.volume_batch import Settings, make_volumes


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
        "pool": {"type": "str", "required": True},
        **CLUSTER_ARGUMENTS,
        "volumes": {"type": "list", "elements": "dict", "required": True, "options": volume},
        "images": {"type": "list", "elements": "dict", "default": [], "options": IMAGE_ARGUMENTS},
        **FETCH_ARGUMENTS,
        "temp_dir": {"type": "path", "default": "/var/lib/bootflow/conversion"},
        "verify": {"type": "bool", "default": True},
        "workers": {"type": "int", "default": 4},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    settings = Settings(
        temp_dir=args["temp_dir"],
        verify=args["verify"],
        allow_unverified=args["allow_unverified"],
        fetch_limits=fetch_limits(args),
        workers=args["workers"],
        check_mode=module.check_mode,
        ledger_id=args["ledger_id"],
    )
    try:
        with opened(args) as cluster:
            outcome = make_volumes(cluster, settings, args["volumes"], args["images"], args["uploads"])
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(outcome["outcomes"]), **outcome)


if __name__ == "__main__":
    main()
