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

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.dhcp import RESERVATIONS_ARGUMENT
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domain_interfaces import (
    STATES,
    desired_interface,
    ensure_interface,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.hot_plug import (
    ATTACHED,
    hot_plug_arguments,
    run_hot_plug,
)


def argument_spec():
    """The module's options."""
    interface = {
        "mac": {"type": "str", "required": True},
        "state": {"type": "str", "choices": list(STATES), "default": ATTACHED},
        "reservations": RESERVATIONS_ARGUMENT,
        "network": {"type": "str"},
    }
    return {
        **hot_plug_arguments("interfaces", interface),
        "vif_plugging_timeout": {"type": "float", "default": 300},
        "vif_plugging_is_fatal": {"type": "bool", "default": True},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    plugging = (max(0.0, module.params["vif_plugging_timeout"]), module.params["vif_plugging_is_fatal"])

    def ensure(connection, interface, tries, wait):
        return ensure_interface(connection, desired_interface(interface, plugging), module.check_mode, tries, wait)

    run_hot_plug(module, "interfaces", "mac", ensure)


if __name__ == "__main__":
    main()
