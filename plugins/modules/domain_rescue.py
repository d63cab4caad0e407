#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: domain_rescue
short_description: Keep the definitions of guests while they are rescued, and bring them back
version_added: "0.9.0"
description:
  - Before a guest is rescued, O(state=saved) keeps the definition of its domain, with its passwords, in the file C(unrescue.xml) of the instance's folder,
    which only root may read, and removes what an earlier rescue left there. The guest is left alone.
  - Afterwards M(bootflow.compute.instance_build) can make the file C(disk.rescue) in that folder, and the domain that boots from it. A domain with
    this disk is that of a rescue. Its definition is never kept. What was kept before stays.
  - When the rescue is over, O(state=restored) takes its guest's power, defines the domain as it was, to the letter, removes the files of the rescue
    and starts the guest.
  - A domain that fails does not fail the others. Look at RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.time_limit
attributes:
  diff_mode: {support: none, details: A definition may have passwords.}
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
      xml:
        description: The definition for a domain that the host has no more, whose kept definition is lost, or is refused by libvirt.
        type: str
        required: true
      start:
        description: With O(state=restored), start the guest.
        type: bool
        default: true
  state:
    description: V(saved) before a rescue, V(restored) after it.
    type: str
    choices: [saved, restored]
    required: true
  wait_timeout:
    description: Seconds to wait until a guest runs.
    type: float
    default: 60
  vif_plugging_timeout:
    description:
      - Seconds to wait until the host has every interface of a guest up; the guest's CPUs are stopped until then.
      - V(0) starts the guest at once.
    type: float
    default: 300
  vif_plugging_is_fatal:
    description: Fail when an interface is missing after that time. Otherwise the guest runs without.
    type: bool
    default: true
  workers:
    description: How many guests are worked on at once.
    type: int
    default: 8
requirements:
  - python3-libvirt and python3-lxml (on the host)
"""

EXAMPLES = r"""
---
- name: End the rescue of a guest
  bootflow.compute.domain_rescue:
    state: restored
    domains:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        xml: "{{ lookup('ansible.builtin.template', 'web-1.xml.j2') }}"
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each domain, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether something was, or in check mode would be, changed.
      type: bool
      returned: always
    power_state:
      description: Nova's number for its state, 1 for running, 3 paused, 4 shut down, 6 crashed, 7 suspended, 0 none.
      type: int
      returned: success, and of a guest whose definition was restored and that did not start
    ran:
      description: Whether the guest runs, and is not that of a rescue.
      type: bool
      returned: success, with O(state=saved)
    forced:
      description: Whether it has the definition O(domains[].xml), as its own was lost or refused.
      type: bool
      returned: success, with O(state=restored)
    vifs_missing:
      description: Interfaces that were not plugged in when the guest was started, which is possible without O(vif_plugging_is_fatal).
      type: list
      elements: str
      returned: success, when the guest was started
    seconds:
      description: How long the start took.
      type: float
      returned: success, when the guest was started
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies.other_disks import refuse_to_restore
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.rescue import RescuedSpec, restore, save
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import (
    LIBVIRT_ARGUMENTS,
    connect,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.power import PowerSpec
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.running import login_users
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.locks import at_work
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)

OF_A_START = ("wait_timeout", "vif_plugging_timeout", "vif_plugging_is_fatal")


def argument_spec():
    """The module's options."""
    domain = {
        "uuid": {"type": "str", "required": True},
        "xml": {"type": "str", "required": True},
        "start": {"type": "bool", "default": RescuedSpec.start},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "domains": {"type": "list", "elements": "dict", "required": True, "options": domain},
        "state": {"type": "str", "choices": ["saved", "restored"], "required": True},
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "wait_timeout": {"type": "float", "default": PowerSpec.wait_timeout},
        "vif_plugging_timeout": {"type": "float", "default": PowerSpec.vif_plugging_timeout},
        "vif_plugging_is_fatal": {"type": "bool", "default": PowerSpec.vif_plugging_is_fatal},
        "workers": {"type": "int", "default": 8},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    module.no_log_values |= login_users(*(domain["xml"] for domain in args["domains"]))
    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(domain):
                spec = RescuedSpec(domain["uuid"].lower(), domain["xml"], domain["start"])
                if args["state"] == "saved":
                    return save(connection, args["instances_path"], spec, module.check_mode)
                power = PowerSpec(spec.uuid, "running", **{name: args[name] for name in OF_A_START})
                return restore(connection, args["instances_path"], spec, power, module.check_mode, refuse_to_restore)

            with at_work([d["uuid"] for d in args["domains"]], module.check_mode):
                results = run_batch([(d["uuid"], d) for d in args["domains"]], one, args["workers"])
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
