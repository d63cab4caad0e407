#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: storage_backend_info
short_description: Capacity and volumes of the LVM backends of a storage host
version_added: "0.1.0"
description:
  - Tells what each backend has, had promised and has left, as Cinder's LVM driver reports it, with one command for each volume group.
  - Lists our logical volumes, and those among them that nobody knows; with O(targets) also the targets of volumes.
  - A backend that is not ready does not fail the others; its entry has the error.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: Nothing is changed.
  idempotent:
    support: full
  platform:
    platforms: linux
options:
  backends:
    description: The backends of this host.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the backend, the key of its result in RV(backends).
        type: str
        required: true
      volume_group:
        description: Its volume group.
        type: str
        default: cinder-volumes
      provisioning:
        description: Whether its volumes are thick, or thin and out of a thin pool.
        type: str
        choices: [thick, thin]
        default: thick
      thin_pool:
        description: Name of the thin pool. Without it the volume group's name with C(-pool) after it.
        type: str
  known:
    description: UUIDs of the volumes and snapshots that somebody knows. Without it nothing is called an orphan.
    type: list
    elements: str
  targets:
    description: Which targets of volumes to look for. Without it none are.
    type: list
    elements: dict
    default: []
    suboptions:
      target:
        description: What serves them.
        type: str
        choices: [lio, tgt]
        required: true
      iqn_prefix:
        description: What their names begin with; a volume's name follows.
        type: str
        required: true
requirements:
  - lvm2
  - python3-rtslib-fb for targets of LIO, tgt for those of tgt
"""

EXAMPLES = r"""
---
- name: What the backends have, and what nobody knows
  bootflow.compute.storage_backend_info:
    backends:
      - name: lvm
        volume_group: cinder-volumes
        provisioning: thin
    known: []
  register: storage
"""

RETURN = r"""
---
backends:
  description: The backends, by name.
  type: dict
  returned: success
  contains:
    total_capacity_gb:
      description: Size in GiB, of the thin pool or of the volume group, rounded down to two decimals.
      type: float
      returned: success
    free_capacity_gb:
      description:
        - What is not written (thin) or not given to a logical volume (thick), in GiB, rounded down to two decimals.
        - Kept images that nothing was made of any more are free room, too, and not in RV(backends.provisioned_capacity_gb); they go when it is wanted.
      type: float
      returned: success
    provisioned_capacity_gb:
      description: Sizes of all logical volumes (thin), or what is not free (thick), in GiB, rounded up to two decimals.
      type: float
      returned: success
    allocated_capacity_gb:
      description: Sizes of our volumes, in GiB.
      type: float
      returned: success
    thin_provisioning_support:
      description: Whether volumes are thin.
      type: bool
      returned: success
    data_percent:
      description: How full the thin pool is; null for a thick backend.
      type: float
      returned: success
    metadata_percent:
      description: How full the thin pool's metadata is; null for a thick backend.
      type: float
      returned: success
    image_cache_gb:
      description: Sizes of the images that a thin backend keeps, in GiB.
      type: float
      returned: success
    image_cache_count:
      description: How many it keeps.
      type: int
      returned: success
    boot_id:
      description: The boot of the host during which this was read.
      type: str
      returned: success
    read_at:
      description: When it was read, in seconds since that boot; what was done before that is in the numbers.
      type: float
      returned: success
    vg_uuid:
      description: What LVM knows the volume group by.
      type: str
      returned: success
    volumes:
      description:
        - Our logical volumes with C(kind), C(id), C(name), C(path), C(project), C(source), C(size) in bytes, C(complete), C(open), C(origin), C(pool)...
        - All of the volume group, whichever backend of it they are of.
      type: list
      elements: dict
      returned: success
    orphans:
      description: Those of them that are not in O(known).
      type: list
      elements: dict
      returned: success
    error:
      description: Why the backend is not ready, with C(code), C(status), C(message), C(remedy) and C(retryable); otherwise null.
      type: dict
      returned: always
targets:
  description: What was found for each of O(targets), with its C(target) and C(iqn_prefix).
  type: list
  elements: dict
  returned: success
  contains:
    exports:
      description:
        - The targets with C(iqn), C(volume_id), C(path), C(sessions) (the initiators that are logged in), C(running) (whether initiators find it; otherwise
          only a saved configuration has it) and C(ours) (whether this collection made it).
      type: list
      elements: dict
      returned: always
    error:
      description: Why they could not be read, with C(code), C(status), C(message), C(remedy) and C(retryable); otherwise null.
      type: dict
      returned: always
progress:
  description: What is being fetched, copied or wiped at this moment, with C(id), C(step) and C(percent).
  type: list
  elements: dict
  returned: success
error_code:
  description: The kind of error, one stable word of docs/errors.md.
  type: str
  returned: failure
  sample: InvalidInput
status:
  description: The HTTP status that Nova or Cinder gives for this error.
  type: int
  returned: failure
  sample: 400
remedy:
  description: What to do about it.
  type: str
  returned: failure
  sample: Give each backend a name of its own.
retryable:
  description: Whether the same request may succeed without a change, on another host or backend, or at another time.
  type: bool
  returned: failure
  sample: false
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi.target_facts import targets_facts
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes.backend_facts import backends_facts
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.volumes.process import work_at_hand


def argument_spec():
    """The module's options."""
    backend = {
        "name": {"type": "str", "required": True},
        "volume_group": {"type": "str", "default": "cinder-volumes"},
        "provisioning": {"type": "str", "choices": ["thick", "thin"], "default": "thick"},
        "thin_pool": {"type": "str"},
    }
    target = {
        "target": {"type": "str", "choices": ["lio", "tgt"], "required": True},
        "iqn_prefix": {"type": "str", "required": True},
    }
    return {
        "backends": {"type": "list", "elements": "dict", "required": True, "options": backend},
        "known": {"type": "list", "elements": "str"},
        "targets": {"type": "list", "elements": "dict", "default": [], "options": target},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    try:
        backends = backends_facts(module.params["backends"], module.params["known"])
        progress = work_at_hand()
        targets = targets_facts(module.params["targets"])
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=False, backends=backends, targets=targets, progress=progress)


if __name__ == "__main__":
    main()
