#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: domain_password
short_description: Set passwords in running guests by their agents
version_added: "0.9.0"
description:
  - Asks the QEMU guest agents of running domains to set the password of a user. The old password cannot be read, so it is set each time.
  - A domain that fails does not fail the others. Look at RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: full, details: The agents are not asked.}
  diff_mode: {support: none, details: There is nothing to show.}
  idempotent: {support: none, details: The password is set each time.}
  platform: {platforms: linux}
options:
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
      user:
        description: The user in the guest.
        type: str
        default: root
      password:
        description: The new password.
        type: str
        required: true
  workers:
    description: How many guests are worked on at once.
    type: int
    default: 8
notes:
  - An agent has 30 seconds to answer.
"""

EXAMPLES = r"""
---
- name: Set the password of root
  bootflow.compute.domain_password:
    domains:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        password: "{{ vault_web_password }}"
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each domain, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the password was, or in check mode would be, set.
      type: bool
      returned: always
    power_state:
      description: Nova's number for the guest's state, 1 for running.
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
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.password import PasswordSpec, set_password
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    domain = {
        "uuid": {"type": "str", "required": True},
        "user": {"type": "str", "default": "root"},
        "password": {"type": "str", "required": True, "no_log": True},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "domains": {"type": "list", "elements": "dict", "required": True, "options": domain},
        "workers": {"type": "int", "default": 8},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(domain):
                spec = PasswordSpec(domain["uuid"].lower(), domain["user"], domain["password"])
                return set_password(connection, spec, module.check_mode)

            results = run_batch([(d["uuid"], d) for d in args["domains"]], one, args["workers"])
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
