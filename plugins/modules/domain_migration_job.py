#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: domain_migration_job
short_description: End migrations of guests that leave this host, or have them complete
version_added: "0.9.0"
description:
  - Ends the migration of guests, which go on here, or pauses them so that their migration comes to its end; they go on on their new hosts.
  - The failure of one guest does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: full, details: Tells how far the migrations are. They go on as they do.}
  diff_mode: {support: none, details: A guest has no text to compare.}
  platform: {platforms: linux}
options:
  uuids:
    description: UUIDs of the guests.
    type: list
    elements: str
    required: true
  action:
    description: What is done.
    type: str
    choices: [abort, force_complete]
    required: true
  permit_post_copy:
    description: With O(action=force_complete), the guest may run on its new host before all of its memory is there, instead of being paused.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
- name: Let a guest stay where it is
  bootflow.compute.domain_migration_job:
    uuids: [2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11]
    action: abort
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each guest, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the host was changed.
      type: bool
      returned: always
    total:
      description: Bytes that the migration has to copy, at this moment.
      type: int
      returned: success
    remaining:
      description: Bytes of these that were not copied yet.
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
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.live.migrate import intervene
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
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
        "action": {"type": "str", "choices": ["abort", "force_complete"], "required": True},
        "permit_post_copy": {"type": "bool", "default": False},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(uuid):
                return intervene(connection, uuid, args["action"], args["permit_post_copy"], module.check_mode)

            results = run_batch([(uuid, uuid) for uuid in args["uuids"]], one, workers=4)
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
