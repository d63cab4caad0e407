#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: domain_console
short_description: Read the consoles of guests
version_added: "0.9.0"
description:
  - Returns what guests printed last on their serial consoles, from the log that their domain names, and where their VNC displays are. Nothing is changed.
  - A domain that fails does not fail the others. Look at RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.time_limit
attributes:
  platform: {platforms: linux}
options:
  uuids:
    description: UUIDs of the instances and of their domains.
    type: list
    elements: str
    required: true
  lines:
    description: How many lines of each console, of at most 1 MiB.
    type: int
    default: 50
"""

EXAMPLES = r"""
---
- name: Read the last words of a guest
  bootflow.compute.domain_console:
    uuids: [2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11]
    lines: 10
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each domain, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Always false.
      type: bool
      returned: always
    console:
      description: The last lines; empty without a log.
      type: list
      elements: str
      returned: success
    power_state:
      description: Nova's number for its state, 1 for running, 3 paused, 4 shut down, 6 crashed, 7 suspended, 0 none.
      type: int
      returned: success
    vnc:
      description: Where the display is, with C(listen), an address of the host, and C(port); null without one, or if the guest does not run.
      type: dict
      returned: success
      sample:
        listen: 127.0.0.1
        port: 5900
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
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.consoles import read_console
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "uuids": {"type": "list", "elements": "str", "required": True},
        "lines": {"type": "int", "default": 50},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(uuid):
                return read_console(connection, uuid.lower(), max(1, args["lines"]))

            results = run_batch([(uuid, uuid) for uuid in args["uuids"]], one)
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=False, outcomes=results)


if __name__ == "__main__":
    main()
