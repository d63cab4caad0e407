#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_disks_revert
short_description: Put a disk that was made of an image in the place of the root disks of instances
version_added: "0.9.0"
description:
  - A revert of instances to images that were made of them. M(bootflow.compute.instance_disks) makes a disk of the image
    (O(bootflow.compute.instance_disks#module:instances[].replacement)), this module exchanges it for the root disk. The guest keeps its domain, as path and
    format of the disk stay.
  - A disk that is a file is exchanged by one rename. A logical volume is exchanged by two, with C(.revert.new) and C(.revert.old) at the end of the other
    names; where only the first of these was done, the next revert undoes it.
  - A guest that has disks of others, or snapshots or checkpoints in libvirt, is refused, and so is one with UEFI variables or a TPM.
  - An instance that fails does not fail the others. Look at RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.ledger_id
  - bootflow.compute.shared.workers
  - bootflow.compute.shared.time_limit
  - bootflow.compute.shared.volume_clear
attributes:
  check_mode: {support: full, details: With each state only what V(checked) does is done.}
  diff_mode: {support: none, details: Disks have no text to compare.}
  idempotent: {support: none, details: A disk is exchanged each time.}
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
      volumes:
        description: By the UUIDs of volumes that the instance has, where this host has them, the path of a device or IQN/LUN.
        type: dict
        default: {}
      nvram:
        description:
          - UEFI variables of the image, as M(bootflow.compute.instance_snapshot) returns them.
          - Without them, a guest that has UEFI variables is refused. A guest with a TPM is refused in any case.
        type: str
        default: ""
  state:
    description:
      - V(checked) looks whether the root disks can go back, and at the power state of the guests. V(reverted) exchanges the disks of guests that are off, and
        removes what they were. V(undone) removes the replacements.
    type: str
    choices: [checked, reverted, undone]
    required: true
requirements:
  - lvm2 for disks in a volume group
"""

EXAMPLES = r"""
---
- name: Exchange the root disk of a guest that is off
  bootflow.compute.instance_disks_revert:
    state: reverted
    instances:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each instance, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether a disk was, or with O(state=checked) or in check mode would be, exchanged or removed.
      type: bool
      returned: always
    power_state:
      description: Nova's number for the guest's state, 1 for running.
      type: int
      returned: success, not with O(state=undone)
    reverted:
      description: Whether the root disk is that of the image. An error is about what it was before then.
      type: bool
      returned: with O(state=reverted), when the disks were exchanged
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.stores.group import (
    CLEARING_ARGUMENTS,
    Clearing,
    Group,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import (
    LIBVIRT_ARGUMENTS,
    connect,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.ownership import LEDGER_ARGUMENTS
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots import revert

STATES = {"checked": revert.check, "reverted": revert.take, "undone": revert.drop}


def argument_spec():
    """The module's options."""
    instance = {"uuid": {"type": "str", "required": True}, "volumes": {"type": "dict", "default": {}}}
    instance["nvram"] = {"type": "str", "default": ""}
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LEDGER_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "instances": {"type": "list", "elements": "dict", "required": True, "options": instance},
        "state": {"type": "str", "choices": list(STATES), "required": True},
        **CLEARING_ARGUMENTS,
        "workers": {"type": "int", "default": 4},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    group = Group("", args["ledger_id"], Clearing.from_arguments(args))
    step = revert.check if module.check_mode else STATES[args["state"]]
    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(instance):
                spec = revert.RevertSpec(instance["uuid"].lower(), instance["volumes"], instance["nvram"])
                return step(connection, args["instances_path"], spec, group)

            results = run_batch([(i["uuid"], i) for i in args["instances"]], one, args["workers"])
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
