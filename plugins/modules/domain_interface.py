#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: domain_interface
short_description: Attach and detach interfaces of guests
version_added: "0.9.0"
description:
  - Attaches network interfaces to existing guests, running or not, and detaches them.
  - Interfaces are identified by their MAC addresses. Changes are made both in the running guest and in the definition of its next start, wherever they are
    still missing, and in the DHCP servers of libvirt's networks.
  - A guest can refuse to release an interface. It is asked O(detach_tries) times, with growing pauses; then the detach fails, and the guest keeps it.
  - The failure of one interface does not affect the others. RV(outcomes) has the result of each.
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
  interfaces:
    description: The interfaces.
    type: list
    elements: dict
    required: true
    suboptions:
      id:
        description: Key of the result in RV(outcomes), such as the ID of the port.
        type: str
        required: true
      uuid:
        description: UUID of the domain.
        type: str
        required: true
      mac:
        description: MAC address of the interface.
        type: str
        required: true
      state:
        description: Requested state.
        type: str
        choices: [attached, detached]
        default: attached
      xml:
        description: XML definition of the interface, with the same MAC address. Required with O(interfaces[].state=attached).
        type: str
      reservations:
        description: Addresses that DHCP servers of libvirt reserve for the interface, with O(interfaces[].state=attached).
        type: list
        elements: dict
        default: []
        suboptions:
          network: {description: "Name of the network in libvirt.", type: str, required: true}
          mac: {description: "MAC address of the interface.", type: str, required: true}
          address: {description: "The address.", type: str, required: true}
          name: {description: "Hostname of the guest.", type: str, default: ""}
      network:
        description: Network of libvirt whose DHCP server is to forget the interface, with O(interfaces[].state=detached).
        type: str
  detach_tries:
    description: Number of times that a running guest is asked to release an interface.
    type: int
    default: 8
  detach_wait:
    description: Seconds before the second attempt. The next pause is twice as long, then three times, up to 30 seconds.
    type: float
    default: 2
  vif_plugging_timeout:
    description: Seconds that an interface of a running guest has to come up on the host.
    type: float
    default: 300
  vif_plugging_is_fatal:
    description: Whether it is an error if it does not.
    type: bool
    default: true
"""

EXAMPLES = r"""
---
- name: Attach an interface to a guest
  bootflow.compute.domain_interface:
    interfaces:
      - id: data
        uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        mac: fa:16:3e:00:00:01
        xml: "{{ lookup('ansible.builtin.file', 'interface.xml') }}"

- name: Detach the interface
  bootflow.compute.domain_interface:
    interfaces:
      - id: data
        uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        mac: fa:16:3e:00:00:01
        state: detached
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each interface, by its C(id).
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the interface was, or in check mode would be, attached or detached.
      type: bool
      returned: always
    live:
      description: Whether the running guest has the interface.
      type: bool
      returned: success
    config:
      description: Whether the definition of the next start has the interface.
      type: bool
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
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.dhcp import RESERVATIONS_ARGUMENT
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domain_devices import TRIES
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domain_interfaces import (
    STATES,
    desired_interface,
    ensure_interface,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    interface = {
        "id": {"type": "str", "required": True},
        "uuid": {"type": "str", "required": True},
        "mac": {"type": "str", "required": True},
        "state": {"type": "str", "choices": list(STATES), "default": "attached"},
        "xml": {"type": "str"},
        "reservations": RESERVATIONS_ARGUMENT,
        "network": {"type": "str"},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "interfaces": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": interface,
            "required_if": [("state", "attached", ["xml"])],
        },
        "detach_tries": {"type": "int", "default": TRIES},
        "detach_wait": {"type": "float", "default": 2},
        "vif_plugging_timeout": {"type": "float", "default": 300},
        "vif_plugging_is_fatal": {"type": "bool", "default": True},
        "workers": {"type": "int", "default": 4},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    plugging = (max(0.0, args["vif_plugging_timeout"]), args["vif_plugging_is_fatal"])
    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(wanted):
                tries, wait = max(1, args["detach_tries"]), max(0.0, args["detach_wait"])
                desired = desired_interface(wanted)
                return ensure_interface(connection, desired, module.check_mode, tries, wait, plugging)

            results = run_batch([(wanted["id"], wanted) for wanted in args["interfaces"]], one, args["workers"])
    except Exception as error:
        fail(module, error)
    diff = []
    for wanted in args["interfaces"]:
        result = results[wanted["id"]]
        before, after = result.pop("before", ""), result.pop("after", "")
        if before != after:
            header = "interface %s of domain %s" % (wanted["mac"], wanted["uuid"])
            diff.append({"before": before, "after": after, "before_header": header, "after_header": header})
    module.exit_json(changed=any_changed(results), outcomes=results, diff=diff)


if __name__ == "__main__":
    main()
