#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_backup_image
short_description: Make images of incremental backups
version_added: "0.9.0"
description:
  - Writes each backup, with all backups that it needs, to a qcow2 file that needs no other one.
  - All bytes of the backups are compared with their checksums before.
  - A file gets its name when all of its bytes are on the disk, so that a half image is never seen. Room for it is looked for before.
  - A backup that fails does not fail the others. Look at RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: full, details: "Nothing is written, and no checksum is compared."}
  diff_mode: {support: none, details: There is nothing to show.}
  idempotent: {support: none, details: An image is made each time.}
  platform: {platforms: linux}
options:
  backups:
    description: The images to make.
    type: list
    elements: dict
    required: true
    suboptions:
      key:
        description: The key of the result in RV(outcomes).
        type: str
        required: true
      image_id:
        description: Id of the image. The file has this name.
        type: str
        required: true
      chain:
        description: The backup, last, and all that it needs, the full one first.
        type: list
        elements: dict
        required: true
        suboptions:
          id: {description: Id of the backup., type: str, required: true}
          folder: {description: Folder of its file., type: str, required: true}
          file: {description: Name of its file., type: str, required: true}
          size: {description: Bytes of the file., type: int, required: true}
          virtual_size: {description: Bytes of the disk., type: int, required: true}
          checksum: {description: The sha256 of the file., type: str, required: true}
  path:
    description:
      - The directory that gets the files. It is never created, as it may be where a file system is not mounted.
      - Without it they stay in the folder C(_snapshots) of O(instances_path), where a controller fetches them.
    type: path
  mode:
    description: The mode of the files in O(path), in octal digits.
    type: str
    default: "0600"
  owner:
    description: Number of the user who may read the files without O(path).
    type: int
    default: 0
  stale_seconds:
    description: Files in C(_snapshots) that are older than this are removed, as no run needs them any more. V(0) for none.
    type: float
    default: 0.0
  failed_images:
    description: Ids of images that failed. Files of these in C(_snapshots) are removed.
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
- name: Make an image of a full backup in a store of this host
  bootflow.compute.instance_backup_image:
    backups:
      - key: web
        image_id: 6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e
        chain:
          - id: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
            folder: /var/lib/bootflow/backups/0c6f3f3b-6a0f-4d8e-9f0b-2f4c1c0e2a11
            file: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11.qcow2
            size: 196616
            virtual_size: 1073741824
            checksum: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    path: /srv/images
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each image, by its key.
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

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.backups.folder import StoredBackup
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.backups.restore import RestoreSpec, take
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.paths import snapshots_dir
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots.files import (
    remove_failed,
    remove_stale,
    target_by,
)


def argument_spec():
    """The module's options."""
    stored = {
        "id": {"type": "str", "required": True},
        "folder": {"type": "str", "required": True},
        "file": {"type": "str", "required": True},
        "size": {"type": "int", "required": True},
        "virtual_size": {"type": "int", "required": True},
        "checksum": {"type": "str", "required": True},
    }
    backup = {
        "key": {"type": "str", "required": True, "no_log": False},
        "image_id": {"type": "str", "required": True},
        "chain": {"type": "list", "elements": "dict", "required": True, "options": stored},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "backups": {"type": "list", "elements": "dict", "required": True, "options": backup},
        "path": {"type": "path"},
        "mode": {"type": "str", "default": "0600"},
        "owner": {"type": "int", "default": 0},
        "stale_seconds": {"type": "float", "default": 0.0},
        "failed_images": {"type": "list", "elements": "str", "default": []},
        "workers": {"type": "int", "default": 2},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        target = target_by(args, snapshots_dir(args["instances_path"]))
        if not module.check_mode:
            remove_stale(target.own, args["stale_seconds"])
            remove_failed(target.own, args["failed_images"])

        def one(backup):
            chain = tuple(StoredBackup(**stored) for stored in backup["chain"])
            return take(RestoreSpec(backup["image_id"], chain), target, module.check_mode)

        results = run_batch([(b["key"], b) for b in args["backups"]], one, args["workers"])
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
