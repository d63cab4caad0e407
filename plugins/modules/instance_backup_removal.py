#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_backup_removal
short_description: Remove incremental backups of instances
version_added: "0.9.0"
description:
  - Removes the files of backups, and their checkpoints where libvirt has them.
  - A checkpoint that libvirt does not delete is deleted by the next backup of the instance.
  - A backup that fails does not fail the others. Look at RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: full}
  diff_mode: {support: none, details: There is nothing to show.}
  idempotent: {support: full}
  platform: {platforms: linux}
options:
  directory:
    description: The directory of this host for backups.
    type: path
    default: /var/lib/bootflow/backups
  backups:
    description: The backups, those first that are on others.
    type: list
    elements: dict
    required: true
    suboptions:
      id:
        description: Id of the backup, the key of its result in RV(outcomes).
        type: str
        required: true
      uuid:
        description: UUID of the instance.
        type: str
        required: true
      folder:
        description: The folder of its file. Without it, that of the instance in O(directory).
        type: str
        default: ""
"""

EXAMPLES = r"""
---
- name: Remove a backup
  bootflow.compute.instance_backup_removal:
    backups:
      - id: 6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e
        uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each backup, by its id.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether something of it was, or in check mode would be, removed.
      type: bool
      returned: always
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

import contextlib

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.core.errors import HypervisorUnavailable
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.backups.removal import remove
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
    backup = {
        "id": {"type": "str", "required": True},
        "uuid": {"type": "str", "required": True},
        "folder": {"type": "str", "default": ""},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "directory": {"type": "path", "default": "/var/lib/bootflow/backups"},
        "backups": {"type": "list", "elements": "dict", "required": True, "options": backup},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        with contextlib.ExitStack() as stack:
            connection = None
            with contextlib.suppress(HypervisorUnavailable):  # files can go without it
                connection = stack.enter_context(connect(args["libvirt_uri"], args["libvirt_timeout"]))

            def one(backup):
                place = backup["uuid"].lower(), backup["id"], backup["folder"], args["directory"]
                return remove(connection, *place, check_mode=module.check_mode)

            results = run_batch([(b["id"], b) for b in args["backups"]], one, 1)
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
