#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: domain_power
short_description: Shut guests down, start, restart, pause and suspend them
version_added: "0.9.0"
description:
  - Brings libvirt domains that are defined into a power state. One that is in it already is left alone.
  - A guest is asked to shut down as by its power button, again every 10 seconds. When it still runs after O(shutdown_timeout) it loses its power,
    and RV(outcomes) says so.
  - A guest is started by the definition that the host has of it, with its CPUs stopped until its interfaces are up.
  - A guest is restarted by asking it to shut down, and starting it when it has. One that does not hear keeps running, and RV(outcomes) says so.
  - A guest that is suspended writes its memory to a file of libvirt on the host (managed save) and is off then; its next start continues from there.
  - A guest whose clock stood still gets the time from the host, if its agent answers.
  - A domain that fails does not fail the others. Look at RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.time_limit
attributes:
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
      shutdown_timeout:
        description: O(shutdown_timeout) of this domain.
        type: float
      restored:
        description:
          - With O(state=running), a guest that was left with its saved memory restored and its CPUs stopped continues, too.
          - Such a guest looks like one that comes from another host, so that this is of suspended instances only.
        type: bool
        default: false
      leaves:
        description:
          - The instance leaves its host, or gets copies of its disks. A guest that writes to other disks than the folder of its instance in O(instances_path)
            records, or with snapshots or checkpoints in libvirt, is refused before anything is done with it.
          - UEFI variables that are outside of that folder come into it when the guest is off.
        type: bool
        default: false
      volumes:
        description:
          - By the UUIDs of volumes that the instance has, where this host has them, the path of a device or IQN/LUN.
          - A guest that has an overlay or a copy in place of one of them is refused before anything is done with it.
        type: dict
        default: {}
  state:
    description:
      - The state that they are to have. V(paused) stops the CPUs of a guest, V(unpaused) lets them go on.
      - V(interrupted) sends a guest a non-maskable interrupt, each time again. Its power state stays.
      - A guest that is off cannot be V(paused), V(unpaused), V(suspended) or V(interrupted), which is an error.
    type: str
    choices: [running, shutdown, rebooted, paused, unpaused, suspended, interrupted]
    required: true
  shutdown_timeout:
    description: Seconds that a guest has to shut down. V(0) takes its power at once.
    type: float
    default: 60
  wait_soft_reboot_seconds:
    description: Seconds that a guest has to restart, or to shut down so that it can be started.
    type: float
    default: 120
  wait_timeout:
    description: Seconds to wait until a guest runs, or with O(state=suspended) until it has released a PCI device of its host.
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
    description: How many guests are worked on at once. Guests shut down and restart side by side, up to 100.
    type: int
    default: 8
"""

EXAMPLES = r"""
---
- name: Shut two guests down, one of them without asking it
  bootflow.compute.domain_power:
    state: shutdown
    domains:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
      - uuid: 7d1b1f4e-52f0-4c1d-8c0e-4a5ce0f1b5c2
        shutdown_timeout: 0
  register: stopped

- name: Start one again
  bootflow.compute.domain_power:
    state: running
    domains:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each domain, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the guest was, or in check mode would be, shut down, started, restarted, paused, unpaused, suspended or interrupted.
      type: bool
      returned: always
    power_state:
      description: Nova's number for its state, 1 for running, 3 paused, 4 shut down, 6 crashed, 7 suspended, 0 none.
      type: int
      returned: success
    forced:
      description: Whether it lost its power, as it had not shut down in time.
      type: bool
      returned: success
    restarted:
      description: Whether the guest restarted; one that did not hear in time, was not running or did not start has to be reset.
      type: bool
      returned: success, with O(state=rebooted)
    vifs_missing:
      description: Interfaces that were not plugged in when the guest was started, which is possible without O(vif_plugging_is_fatal).
      type: list
      elements: str
      returned: success, when the guest was started
    seconds:
      description: How long it took.
      type: float
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

import functools

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import (
    LIBVIRT_ARGUMENTS,
    connect,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.power import (
    STATES,
    PowerSpec,
    ensure_power,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.locks import at_work
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.paths import instance_dir
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)

OF_EACH = (
    "shutdown_timeout",
    "wait_soft_reboot_seconds",
    "wait_timeout",
    "vif_plugging_timeout",
    "vif_plugging_is_fatal",
)
MOST_AT_ONCE = 100  # guests that are asked to shut down or restart: waiting for them costs next to nothing


def argument_spec():
    """The module's options."""
    domain = {
        "uuid": {"type": "str", "required": True},
        "shutdown_timeout": {"type": "float"},
        "restored": {"type": "bool", "default": PowerSpec.restored},
        "leaves": {"type": "bool", "default": False},
        "volumes": {"type": "dict", "default": {}},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "domains": {"type": "list", "elements": "dict", "required": True, "options": domain},
        "state": {"type": "str", "choices": list(STATES), "required": True},
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "shutdown_timeout": {"type": "float", "default": PowerSpec.shutdown_timeout},
        "wait_soft_reboot_seconds": {"type": "float", "default": PowerSpec.wait_soft_reboot_seconds},
        "wait_timeout": {"type": "float", "default": PowerSpec.wait_timeout},
        "vif_plugging_timeout": {"type": "float", "default": PowerSpec.vif_plugging_timeout},
        "vif_plugging_is_fatal": {"type": "bool", "default": PowerSpec.vif_plugging_is_fatal},
        "workers": {"type": "int", "default": 8},
    }


def power_spec(args, domain):
    """The spec of one element of the option ``domains``, whose own values come before those for all."""
    values = {key: args[key] if domain.get(key) is None else domain[key] for key in OF_EACH}
    uuid = domain["uuid"].lower()
    volumes = domain.get("volumes") or {}
    if domain["leaves"]:
        # These read XML, which no other power state needs.
        from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies import other_disks, outer_nvram

        folder = instance_dir(args["instances_path"], uuid)

        def check(guest):
            other_disks.refuse_to_leave(guest, folder, volumes)
            outer_nvram.check_outer_nvram(guest, folder)

        values["check"] = check
        values["at_rest"] = functools.partial(outer_nvram.take_outer_nvram, folder=folder)
    elif volumes:
        from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies import other_disks

        values["check"] = functools.partial(other_disks.refuse_replaced_volumes, uuid=uuid, volumes=volumes)
    return PowerSpec(uuid=uuid, state=args["state"], restored=domain["restored"], **values)


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:

            def one(domain):
                return ensure_power(connection, power_spec(args, domain), module.check_mode)

            workers = MOST_AT_ONCE if args["state"] in ("shutdown", "rebooted") else args["workers"]
            with at_work([d["uuid"] for d in args["domains"]], module.check_mode):
                results = run_batch([(d["uuid"], d) for d in args["domains"]], one, workers)
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
