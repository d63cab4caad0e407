#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: domain_info
short_description: List the power states of all domains of a host
version_added: "0.9.0"
description:
  - Asks libvirt once for the states of all domains, running or only defined, whoever defined them.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.time_limit
attributes:
  platform: {platforms: linux}
seealso:
  - module: bootflow.compute.compute_node_info
  - module: bootflow.compute.domain_power
"""

EXAMPLES = r"""
---
- name: Ask for the states of all domains
  bootflow.compute.domain_info:
  register: domains

- name: Show running domains
  ansible.builtin.debug:
    msg: "{{ domains.power_states | dict2items | selectattr('value', 'eq', 1) | map(attribute='key') }}"
"""

RETURN = r"""
---
power_states:
  description: Nova's number for the state of each domain, by its UUID, 1 for running, 3 paused, 4 shut down, 6 crashed, 7 suspended, 0 none.
  type: dict
  returned: success
  sample:
    6a2c1f0e-3c5e-5d7b-8d3f-9f1c2b3a4d5e: 1
boot_id:
  description: The kernel's name for the host's start, another one after each restart; empty if the host has none.
  type: str
  returned: success
at_work:
  description: UUIDs of the guests that a module of this collection defines, starts or stops now. Their states are not their last.
  type: list
  elements: str
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import (
    LIBVIRT_ARGUMENTS,
    connect,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domains import power_states
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.boots import (
    boot_id,
    check_not_ending,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.locks import guests_at_work
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def main():
    module = AnsibleModule(argument_spec={**TIME_LIMIT_ARGUMENTS, **LIBVIRT_ARGUMENTS}, supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        working = guests_at_work()
        boot = boot_id()  # before the states: states of a later start are never taken for this one's
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:
            states_by_uuid = power_states(connection)
        check_not_ending()  # after the states, which change first
        working |= guests_at_work()
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=False, power_states=states_by_uuid, boot_id=boot, at_work=sorted(working))


if __name__ == "__main__":
    main()
