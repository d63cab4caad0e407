#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: instance_build
short_description: Make networks, disks, config drives and domains of guests in one task
version_added: "0.9.0"
description:
  - Does what M(bootflow.compute.virtual_network), M(bootflow.compute.instance_disks), M(bootflow.compute.config_drive) and
    M(bootflow.compute.domain) do, in this order and with their options, in one task on the host.
  - An instance with a failed part or a missing image gets no later part; the others continue. Each part has the results of its module.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.guest.networks
  - bootflow.compute.guest.disks
  - bootflow.compute.guest.drives
  - bootflow.compute.guest.domains
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.workers
  - bootflow.compute.shared.max_builds
  - bootflow.compute.shared.ledger_id
  - bootflow.compute.shared.time_limit
  - bootflow.compute.shared.disk_pool
attributes:
  diff_mode: {support: none, details: A config drive may hold passwords.}
  platform: {platforms: linux}
options:
  workers: {default: 8}
  networks_of:
    description: The O(networks) that an instance needs, a dictionary from its UUID to a list of names.
    type: dict
    default: {}
  remove_uploads:
    description: Remove the files of O(uploads) at the end, and their folder if nothing else is in it.
    type: bool
    default: false
requirements:
  - as of the four modules
"""

EXAMPLES = r"""
- name: Start a guest without networks from an image
  bootflow.compute.instance_build:
    images:
      - id: debian
        url: https://cloud.example.org/debian-12.qcow2
        checksum: sha256:9f7c...
        disk_format: qcow2
    instances:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        disks: [{name: disk, kind: image, image_id: debian, size_gb: 10}]
    drives: []
    domains:
      - uuid: 2f4c1c0e-6a0f-4d8e-9f0b-0c6f3f3b2a11
        name: web-1
        xml: "{{ lookup('ansible.builtin.template', 'web-1.xml.j2') }}"
"""

RETURN = r"""
---
parts:
  description: V(networks), V(disks), V(drives) and V(domains), each with what its module returns and its C(seconds).
  type: dict
  returned: success
  sample:
    networks:
      outcomes: {}
      reservations: {}
      seconds: 0.0
    disks:
      image_outcomes: {}
      missing_images: []
      outcomes: {}
      seconds: 0.2
    drives:
      outcomes: {}
      seconds: 0.0
    domains:
      outcomes: {}
      seconds: 0.4
uploads_removed:
  description: Whether the files of O(uploads) and their folder are gone.
  type: bool
  returned: with O(remove_uploads)
  sample: true
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.copies.other_disks import keep_others
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.disk_batch import (
    DISK_BATCH_ARGUMENTS,
    make_disks_of,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.drive.config_drive import (
    DRIVES_ARGUMENT,
    write_drives,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.disks.recorded_formats import as_recorded
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.images.images import remove_uploads
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.domain_batch import (
    DOMAIN_BATCH_ARGUMENTS,
    ensure_domains,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.network_batch import (
    NETWORK_BATCH_ARGUMENTS,
    ensure_networks,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.running import login_users
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.locks import at_work
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def ensure_guests(options, check_mode):
    """The part domains, by the formats that local disks have."""
    return ensure_domains(options, check_mode, as_recorded, keep_others)


# part -> its work, and the option whose items belong to instances
PARTS = {
    "networks": (ensure_networks, None),
    "disks": (make_disks_of, "instances"),
    "drives": (write_drives, "drives"),
    "domains": (ensure_guests, "domains"),
}


def argument_spec():
    """The module's options."""
    return {
        **TIME_LIMIT_ARGUMENTS,
        **NETWORK_BATCH_ARGUMENTS,
        **DISK_BATCH_ARGUMENTS,
        **DOMAIN_BATCH_ARGUMENTS,
        "drives": DRIVES_ARGUMENT,
        "networks_of": {"type": "dict", "default": {}},
        "remove_uploads": {"type": "bool", "default": False},
    }


def build(options, check_mode):
    """The results of the parts, each of the instances that came through those before."""
    parts, stopped = {}, set()
    for part, (work, items) in PARTS.items():
        started = time.monotonic()
        part_options = {**options, items: [i for i in options[items] if i["uuid"] not in stopped]} if items else options
        parts[part] = work(part_options, check_mode)
        parts[part]["seconds"] = round(time.monotonic() - started, 3)
        parts[part].pop("diff", None)
        outcomes = parts[part]["outcomes"]
        ended = {key for key, outcome in outcomes.items() if outcome["error"] or outcome.get("pending")}
        if part == "networks":
            ended = {uuid for uuid, names in options["networks_of"].items() if ended & set(names)}
        stopped |= ended
    return parts


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    module.no_log_values |= login_users(*(wanted["xml"] for wanted in module.params["domains"]))
    try:
        with at_work([wanted["uuid"] for wanted in module.params["domains"]], module.check_mode):
            parts = build(module.params, module.check_mode)
    except Exception as error:
        fail(module, error)
    batches = [part["outcomes"] for part in parts.values()]
    batches += [parts["networks"]["reservations"], parts["disks"]["image_outcomes"]]
    result = {"parts": parts}
    if module.params["remove_uploads"]:
        result["uploads_removed"] = not module.check_mode and remove_uploads(module.params["uploads"].values())
    module.exit_json(changed=any_changed(*batches), **result)


if __name__ == "__main__":
    main()
