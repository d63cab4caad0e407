#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: storage_backend_info
short_description: Report capacity and volumes of the LVM backends of a storage host
version_added: "0.9.0"
description:
  - Reports total, provisioned and free capacity of each backend as Cinder's LVM driver does, with one command for each volume group.
  - Lists the logical volumes of this collection, and which of them are unknown; with O(targets) also the targets of volumes.
  - A backend that is not ready does not affect the others; its entry has the error.
author: bootflow.compute authors (@bootflow)
extends_documentation_fragment:
  - bootflow.compute.attributes
  - bootflow.compute.shared.ledger_id
  - bootflow.compute.shared.time_limit
attributes:
  diff_mode: {support: none, details: Nothing is changed.}
  platform: {platforms: linux}
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
        description: Volume group of the backend.
        type: str
        default: cinder-volumes
      provisioning:
        description: Whether its volumes are thick, or thin and in a thin pool.
        type: str
        choices: [thick, thin]
        default: thick
      thin_pool:
        description: Name of the thin pool. By default the name of the volume group followed by C(-pool).
        type: str
  known:
    description: UUIDs of the known volumes and snapshots. Without this option, none is reported as an orphan.
    type: list
    elements: str
  targets:
    description: Targets of volumes to look for. By default none.
    type: list
    elements: dict
    default: []
    suboptions:
      target:
        description: Target implementation.
        type: str
        choices: [lio, tgt]
        required: true
      iqn_prefix:
        description: Prefix of the names of targets, before the name of the volume.
        type: str
        required: true
requirements:
  - lvm2
  - python3-rtslib-fb for targets of LIO, tgt for targets of tgt
"""

EXAMPLES = r"""
---
- name: Report capacity and list orphans
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
        - Space that is not written (thin) or not allocated to a logical volume (thick), in GiB, rounded down to two decimals.
        - Cached images that no volume uses count as free and not in RV(backends.provisioned_capacity_gb); they are evicted when space is needed.
      type: float
      returned: success
    provisioned_capacity_gb:
      description: Sum of all logical volumes (thin), or space that is not free (thick), in GiB, rounded up to two decimals.
      type: float
      returned: success
    allocated_capacity_gb:
      description: Sum of the volumes of this collection, in GiB.
      type: float
      returned: success
    thin_provisioning_support:
      description: Whether volumes are thin.
      type: bool
      returned: success
    data_percent:
      description: Usage of the thin pool; null for a thick backend.
      type: float
      returned: success
    metadata_percent:
      description: Usage of the metadata of the thin pool; null for a thick backend.
      type: float
      returned: success
    image_cache_count:
      description: Number of cached images.
      type: int
      returned: success
    image_cache_gb:
      description: Sum of the cached images of a thin backend, in GiB.
      type: float
      returned: success
    boot_id:
      description: Id of the boot of the host during which this was read.
      type: str
      returned: success
    read_at:
      description: Time of reading, in seconds since that boot; earlier changes are included in the numbers.
      type: float
      returned: success
    vg_uuid:
      description: UUID of the volume group.
      type: str
      returned: success
    volumes:
      description:
        - Our logical volumes with C(kind), C(id), C(name), C(path), C(project), C(source), C(size) in bytes, C(complete), C(open), C(origin), C(pool)...
        - All of the volume group, whichever of its backends they belong to.
      type: list
      elements: dict
      returned: success
    orphans:
      description: Logical volumes of this collection that are not in O(known).
      type: list
      elements: dict
      returned: success
    other_ledgers:
      description:
        - Other ledgers than O(ledger_id) that have logical volumes in the group, by their ids.
        - C(volumes) is their number, C(size_gb) their size.
      type: dict
      returned: with O(ledger_id)
    error:
      description: Why the backend is not ready, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
      type: dict
      returned: always
targets:
  description: Results for each of O(targets), with its C(target) and C(iqn_prefix).
  type: list
  elements: dict
  returned: success
  contains:
    exports:
      description:
        - The targets with C(iqn), C(volume_id), C(path), C(sessions) (the initiators that are logged in), C(running) (whether initiators find it; otherwise
          it exists only in a saved configuration) and C(ours) (whether this collection created it).
      type: list
      elements: dict
      returned: always
    error:
      description: Why the targets could not be read, with C(code), C(status), C(message), C(remedy) and C(retryable); null on success.
      type: dict
      returned: always
guest_content:
  description:
    - Why the content of volumes can do harm on this host, as texts. Volume groups, arrays and the like that the host activated from it, and the settings of
      udev and LVM that are missing (M(bootflow.compute.guest_content) writes them).
  type: list
  elements: str
  returned: success
progress:
  description: Images and volumes that are being fetched, copied or wiped, with C(id), C(step) and C(percent).
  type: list
  elements: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.iscsi.target_facts import targets_facts
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.guest_rules import exposed
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.ownership import LEDGER_ARGUMENTS
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)
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
        **TIME_LIMIT_ARGUMENTS,
        **LEDGER_ARGUMENTS,
        "backends": {"type": "list", "elements": "dict", "required": True, "options": backend},
        "known": {"type": "list", "elements": "str"},
        "targets": {"type": "list", "elements": "dict", "default": [], "options": target},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    try:
        backends = backends_facts(module.params["backends"], module.params["known"], module.params["ledger_id"])
        progress = work_at_hand()
        active_or_missing = exposed(connects=False)  # its disks of guests are its own logical volumes
        targets = targets_facts(module.params["targets"], module.params["ledger_id"])
    except Exception as error:
        fail(module, error)
    module.exit_json(
        changed=False, backends=backends, targets=targets, progress=progress, guest_content=active_or_missing
    )


if __name__ == "__main__":
    main()
