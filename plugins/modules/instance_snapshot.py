#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_snapshot
short_description: Make images of the root disks of instances
version_added: "0.9.0"
description:
  - Writes the root disk of each instance to a file that needs no base image. Other disks and volumes are not in it.
  - >-
    The disk of a guest that is off is converted with qemu-img. Of a guest that runs, or is paused, QEMU itself makes a copy, which ends at one
    moment; the guest keeps its own disk, and no snapshot of libvirt remains.
  - A file gets its name when all of its bytes are on the disk, so that a half image is never seen. Room for it is looked for before.
  - The format of a disk is that of its record in the folder of the instance. It is never taken from what the guest wrote.
  - If this module is killed, a process that it left behind ends QEMU's copy, lets the guest's file systems go on, and removes the half file.
  - An instance that fails does not fail the others. Look at RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: full, details: "Nothing is written, and no agent is asked."}
  diff_mode: {support: none, details: There is nothing to show.}
  idempotent: {support: none, details: An image is made each time.}
  platform: {platforms: linux}
options:
  instances:
    description: The instances.
    type: list
    elements: dict
    required: true
    suboptions:
      uuid:
        description: UUID of the instance and of its domain, the key of its result in RV(outcomes).
        type: str
        required: true
      image_id:
        description: Id of the image. The file has this name.
        type: str
        required: true
      quiesce:
        description:
          - Whether the guest's agent has the file systems stand still at the moment of the copy, of a guest that runs.
          - V(try) makes the image also where the agent does not do so, V(require) does not.
        type: str
        choices: ["no", "try", "require"]
        default: "no"
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
  image_format:
    description: Format of the files. Without it, that of each disk.
    type: str
    choices: [qcow2, raw]
  compress:
    description: Compress files with the format V(qcow2).
    type: bool
    default: false
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
- name: Make an image of an instance in a store of this host
  bootflow.compute.instance_snapshot:
    instances:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        image_id: 6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e
    path: /srv/images
    image_format: qcow2
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each instance, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the image was, or in check mode would be, made.
      type: bool
      returned: always
    power_state:
      description: Nova's number for the guest's state, 1 for running.
      type: int
      returned: success
    disk_format:
      description: Format of the file.
      type: str
      returned: success
    live:
      description: Whether QEMU copied the disk of a guest that it runs, or has paused.
      type: bool
      returned: success
    quiesced:
      description: Whether the guest's file systems stood still at that moment.
      type: bool
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
    nvram:
      description: UEFI variables of the guest, compressed and in base64; empty if it has none.
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

from ansible_collections.bootflow.compute.plugins.module_utils.core.images.quiesce import QUIESCES
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import (
    LIBVIRT_ARGUMENTS,
    connect,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots.files import remove_failed, remove_stale
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots.snapshot import (
    SnapshotSpec,
    place_of,
    take,
)


def argument_spec():
    """The module's options."""
    instance = {
        "uuid": {"type": "str", "required": True},
        "image_id": {"type": "str", "required": True},
        "quiesce": {"type": "str", "choices": list(QUIESCES), "default": "no"},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "instances": {"type": "list", "elements": "dict", "required": True, "options": instance},
        "path": {"type": "path"},
        "mode": {"type": "str", "default": "0600"},
        "owner": {"type": "int", "default": 0},
        "image_format": {"type": "str", "choices": ["qcow2", "raw"]},
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
        place = place_of(args)
        if not module.check_mode:
            remove_stale(place.target.own, args["stale_seconds"])
            remove_failed(place.target.own, args["failed_images"])
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(instance):
                spec = SnapshotSpec(instance["uuid"].lower(), instance["image_id"], instance["quiesce"])
                return take(connection, spec, place, module.check_mode)

            results = run_batch([(i["uuid"], i) for i in args["instances"]], one, args["workers"])
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
