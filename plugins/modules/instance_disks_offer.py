#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_disks_offer
short_description: Offer the disks of instances once to their new hosts
version_added: "0.9.0"
description:
  - Opens the disks of instances whose guests are off, and starts a process that serves them by TLS to a client that shows the token of the instance.
    A disk that is a layer over a base image is served as a disk without its base image. The config drive and the UEFI variables of a guest go along.
  - Key and certificate are made for this process on this host, the key never leaves it. The process ends when all was fetched, with O(state=absent), or after
    O(lifetime) seconds, and nothing of it remains. It ends as well when this module is killed before it answers, or its run is gone by then. Later it ends
    when this host starts the guest, removes or resizes its disks, or offers them again.
  - The failure of one instance does not affect the others. RV(outcomes) has the result of each.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.workers
  - bootflow.compute.shared.time_limit
attributes:
  check_mode: {support: none}
  diff_mode: {support: none, details: Disks have no text to compare.}
  platform: {platforms: linux}
options:
  state:
    description: V(present) starts the process, V(absent) ends it.
    type: str
    choices: [present, absent]
    default: present
  instances:
    description: The instances.
    type: list
    elements: dict
    default: []
    suboptions:
      uuid:
        description: UUID of the instance.
        type: str
        required: true
      token:
        description: What its new host shows.
        type: str
        required: true
      left:
        description: Names of disks that are not served.
        type: list
        elements: str
        default: []
      has_disks:
        description: Whether the instance has local disks or a config drive, without which it fails. Without any, it may have UEFI variables, or nothing.
        type: bool
        default: true
  first_port:
    description: It listens at the first free port from this one on, at all addresses.
    type: int
    default: 49216
  last_port:
    description: The last of these ports.
    type: int
    default: 49279
  port:
    description: With O(state=absent), where it listens.
    type: int
  fingerprint:
    description: With O(state=absent), the SHA-256 of its certificate.
    type: str
  stop_token:
    description: What ends the process.
    type: str
    required: true
  lifetime:
    description: Seconds after which it ends by itself.
    type: float
    default: 3600.0
requirements:
  - qemu-utils
  - openssl
"""

EXAMPLES = r"""
---
- name: Offer the disks of an instance
  bootflow.compute.instance_disks_offer:
    instances:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        token: "{{ token }}"
    stop_token: "{{ stop_token }}"
  no_log: true
"""

RETURN = r"""
---
outcomes:
  description: The outcome of each instance, by its UUID.
  type: dict
  returned: success
  contains:
    changed:
      description: Whether a disk was copied.
      type: bool
      returned: always
    files:
      description:
        - What is served, each with C(name), C(size) and C(allocated) in bytes, and C(record), which M(bootflow.compute.instance_disks_fetch) takes;
          C(mounted) is true of a disk in a file system of its instance, on a logical volume.
      type: list
      elements: dict
      returned: success
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
port:
  description: Where the process listens; 0 if there is nothing to serve.
  type: int
  returned: success
fingerprint:
  description: The SHA-256 of its certificate.
  type: str
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies.sender import prepare, serve
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies.server import HERE, Place, answered, stop
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    instance = {
        "uuid": {"type": "str", "required": True},
        "token": {"type": "str", "required": True, "no_log": True},
        "left": {"type": "list", "elements": "str", "default": []},
        "has_disks": {"type": "bool", "default": True},
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "instances": {"type": "list", "elements": "dict", "default": [], "options": instance},
        "first_port": {"type": "int", "default": 49216},
        "last_port": {"type": "int", "default": 49279},
        "port": {"type": "int"},
        "fingerprint": {"type": "str"},
        "stop_token": {"type": "str", "required": True, "no_log": True},
        "lifetime": {"type": "float", "default": 3600.0},
        "workers": {"type": "int", "default": 4},
    }


def offer(args):
    """The outcomes, and where the process listens."""
    offers = []

    def one(instance):
        what = (instance["uuid"], instance["token"], instance["left"], instance["has_disks"])
        disk_offer, files = prepare(args["instances_path"], *what)
        if files:
            offers.append(disk_offer)
        return {"files": files}

    results = run_batch([(i["uuid"], i) for i in args["instances"]], one, args["workers"])
    place = Place(HERE, 0, "")
    if offers:
        ports = (args["first_port"], args["last_port"])
        place = serve(offers, ports, args["stop_token"], args["lifetime"])
    return {"outcomes": results, "port": place.port, "fingerprint": place.fingerprint}


def main():
    module = AnsibleModule(argument_spec=argument_spec(), required_if=[("state", "absent", ["port", "fingerprint"])])
    keep_time_limit(module)
    args = module.params
    try:
        if args["state"] == "absent":
            changed = stop(Place(HERE, args["port"], args["fingerprint"]), args["stop_token"])
            result = {"outcomes": {}, "port": 0, "fingerprint": ""}
        else:
            result = offer(args)
            changed = any_changed(result["outcomes"])
    except Exception as error:
        fail(module, error)
    answered()
    module.exit_json(changed=changed, **result)


if __name__ == "__main__":
    main()
