#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_backup
short_description: Make full and incremental backups of the root disks of instances
version_added: "0.9.0"
description:
  - Writes the root disk of each instance to a qcow2 file in a directory of the host, or what was written to it since the backup before.
  - >-
    QEMU writes the file of a guest that runs, or is paused, by libvirt's backup API, as the disk was at the begin. The guest goes on. Its next increment
    follows on a checkpoint of libvirt. The disk of a guest that is off is converted with qemu-img, and its backup is full.
  - An increment is a qcow2 file on the file of the backup before, so that C(qemu-img) reads both as one disk. C(manifest.json) names complete backups.
  - Where no increment is possible, as QEMU was killed and has lost the bitmap, the backup is full, and RV(outcomes) says why.
  - After a failure nothing is left of the backup, neither file nor checkpoint, also if this module is killed.
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
  idempotent: {support: none, details: A backup is made each time.}
  platform: {platforms: linux}
options:
  directory:
    description: The directory of this host for backups. Each instance has a folder in it. It is made if it is missing.
    type: path
    default: /var/lib/bootflow/backups
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
      name:
        description: Its name, for the manifest.
        type: str
        default: ""
      backup_id:
        description: Id of the backup. The file has this name, and the checkpoint C(bootflow-) before it.
        type: str
        required: true
      quiesce:
        description:
          - Whether the guest's agent has the file systems stand still at the begin of the backup, of a guest that runs.
          - V(try) makes the backup also where the agent does not do so, V(require) does not.
        type: str
        choices: ["no", "try", "require"]
        default: "no"
      reason:
        description: Why the backup is to be full. Without it, an increment is made if that is possible.
        type: str
        default: ""
      chain:
        description: The backups that an increment needs, the full one first.
        type: list
        elements: dict
        default: []
        suboptions:
          id: {description: Id of the backup., type: str, required: true}
          folder: {description: Folder of its file., type: str, required: true}
          file: {description: Name of its file., type: str, required: true}
          size: {description: Bytes of the file., type: int, required: true}
          virtual_size: {description: Bytes of the disk., type: int, required: true}
          checksum: {description: The sha256 of the file., type: str, required: true}
          checkpoint: {description: Name of its checkpoint., type: str, default: ""}
          checkpoint_xml: {description: The checkpoint as libvirt described it., type: str, default: ""}
      kept_checkpoint:
        description: The checkpoint that stays. Other checkpoints whose names begin with C(bootflow-) are deleted.
        type: str
        default: ""
      removed:
        description: Ids of backups of the instance of which nothing is to be left.
        type: list
        elements: str
        default: []
  workers:
    description: How many backups are made at once.
    type: int
    default: 2
"""

EXAMPLES = r"""
---
- name: Make a full backup of an instance
  bootflow.compute.instance_backup:
    directory: /srv/backups
    instances:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        backup_id: 6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e
        reason: the first one
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each instance, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the backup was, or in check mode would be, made.
      type: bool
      returned: always
    power_state:
      description: Nova's number for the guest's state, 1 for running.
      type: int
      returned: success
    kind:
      description: Whether the backup is full, or has what was written since its parent.
      type: str
      returned: success
    parent_id:
      description: Id of the backup that it needs; null of a full one.
      type: str
      returned: success
    reason:
      description: Why it is full.
      type: str
      returned: success
    live:
      description: Whether QEMU wrote the backup of a guest that it runs, or has paused.
      type: bool
      returned: success
    quiesced:
      description: Whether the guest's file systems stood still at its begin.
      type: bool
      returned: success
    folder:
      description: Where the file is.
      type: str
      returned: success, not in check mode
    file:
      description: Name of the file.
      type: str
      returned: success, not in check mode
    size:
      description: Size of the file in bytes.
      type: int
      returned: success, not in check mode
    virtual_size:
      description: Size of the disk in bytes.
      type: int
      returned: success, not in check mode
    checksum:
      description: The sha256 of the file.
      type: str
      returned: success, not in check mode
    checkpoint:
      description: libvirt's name of its checkpoint; empty without one.
      type: str
      returned: success, not in check mode
    checkpoint_xml:
      description: The checkpoint as libvirt describes it.
      type: str
      returned: success, not in check mode
    removed:
      description: Ids of backups of which nothing is left.
      type: list
      elements: str
      returned: success
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
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.backups.folder import StoredBackup
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.backups.take import BackupPlace, BackupSpec, take
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


def argument_spec():
    """The module's options."""
    stored = {
        "id": {"type": "str", "required": True},
        "folder": {"type": "str", "required": True},
        "file": {"type": "str", "required": True},
        "size": {"type": "int", "required": True},
        "virtual_size": {"type": "int", "required": True},
        "checksum": {"type": "str", "required": True},
        "checkpoint": {"type": "str", "default": ""},
        "checkpoint_xml": {"type": "str", "default": ""},
    }
    instance = {
        "uuid": {"type": "str", "required": True},
        "name": {"type": "str", "default": ""},
        "backup_id": {"type": "str", "required": True},
        "quiesce": {"type": "str", "choices": list(QUIESCES), "default": "no"},
        "reason": {"type": "str", "default": ""},
        "chain": {"type": "list", "elements": "dict", "default": [], "options": stored},
        "kept_checkpoint": {"type": "str", "default": ""},
        "removed": {"type": "list", "elements": "str", "default": []},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "directory": {"type": "path", "default": "/var/lib/bootflow/backups"},
        "instances": {"type": "list", "elements": "dict", "required": True, "options": instance},
        "workers": {"type": "int", "default": 2},
    }


def spec_of(instance):
    """The backup to make of an element of the option ``instances``."""
    return BackupSpec(
        instance["uuid"].lower(),
        instance["backup_id"],
        instance["name"],
        instance["quiesce"],
        instance["reason"],
        tuple(StoredBackup(**stored) for stored in instance["chain"]),
        instance["kept_checkpoint"],
        tuple(instance["removed"]),
    )


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        place = BackupPlace(args["instances_path"], args["libvirt_uri"], args["directory"])
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(instance):
                return take(connection, spec_of(instance), place, module.check_mode)

            results = run_batch([(i["uuid"], i) for i in args["instances"]], one, args["workers"])
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
