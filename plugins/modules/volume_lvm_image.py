#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later


from __future__ import annotations

DOCUMENTATION = r"""
---
module: volume_lvm_image
short_description: Make images of volumes of LVM backends
version_added: "0.9.0"
description:
  - Writes the logical volume of each volume to a file. A volume in use is read while it is written, as Cinder does.
  - >-
    The device is read past the page cache. Its content is taken for a raw disk, whatever a guest wrote; a raw file that looks like another format is
    refused.
  - A file gets its name when all of its bytes are on the disk, so that a half image is never seen. Room for it is looked for before.
  - A volume that fails does not fail the others. Look at RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.shared.ledger_id
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: full, details: "Nothing is written. The volume, the directory and its room are looked at."}
  diff_mode: {support: none, details: There is nothing to show.}
  idempotent: {support: none, details: An image is made each time.}
  platform: {platforms: linux}
options:
  volumes:
    description: The volumes.
    type: list
    elements: dict
    required: true
    suboptions:
      id:
        description: UUID of the volume, the key of its result in RV(outcomes).
        type: str
        required: true
      image_id:
        description: Id of the image. The file has this name.
        type: str
        required: true
      volume_group:
        description: Volume group of its backend.
        type: str
        required: true
      disk_format:
        description: Format of the file.
        type: str
        choices: [raw, qcow2]
        default: raw
  path:
    description:
      - The directory that gets the files. It is never created, as it may be where a file system is not mounted.
      - Without it they stay in O(own), where a controller fetches them.
    type: path
  own:
    description: This host's own directory for them.
    type: path
    default: /var/lib/bootflow/conversion/_snapshots
  mode:
    description: The mode of the files in O(path), in octal digits.
    type: str
    default: "0600"
  owner:
    description: Number of the user who may read the files without O(path).
    type: int
    default: 0
  compress:
    description: Compress files with the format V(qcow2).
    type: bool
    default: false
  stale_seconds:
    description: Files in O(own) that are older than this are removed, as no run needs them any more. V(0) for none.
    type: float
    default: 0.0
  failed_images:
    description: Ids of images that failed. Files of these in O(own) are removed.
    type: list
    elements: str
    default: []
  workers:
    description: How many images are made at once.
    type: int
    default: 2
"""

EXAMPLES = r"""
---
- name: Make an image of a volume in a store of this host
  bootflow.compute.volume_lvm_image:
    volumes:
      - id: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        image_id: 6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e
        volume_group: cinder-volumes
        disk_format: qcow2
    path: /srv/images
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each volume, by its id.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the image was, or in check mode would be, made.
      type: bool
      returned: always
    disk_format:
      description: Format of the file.
      type: str
      returned: success
    size:
      description: Size of the file in bytes.
      type: int
      returned: success, not in check mode
    checksum:
      description: Its sha256.
      type: str
      returned: success, not in check mode
    path:
      description: Where the file is.
      type: str
      returned: success, not in check mode
    seconds:
      description: Duration in seconds.
      type: float
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.core.images.volume_images import FORMATS
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots.files import (
    remove_failed,
    remove_stale,
    target_by,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots.volume import VolumeSpec, take


def argument_spec():
    """The module's options."""
    volume = {
        "id": {"type": "str", "required": True},
        "image_id": {"type": "str", "required": True},
        "volume_group": {"type": "str", "required": True},
        "disk_format": {"type": "str", "choices": list(FORMATS), "default": "raw"},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        "ledger_id": {"type": "str", "default": ""},
        "volumes": {"type": "list", "elements": "dict", "required": True, "options": volume},
        "path": {"type": "path"},
        "own": {"type": "path", "default": "/var/lib/bootflow/conversion/_snapshots"},
        "mode": {"type": "str", "default": "0600"},
        "owner": {"type": "int", "default": 0},
        "compress": {"type": "bool", "default": False},
        "stale_seconds": {"type": "float", "default": 0.0},
        "failed_images": {"type": "list", "elements": "str", "default": []},
        "workers": {"type": "int", "default": 2},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        target = target_by(args, args["own"])
        if not module.check_mode:
            remove_stale(target.own, args["stale_seconds"])
            remove_failed(target.own, args["failed_images"])

        def one(volume):
            return take(VolumeSpec(**volume), target, args["ledger_id"], args["compress"], module.check_mode)

        results = run_batch([(v["id"], v) for v in args["volumes"]], one, args["workers"])
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
