#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: domain
short_description: Define and start guests, and wait until they are up
version_added: "0.9.0"
description:
  - Defines libvirt domains from their XML, starts them, and waits until they run; optionally also until a pattern appears on the console, an address
    responds, or the guest agent responds.
  - Domains are identified by their UUID. A running domain with the requested definition stays unchanged. A running domain with another definition
    keeps running and gets the new definition for its next start, unless O(domains[].restart).
  - The failure of one domain does not affect the others; a partly created domain stays for M(bootflow.compute.instance_cleanup).
  - A definition that libvirt refuses or cannot start is kept below O(instances_path) in C(_refused/UUID.xml), the newest 20 of a host, and the remedy of
    the error names the file.
  - RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.guest.domains
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.workers
  - bootflow.compute.shared.max_builds
  - bootflow.compute.shared.time_limit
attributes:
  diff_mode: {support: full}
  platform: {platforms: linux}
options:
  workers: {default: 8}
requirements:
  - iputils-ping with O(domains[].wait_address)
"""

EXAMPLES = r"""
---
- name: Start a guest and wait for its login prompt
  bootflow.compute.domain:
    domains:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        name: web-1-2f4c1c0e
        xml: "{{ lookup('ansible.builtin.template', 'web-1.xml') }}"
        wait_console:
          pattern: 'login:'
          timeout: 120
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each domain, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the domain was, or in check mode would be, defined, started or resumed, or an address reserved for it.
      type: bool
      returned: always
    power_state:
      description: Nova's number of the power state, 1 for running, 3 paused, 4 shut down, 6 crashed, 7 suspended, 0 none.
      type: int
      returned: success, and after a failure with O(domains[].restart)
    name:
      description: Name of the domain.
      type: str
      returned: success
    defined:
      description: Whether this task defined the domain.
      type: bool
      returned: success
    started:
      description: Whether this task started the domain.
      type: bool
      returned: success
    resumed:
      description: Whether this task resumed a paused domain.
      type: bool
      returned: success
    differences:
      description: Differences between the existing and the requested definition.
      type: list
      elements: str
      returned: success
    reserved:
      description: Addresses of O(domains[].reservations) that were, or in check mode would be, reserved.
      type: list
      elements: str
      returned: success
    seconds:
      description: Duration in seconds.
      type: float
      returned: success
    devices:
      description: Where the guest finds its disks and interfaces, in the order of the definition.
      type: list
      elements: dict
      returned: success, with O(domains[].state=defined), not in check mode
      contains:
        type:
          description: V(disk) or V(nic).
          type: str
          returned: always
        name:
          description: Name of the disk in the definition.
          type: str
          returned: for a disk
          sample: vda
        mac:
          description: MAC address of the interface.
          type: str
          returned: for an interface
        bus:
          description: V(pci), V(scsi), V(ide) or V(usb).
          type: str
          returned: if the device has one of these
        address:
          description: PCI address in the guest.
          type: str
          returned: with RV(outcomes.devices[].bus=pci)
          sample: '0000:00:03.0'
    console_match:
      description: The console line that matched; otherwise null.
      type: str
      returned: success
    forced:
      description: Whether the guest lost its power, as it had not shut down in time.
      type: bool
      returned: success, of a running guest with O(domains[].shutdown_timeout)
    vifs_missing:
      description: Interfaces that were not plugged in when the guest was resumed; only with O(domains[].vif_plugging_is_fatal=false).
      type: list
      elements: str
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies.other_disks import keep_others
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domain_batch import (
    DOMAIN_BATCH_ARGUMENTS,
    ensure_domains,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.running import login_users
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.locks import at_work
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    return {**TIME_LIMIT_ARGUMENTS, **DOMAIN_BATCH_ARGUMENTS}


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    module.no_log_values |= login_users(*(wanted["xml"] for wanted in module.params["domains"]))
    try:
        with at_work([wanted["uuid"] for wanted in module.params["domains"]], module.check_mode):
            result = ensure_domains(module.params, module.check_mode, keep_others=keep_others)
    except Exception as error:
        fail(module, error)
    module.no_log_values |= login_users(*(difference["before"] for difference in result["diff"]))
    module.exit_json(changed=any_changed(result["outcomes"]), **result)


if __name__ == "__main__":
    main()
