#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: domain_disk
short_description: Attach, detach and resize disks of guests
version_added: "0.9.0"
description:
  - Attaches disks to existing guests, running or not, detaches them, or resizes the disk of a running guest after it grew.
  - Disks are identified by their serial, which for a volume is its UUID. Changes are made both in the running guest and in the definition of its next start,
    wherever they are still missing.
  - A guest can refuse to release a disk. It is asked O(detach_tries) times, with growing pauses; then the detach fails. In this case the disk is removed from
    the definition while the running guest still has it.
  - The failure of one disk does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.workers
  - bootflow.compute.shared.time_limit
attributes:
  diff_mode: {support: full}
  platform: {platforms: linux}
options:
  disks:
    description: The disks.
    type: list
    elements: dict
    required: true
    suboptions:
      id:
        description: Key of the result in RV(outcomes), such as the ID of the attachment.
        type: str
        required: true
      uuid:
        description: UUID of the domain.
        type: str
        required: true
      serial:
        description: Serial of the disk; for a volume its UUID.
        type: str
        required: true
      state:
        description: Requested state. V(resized) updates the size in the running guest after the disk grew.
        type: str
        choices: [attached, detached, resized]
        default: attached
      xml:
        description: XML definition of the disk, with the same serial, a target and a driver type. Required with O(disks[].state=attached).
        type: str
      source:
        description:
          - With O(disks[].state=detached), where this host has the volume, the path of a device or IQN/LUN.
          - A disk that is an overlay on the volume or a copy of it is refused. By default the guest loses the disk, whatever it is.
        type: str
      size:
        description: Size in bytes. Required with O(disks[].state=resized).
        type: int
  detach_tries:
    description: Number of times that a running guest is asked to release a disk.
    type: int
    default: 8
  detach_wait:
    description: Seconds before the second attempt. The next pause is twice as long, then three times, up to 30 seconds.
    type: float
    default: 2
"""

EXAMPLES = r"""
---
- name: Attach a disk to a guest
  bootflow.compute.domain_disk:
    disks:
      - id: data
        uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        serial: 6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d5e
        xml: "{{ lookup('ansible.builtin.file', 'disk.xml') }}"

- name: Detach the disk
  bootflow.compute.domain_disk:
    disks:
      - id: data
        uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        serial: 6a2c1f0e-3c5e-4d7b-8d3f-9f1c2b3a4d5e
        state: detached
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each disk, by its C(id).
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the disk was, or in check mode would be, changed.
      type: bool
      returned: always
    target:
      description: Target name in the domain, such as C(vdb); null if the domain does not have the disk.
      type: str
      returned: success
    live:
      description: Whether the running guest has the disk.
      type: bool
      returned: success
    config:
      description: Whether the definition of the next start has the disk.
      type: bool
      returned: success
    size:
      description: Size in bytes in the running guest, with O(disks[].state=resized); otherwise null.
      type: int
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import (
    LIBVIRT_ARGUMENTS,
    connect,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domain_disks import (
    STATES,
    TRIES,
    desired_disk,
    ensure_disk,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.running import login_users
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    disk = {
        "id": {"type": "str", "required": True},
        "uuid": {"type": "str", "required": True},
        "serial": {"type": "str", "required": True},
        "state": {"type": "str", "choices": list(STATES), "default": "attached"},
        "xml": {"type": "str"},
        "source": {"type": "str"},
        "size": {"type": "int"},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "disks": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": disk,
            "required_if": [("state", "attached", ["xml"]), ("state", "resized", ["size"])],
        },
        "detach_tries": {"type": "int", "default": TRIES},
        "detach_wait": {"type": "float", "default": 2},
        "workers": {"type": "int", "default": 4},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    module.no_log_values |= login_users(*(wanted["xml"] for wanted in args["disks"]))
    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(wanted):
                tries, wait = max(1, args["detach_tries"]), max(0.0, args["detach_wait"])
                return ensure_disk(connection, desired_disk(wanted), module.check_mode, tries, wait)

            results = run_batch([(wanted["id"], wanted) for wanted in args["disks"]], one, args["workers"])
    except Exception as error:
        fail(module, error)
    diff = []
    for wanted in args["disks"]:
        result = results[wanted["id"]]
        before, after = result.pop("before", ""), result.pop("after", "")
        if before != after:
            header = "disk %s of domain %s" % (wanted["serial"], wanted["uuid"])
            diff.append({"before": before, "after": after, "before_header": header, "after_header": header})
    module.no_log_values |= login_users(*(each["before"] for each in diff))
    module.exit_json(changed=any_changed(results), outcomes=results, diff=diff)


if __name__ == "__main__":
    main()
