#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: domain_quiesce
short_description: Have file systems of running guests stand still by their agents
version_added: "0.9.0"
description:
  - Asks the QEMU guest agents of running domains to have the file systems stand still, until this module runs again with O(state=thawed).
  - A process that this module leaves behind thaws them after O(seconds), whatever becomes of the run.
  - A domain that fails does not fail the others. Look at RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: full, details: The agents are not asked.}
  diff_mode: {support: none, details: There is nothing to show.}
  idempotent: {support: none, details: The agents are asked each time.}
  platform: {platforms: linux}
options:
  state:
    description: Whether the file systems are to stand still or to go on.
    type: str
    choices: [frozen, thawed]
    required: true
  domains:
    description: The domains.
    type: list
    elements: dict
    required: true
    suboptions:
      uuid:
        description: UUID of the instance and of its domain, the key of its result in RV(outcomes).
        type: str
        required: true
      quiesce:
        description: With O(state=frozen), whether a domain whose file systems do not stand still fails (V(require)).
        type: str
        choices: [try, require]
        default: try
      token:
        description: With O(state=thawed), the C(token) that the module returned before.
        type: str
        default: ""
  seconds:
    description: With O(state=frozen), the longest time for which the file systems stand still.
    type: float
    default: 60.0
  workers:
    description: How many guests are worked on at once.
    type: int
    default: 8
notes:
  - An agent has 30 seconds to answer.
"""

EXAMPLES = r"""
---
- name: Have the file systems of a guest stand still
  bootflow.compute.domain_quiesce:
    state: frozen
    domains:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
  register: still

- name: Let them go on
  bootflow.compute.domain_quiesce:
    state: thawed
    domains:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        token: "{{ still.outcomes['2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11'].token }}"
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each domain, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the file systems were, or in check mode would be, frozen or thawed.
      type: bool
      returned: always
    power_state:
      description: Nova's number for the guest's state, 1 for running.
      type: int
      returned: success
    quiesced:
      description: Whether the file systems stand still now, or stood still until now.
      type: bool
      returned: success
    token:
      description: The word that releases them; empty where they do not stand still.
      type: str
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.core.images.quiesce import REQUIRE, TRY
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
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.snapshots.standstill import hold, release

FROZEN = "frozen"
THAWED = "thawed"


def argument_spec():
    """The module's options."""
    domain = {
        "uuid": {"type": "str", "required": True},
        "quiesce": {"type": "str", "choices": [TRY, REQUIRE], "default": TRY},
        "token": {"type": "str", "default": "", "no_log": False},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "state": {"type": "str", "choices": [FROZEN, THAWED], "required": True},
        "domains": {"type": "list", "elements": "dict", "required": True, "options": domain},
        "seconds": {"type": "float", "default": 60.0},
        "workers": {"type": "int", "default": 8},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(domain):
                uuid = domain["uuid"].lower()
                if args["state"] == FROZEN:
                    uri = args["libvirt_uri"]
                    return hold(connection, uri, uuid, domain["quiesce"], args["seconds"], module.check_mode)
                return release(connection, uuid, domain["token"], module.check_mode)

            results = run_batch([(d["uuid"], d) for d in args["domains"]], one, args["workers"])
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
