#!/usr/bin/python
# Copyright (c) 2026, the bootflow.compute authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rbd_backend_info
short_description: Report the capacity and the volumes of Ceph pools
version_added: "0.9.0"
description:
  - Reports capacity as Cinder's RBD driver does, and the volumes and snapshots of this collection. Volumes that are not in O(known) are orphans.
  - The figures come from a manager (C(ceph-mgr)) that runs now. Without one they would be zeros, or out of date, so the backend has an error.
  - A cluster that does not answer within seconds, and a pool that is full, are errors of their backends.
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
    description: The backends.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the backend, the key of its result in RV(backends).
        type: str
        required: true
      pool:
        description: Pool of the cluster.
        type: str
        required: true
      monitors:
        description: Addresses of all monitors of the cluster, C(address) or C(address:port).
        type: list
        elements: str
        required: true
      user:
        description: User of the cluster, without C(client.).
        type: str
        required: true
      key:
        description: Key of O(backends[].user).
        type: str
        required: true
  known:
    description: UUIDs of volumes and snapshots that are not orphans. By default nothing is an orphan.
    type: list
    elements: str
requirements:
  - ceph-common
"""

EXAMPLES = r"""
---
- name: Report the capacity of a pool
  bootflow.compute.rbd_backend_info:
    backends:
      - name: ceph
        pool: volumes
        monitors: ["192.0.2.21", "192.0.2.22"]
        user: cinder
        key: "{{ vault_ceph_key }}"
"""

RETURN = r"""
---
backends:
  description: The backends, by name, with fields as in RV(bootflow.compute.storage_backend_info#module:backends).
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.module_errors import fail
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.ownership import LEDGER_ARGUMENTS
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.os.time_limit import (
    TIME_LIMIT_ARGUMENTS,
    keep_time_limit,
)
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.cluster import CLUSTER_ARGUMENTS
from ansible_collections.bootflow.compute.plugins.module_utils.hosts.rbd.pool_facts import pools_facts


def argument_spec():
    """The module's options."""
    backend = {
        "name": {"type": "str", "required": True},
        "pool": {"type": "str", "required": True},
        **CLUSTER_ARGUMENTS,
    }
    return {
        **TIME_LIMIT_ARGUMENTS,
        **LEDGER_ARGUMENTS,
        "backends": {"type": "list", "elements": "dict", "required": True, "options": backend},
        "known": {"type": "list", "elements": "str"},
    }


def main():
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    keep_time_limit(module)
    args = module.params
    try:
        backends = pools_facts(args["backends"], args["known"], args["ledger_id"])
    except Exception as error:
        fail(module, error)
    module.exit_json(changed=False, backends=backends)


if __name__ == "__main__":
    main()
