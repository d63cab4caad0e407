#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_backup_check
short_description: Read incremental backups of instances back
version_added: "0.9.0"
description:
  - >-
    Reads all bytes of each backup and compares their sha256, its entry in C(manifest.json), and the file that it is on. If the files that it needs are good,
    C(qemu-img) reads from which of them each part of the disk is.
  - A damaged backup is not a failure; RV(outcomes) says what is wrong. Nothing is written.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: full, details: Nothing is written anyway.}
  diff_mode: {support: none, details: There is nothing to show.}
  idempotent: {support: full}
  platform: {platforms: linux}
options:
  backups:
    description: The backups, those first that others need.
    type: list
    elements: dict
    required: true
    suboptions:
      id: {description: "Id of the backup, the key of its result in RV(outcomes).", type: str, required: true}
      folder: {description: Folder of its file., type: str, required: true}
      file: {description: Name of its file., type: str, required: true}
      size: {description: Bytes of the file., type: int, required: true}
      virtual_size: {description: Bytes of the disk., type: int, required: true}
      checksum: {description: The sha256 of the file., type: str, required: true}
      needs:
        description: Names of the files in the folder that it needs, the full backup first.
        type: list
        elements: str
        default: []
"""

EXAMPLES = r"""
---
- name: Read a full backup back
  bootflow.compute.instance_backup_check:
    backups:
      - id: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        folder: /var/lib/bootflow/backups/0c6f3f3b-6a0f-4d8e-9f0b-2f4c1c0e2a11
        file: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11.qcow2
        size: 196616
        virtual_size: 1073741824
        checksum: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each backup, by its id.
  type: dict
  returned: success
  contains:
    changed:
      description: "Always false: nothing is written."
      type: bool
      returned: always
    damage:
      description: What is wrong with its file, in words; empty if nothing is.
      type: str
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

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.backups.folder import StoredBackup
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.backups.reading import ReadingBack
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    backup = {
        "id": {"type": "str", "required": True},
        "folder": {"type": "str", "required": True},
        "file": {"type": "str", "required": True},
        "size": {"type": "int", "required": True},
        "virtual_size": {"type": "int", "required": True},
        "checksum": {"type": "str", "required": True},
        "needs": {"type": "list", "elements": "str", "default": []},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        "backups": {"type": "list", "elements": "dict", "required": True, "options": backup},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    reading = ReadingBack()

    def one(backup):
        stored = {name: value for name, value in backup.items() if name != "needs"}
        return reading.read(StoredBackup(**stored), backup["needs"])

    try:
        results = run_batch([(b["id"], b) for b in module.params["backups"]], one, 1)  # in this order
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
