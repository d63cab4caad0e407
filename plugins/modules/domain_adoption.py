#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: domain_adoption
short_description: Describe domains of other software, and mark them as a ledger's
version_added: "0.9.0"
description:
  - Describes the domains of a host that this collection did not make, or writes into their metadata that a ledger has them, or removes that.
  - The metadata is an element C(owner) of a separate namespace, in the definition and in the running guest. No device of a guest is touched.
  - A domain that fails does not fail the others. Look at RV(outcomes) for each one's outcome.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.libvirt
  - bootflow.compute.shared.time_limit
  - bootflow.compute.shared.instances_path
  - bootflow.compute.shared.ledger_id
attributes:
  platform: {platforms: linux}
options:
  state:
    description:
      - V(described) returns the domains, and changes nothing.
      - V(adopted) marks the domains of O(uuids) as domains of the ledger O(ledger_id), V(released) removes that mark.
    type: str
    choices: [described, adopted, released]
    default: described
  names:
    description:
      - With O(state=described), UUIDs and names of domains, also of domains that this collection made. A name that the host does not have is left out.
      - Without it, all domains that this collection did not make.
    type: list
    elements: str
  uuids:
    description: With the other states, UUIDs of domains.
    type: list
    elements: str
    default: []
  volume_group:
    description:
      - Volume group of the instances' local disks, whose logical volumes are local disks.
      - Without it, files on the file system of O(instances_path) are.
    type: str
    default: ""
seealso:
  - module: bootflow.compute.instance_adopt
  - module: bootflow.compute.instance_release
"""

EXAMPLES = r"""
---
- name: Describe the domains of other software
  bootflow.compute.domain_adoption:
  register: foreign

- name: Show their names
  ansible.builtin.debug:
    msg: "{{ foreign.domains | map(attribute='name') }}"
"""

RETURN = r"""
---
domains:
  description:
    - The domains, with C(uuid), C(name), C(arch), C(machine), C(memory_mb), C(vcpus), C(disks), C(interfaces), C(pci), C(other_devices), C(pins), C(agent),
      C(made_by), C(ledger), C(power_state), C(persistent), C(saved), C(snapshots) and C(jobs).
    - A domain that cannot be described has C(uuid), C(name) and C(error).
  type: list
  elements: dict
  returned: with O(state=described)
outcomes:
  description: The outcome of each domain, by its UUID. Empty with O(state=described).
  type: dict
  returned: success
  contains:
    changed:
      description: Whether the metadata of the domain was, or in check mode would be, changed.
      type: bool
      returned: always
    error:
      description:
        - Why this item failed, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
        - That of an unexpected error has its C(traceback) too, without values.
      type: dict
      returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.adopt.foreign_domains import (
    foreign_domains,
    mark,
    unmark,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.libvirt.connection import (
    LIBVIRT_ARGUMENTS,
    connect,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.batch import any_changed, run_batch
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.paths import checked_uuid
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)


def argument_spec():
    """The module's options."""
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LIBVIRT_ARGUMENTS,
        "state": {"type": "str", "choices": ["described", "adopted", "released"], "default": "described"},
        "names": {"type": "list", "elements": "str"},
        "uuids": {"type": "list", "elements": "str", "default": []},
        "ledger_id": {"type": "str", "default": ""},
        "instances_path": {"type": "path", "default": "/var/lib/bootflow/instances"},
        "volume_group": {"type": "str", "default": ""},
    }


def main():
    module = AnsibleModule(
        argument_spec=argument_spec(),
        required_if=[("state", "adopted", ("ledger_id",)), ("state", "released", ("ledger_id",))],
        supports_check_mode=True,
    )
    keep_time_limit(module)
    args = module.params
    try:
        with connect(args["libvirt_uri"], args["libvirt_timeout"]) as connection:
            if args["state"] == "described":
                domains = foreign_domains(connection, args["names"], args["instances_path"], args["volume_group"])
                module.exit_json(changed=False, domains=domains, outcomes={})
            ledger_id, change = checked_uuid(args["ledger_id"]), mark if args["state"] == "adopted" else unmark

            def one(uuid):
                return change(connection, checked_uuid(uuid), ledger_id, module.check_mode)

            results = run_batch([(uuid, uuid) for uuid in args["uuids"]], one)
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=any_changed(results), outcomes=results)


if __name__ == "__main__":
    main()
